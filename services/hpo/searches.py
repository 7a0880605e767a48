"""One event of a study: load its search, decide, carry it out, save, in the handler's transaction.

The last studies' searches stay in memory, so an event costs what changed and not the history. Each
is guarded by the stamp on the study's row, which is locked and new with each saved state: a search
that went further in a transaction that failed, or that another replica has moved, is loaded again.
"""

import json
import secrets
from collections import OrderedDict
from time import monotonic

import asyncpg

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.studies import StudySpec
from services.hpo import actions, instruments, messages, saved, store
from services.hpo.core import actions as core
from services.hpo.core import inputs
from services.hpo.core.search import Search
from services.hpo.core.trials import EarlierStudy
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()

MAX_SEARCHES = 64

_loaded: OrderedDict[str, tuple[str, StudySpec, Search]] = OrderedDict()


async def tell(
    tx: Tx, study: store.StudyRow, given: inputs.Input, cause: Event[Payload] | None
) -> tuple[store.StudyRow, actions.Outcome]:
    """The study, which is locked, after this event."""
    spec, search = await _search_of(tx.connection, study)
    # Whoever finds it half way must load it again.
    _loaded.pop(study.study_id, None)
    number_before, status_before = len(search.trials), search.status
    started = monotonic()
    decided = search.on(given)
    instruments.DECISION_SECONDS.labels(spec.sampler.value).observe(monotonic() - started)
    if not search.changed and search.status == status_before:
        # A refusal alone is no part of the log, however often somebody asks.
        _keep(study, spec, search)
        refused = next((one for one in decided if isinstance(one, core.Refuse)), None)
        return study, actions.Outcome(refused=refused)
    after = saved.study_row(study, search, secrets.token_hex(8))
    carried = actions.Carried(tx, after, spec, search, cause)
    outcome = await actions.carry_out(carried, decided)
    new = [
        (saved.trial_row(search, number, outcome.details.get(number)), outcome.new[number])
        for number in range(number_before, len(search.trials))
    ]
    known = [
        saved.trial_row(search, number, outcome.details.get(number))
        for number in sorted(search.changed)
        if number < number_before
    ]
    if new:
        await store.insert_trials(tx.connection, study.study_id, new)
    if known:
        await store.save_trials(tx.connection, study.study_id, known)
    await store.save_study(tx.connection, after, len(search.trials), inputs.dump(given))
    await actions.finish(carried, decided)
    _keep(after, spec, search)
    return after, outcome


async def read(connection: asyncpg.Connection, study: store.StudyRow) -> tuple[StudySpec, Search]:
    """The study's search, not to be told anything.

    In a transaction that has locked the study, or sees one state of the tables.
    """
    spec, search = await _search_of(connection, study)
    _keep(study, spec, search)
    return spec, search


def _keep(study: store.StudyRow, spec: StudySpec, search: Search) -> None:
    _loaded[study.study_id] = (study.stamp, spec, search)
    _loaded.move_to_end(study.study_id)
    while len(_loaded) > MAX_SEARCHES:
        _loaded.popitem(last=False)


async def _search_of(
    connection: asyncpg.Connection, study: store.StudyRow
) -> tuple[StudySpec, Search]:
    known = _loaded.get(study.study_id)
    if known is not None and known[0] == study.stamp and study.revision > 0:
        return known[1], known[2]
    instruments.SEARCHES_LOADED.inc()
    spec = messages.read_spec(study.spec)
    trials, opened = saved.load_trials(await store.load_trials(connection, study.study_id))
    plan = messages.to_plan(spec, await _earlier(connection, spec, study.warm_start))
    status = saved.load_status(study, messages.to_numbers(spec))
    return spec, Search(plan, status, trials, opened)


async def _earlier(
    connection: asyncpg.Connection, spec: StudySpec, warm_start: str
) -> tuple[EarlierStudy, ...]:
    """The finished trials of earlier studies, as many as there were when this one started."""
    found = []
    for study_id, before in json.loads(warm_start):
        earlier = await store.get_study(connection, study_id)
        if earlier is None:
            continue
        rows = await store.completed_trials(connection, study_id, before)
        trials = [saved.load_trial(row) for row in rows]
        study = messages.to_earlier(spec, messages.read_spec(earlier.spec), trials)
        log.info("earlier study read", study_id=study_id, read=len(rows), used=len(study.losses))
        found.append(study)
    return tuple(found)
