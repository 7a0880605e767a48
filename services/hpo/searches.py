"""Searches in memory: loaded from their rows, and kept as far as there is room.

A search that stays costs what changes and not its history. Each is guarded by the stamp on the
study's row, which is locked and new with each saved state: a search that went further in a
transaction that failed, or that another replica has moved, is loaded again.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import asyncpg

from drivetrain_schemas.studies import StudySpec
from services.hpo import instruments, messages, saved, store
from services.hpo.core.search import Search
from services.hpo.core.trials import EarlierStudy
from services.runtime import logs

log = logs.get()

# Of all searches in memory together; a trial takes about a kilobyte.
MAX_TRIALS = 100_000
# What a search holds beside its trials, in trials: the state of its strategies.
_EMPTY = 200
# A study with as many trials is loaded beside the event loop, which goes on meanwhile.
_MANY = 1000

Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)
class Loaded:
    """`requests` are those of an external study that trials answer.

    `is_new`: it was told nothing yet, so its strategies still have to learn from all trials.
    """

    spec: StudySpec
    search: Search
    requests: set[str] = field(default_factory=set)
    is_new: bool = True


class Kept:
    """The searches used last, by study, with their stamps."""

    def __init__(self) -> None:
        self._by_study: OrderedDict[str, tuple[str, int, Loaded]] = OrderedDict()
        self._num_trials = 0
        # Set when the search that is read beside the event loop may be changed again.
        self._read: dict[str, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._by_study)

    def take(self, study_id: str, stamp: str) -> Loaded | None:
        """The search with this stamp; it is not kept any more."""
        found = self._by_study.pop(study_id, None)
        if found is None:
            return None
        self._num_trials -= found[1]
        return found[2] if found[0] == stamp else None

    def put(self, study_id: str, stamp: str, loaded: Loaded) -> None:
        self.take(study_id, "")
        num_trials = _EMPTY + len(loaded.search.trials)
        self._by_study[study_id] = (stamp, num_trials, loaded)
        self._num_trials += num_trials
        while self._num_trials > MAX_TRIALS and len(self._by_study) > 1:
            _, (_, least, _) = self._by_study.popitem(last=False)
            self._num_trials -= least

    @contextmanager
    def lend(self, study_id: str, stamp: str, loaded: Loaded) -> Iterator[None]:
        """Nobody takes the study's search before the end of the block; then it is kept."""
        self._read[study_id] = read = asyncio.Event()
        try:
            yield
        finally:
            del self._read[study_id]
            read.set()
            if study_id not in self._by_study:  # else it is that of somebody who went further
                self.put(study_id, stamp, loaded)

    async def returned(self, study_id: str) -> None:
        """Wait while the study's search is lent."""
        while (read := self._read.get(study_id)) is not None:
            await read.wait()

    def clear(self) -> None:
        self._by_study.clear()
        self._num_trials = 0


kept = Kept()


async def take(connection: asyncpg.Connection, study: store.StudyRow) -> Loaded:
    """The study's search, for the transaction that has locked the row and will change it.

    Nobody else sees it before it is put into `kept` again, with the stamp of the saved row.
    """
    await kept.returned(study.study_id)
    found = kept.take(study.study_id, study.stamp) if study.revision else None
    return found or await _load(connection, study)


async def ask(
    study: store.StudyRow, loaded: Loaded, question: Callable[[Search], Answer]
) -> Answer:
    """Ask a search that was taken; it is kept again. A question changes nothing that is decided.

    One that may take long is asked in a thread; `take` waits until it is answered. Two questions to
    one search must not be asked at once.
    """
    with kept.lend(study.study_id, study.stamp, loaded):
        if not (loaded.is_new or loaded.search.is_slow):
            return question(loaded.search)
        answer = await asyncio.to_thread(question, loaded.search)
        loaded.is_new = False
        return answer


async def _load(connection: asyncpg.Connection, study: store.StudyRow) -> Loaded:
    instruments.SEARCHES_LOADED.inc()
    asked = await store.asked(connection, study.study_id)
    assert asked is not None, "the study's row was read before"
    spec = messages.read_spec(asked.spec)
    rows = await store.load_trials(connection, study.study_id)
    earlier = await _earlier(connection, spec, asked.warm_start)

    def build() -> Search:
        trials, opened = saved.load_trials(rows)
        status = saved.load_status(study)
        return Search(messages.to_plan(spec, earlier), status, trials, opened)

    search = await asyncio.to_thread(build) if len(rows) >= _MANY else build()
    requests = await store.requests_of(connection, study.study_id) if spec.external else set()
    return Loaded(spec, search, requests)


async def _earlier(
    connection: asyncpg.Connection, spec: StudySpec, warm_start: str
) -> tuple[EarlierStudy, ...]:
    """The finished trials of earlier studies, as many as there were when this one started."""
    found = []
    for study_id, before in json.loads(warm_start):
        asked = await store.asked(connection, study_id)
        if asked is None:
            continue
        rows = await store.completed_trials(connection, study_id, before)
        trials = [saved.load_trial(row) for row in rows]
        study = messages.to_earlier(spec, messages.read_spec(asked.spec), trials)
        log.info("earlier study read", study_id=study_id, read=len(rows), used=len(study.losses))
        found.append(study)
    return tuple(found)
