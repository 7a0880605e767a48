"""What one transaction does with studies: lock, load, tell their searches, and write at its end.

However many events a transaction handles, each study is locked and loaded once, and each kind of
row is written by one statement. Nothing is read from rows that the transaction has yet to write:
who needs them calls `write` first.
"""

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.studies import StudySpec
from services.hpo import actions, instruments, saved, searches, spending, store
from services.hpo.core import actions as core
from services.hpo.core import inputs
from services.hpo.core.search import Search
from services.hpo.core.trials import TrialState
from services.runtime.transaction import Tx


@dataclass(slots=True, eq=False)
class Study:
    """A locked study: the row that was read or written last, and what is to be written."""

    row: store.StudyRow
    loaded: searches.Loaded | None = None
    new: dict[int, store.NewTrial] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    details: dict[int, str] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    @property
    def study_id(self) -> str:
        return self.row.study_id

    @property
    def tenant_id(self) -> str:
        return self.row.tenant_id

    @property
    def spec(self) -> StudySpec:
        assert self.loaded is not None
        return self.loaded.spec

    @property
    def search(self) -> Search:
        assert self.loaded is not None
        return self.loaded.search

    @property
    def is_finished(self) -> bool:
        return self.row.is_finished if self.loaded is None else self.search.status.is_finished

    def to_write(self) -> store.StudyChange:
        """What was decided since the last write; it counts as written from now on."""
        self.row = saved.study_row(self.row, self.search, secrets.token_hex(8), len(self.events))
        new = [
            (saved.trial_row(self.search, number, self.details.get(number)), self.new[number])
            for number in sorted(self.new)
        ]
        known = [
            saved.trial_row(self.search, number, self.details.get(number))
            for number in sorted(self.changed - self.new.keys())
        ]
        change = store.StudyChange(
            study=self.row,
            state=self.search.status.state,
            has_more=self.search.has_more,
            num_paused=len(self.search.trials.in_state(TrialState.PAUSED)),
            num_proposed=len(self.search.trials),
            new=new,
            known=known,
            events=tuple(self.events),
        )
        self.new, self.changed, self.details, self.events = {}, set(), {}, []
        return change


class Work:
    """The studies of one transaction."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self.spending = spending.Changes()
        self._studies: dict[str, Study] = {}
        self._jobs: dict[str, store.JobOf] = {}

    async def begin(self, study_ids: Iterable[str], job_ids: Iterable[str]) -> None:
        """Find the trials of these jobs, and lock their studies and these, always in one order."""
        if jobs := sorted(set(job_ids)):
            self._jobs = await store.trials_of_jobs(self.tx.connection, jobs)
        wanted = {*study_ids, *(job.study_id for job in self._jobs.values())}
        if wanted:
            for row in await store.lock_studies(self.tx.connection, sorted(wanted)):
                self._studies[row.study_id] = Study(row)

    async def lock(self, study_id: str) -> Study | None:
        """The study, which nobody else changes until the transaction ends; None: there is none."""
        if study_id not in self._studies:
            for row in await store.lock_studies(self.tx.connection, [study_id]):
                self._studies[study_id] = Study(row)
        return self._studies.get(study_id)

    async def load(self, study: Study) -> searches.Loaded:
        if study.loaded is None:
            study.loaded = await searches.take(self.tx.connection, study.row)
        return study.loaded

    def add(self, row: store.StudyRow) -> Study:
        """A study whose row this transaction has inserted."""
        self._studies[row.study_id] = study = Study(row)
        return study

    def trial_of_job(self, job_id: str) -> store.JobOf | None:
        """The trial that this job runs; of the jobs that `begin` was told about."""
        return self._jobs.get(job_id)

    async def tell(
        self, study: Study, given: inputs.Input, cause: Event[Payload] | None
    ) -> core.Refuse | None:
        """Decide, and emit what was decided; why the request was refused, if it was."""
        loaded = await self.load(study)
        spec, search = loaded.spec, loaded.search
        before, started = search.status, monotonic()
        if loaded.is_new or search.is_slow:
            # Beside the event loop, which goes on meanwhile; nobody else has this search.
            most_ended, decided = await asyncio.to_thread(_decide, search, given)
        else:
            most_ended, decided = _decide(search, given)
        loaded.is_new = False
        instruments.DECISION_SECONDS.labels(spec.sampler.value).observe(monotonic() - started)
        refusals = [one for one in decided if isinstance(one, core.Refuse)]
        # One that was revived and ends at once has the same status, and yet its end to tell.
        if len(refusals) == len(decided) and not search.changed and search.status == before:
            # A refusal alone is no part of the log, however often somebody asks.
            return refusals[0] if refusals else None
        study.events.append(inputs.dump(given, most_ended))
        study.changed |= search.changed
        carried = actions.Carried(self.tx, study.row, spec, search, cause)
        outcome = await actions.carry_out(carried, decided)
        study.new |= outcome.new
        for number, new in outcome.new.items():
            self._jobs[new.job_id] = store.JobOf(study.study_id, number, new.command_event_id)
            if new.request_id is not None:
                loaded.requests.add(new.request_id)
        study.details |= outcome.details
        if any(isinstance(one, actions.ENDS) for one in decided):
            await self.write()
            await actions.finish(carried, decided)
        return outcome.refused

    async def write(self) -> None:
        """Write what was decided and was not written yet."""
        changed = [study for study in self._studies.values() if study.events]
        if changed:
            await store.save(self.tx.connection, [study.to_write() for study in changed])

    async def end(self) -> None:
        """Write everything; the searches are kept for the next transaction."""
        await self.write()
        await self.spending.write(self.tx.connection)
        for study in self._studies.values():
            if study.loaded is not None:
                searches.kept.put(study.study_id, study.row.stamp, study.loaded)


def _decide(search: Search, given: inputs.Input) -> tuple[int, tuple[core.Action, ...]]:
    """How many paused trials could end, and what was decided."""
    most_ended = search.most_ended_with(given)
    return most_ended, search.on(given, most_ended)
