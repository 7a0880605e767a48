"""One study of 20,000 trials through the real handlers: `python -m benchmarks.search_scale`.

Every event of the study is handled as the consumer does (inbox, search, rows, event log, outbox) on
an embedded Postgres, with logging on, in transactions of up to 50 events; the outbox is emptied as
the relay would. Shows results per second, for the first and the last tenth, and the memory.
Ray Tune's published figure is 50 to 100 results per second.
"""

import asyncio
import gc
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Row, options, publish
from drivetrain_schemas.allocations import AllocationGranted
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import allocation_id_for, job_id_for, run_id_for, study_id_for
from drivetrain_schemas.jobs import JobStopped, JobSucceeded
from drivetrain_schemas.metrics import TrialMeasured
from drivetrain_schemas.specs import TrialOf
from drivetrain_schemas.studies import StudySubmit
from services.hpo import store
from services.hpo.handlers import HANDLERS, REFUSALS, handle_batch
from services.hpo.saved import load_trials
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.processing import EventProcessor
from services.runtime.transaction import Origin
from services.standalone.embedded import running_postgres
from tests.events import make_event, make_record

TITLE = "A study of many trials"
MEASURES = (
    "services/hpo/core",
    "services/hpo/handlers.py",
    "services/hpo/saved.py",
    "services/hpo/searches.py",
    "services/hpo/store.py",
    "services/hpo/work.py",
)
NOTES = """
The handlers of the search service over Postgres, in transactions of up to 50 events, with
logging; Kafka, scheduler and the trials themselves are not in it. Random sampling of six
parameters with a median pruner and 200 trials at a time. The peer is Ray Tune's published figure,
not measured here.
"""

STUDY_ID = study_id_for("default", "scale")
BATCH = 50
PARALLEL = 200
PEER_PER_SECOND = 100.0
ENDED_AT = "2026-01-01T00:00:00Z"
SPEC = {
    "name": "scale",
    "job": {
        "name": "trial",
        "command": ["train"],
        "max_steps": 100,
        "metric": {"name": "loss", "goal": "minimize"},
    },
    "space": {
        name: {"type": "uniform", "low": 0.001, "high": 1.0, "log": True} for name in "abcdef"
    },
    "sampler": "random",
    "pruner": {"type": "median", "every_steps": 50},
    "max_parallel_trials": PARALLEL,
}


@dataclass
class Study:
    database: Database
    processor: EventProcessor
    offset: int = 0

    async def handle(self, events: list[Event[Any]]) -> None:
        """As the consumer does: one transaction for the batch."""
        records = [make_record(event, offset=self.offset + n) for n, event in enumerate(events)]
        self.offset += len(events)
        async with self.database.transaction() as tx:
            work = self.processor.plan(records)
            assert work is not None
            await work(tx)
        async with self.database.connection() as connection:
            await connection.execute("delete from outbox")

    async def open_trials(self) -> tuple[list[int], set[int]]:
        """Trials that have not ended, and those of them that are asked to stop."""
        async with self.database.connection() as connection:
            rows = await connection.fetch(
                "select number, opened from trials where study_id = $1 and opened is not null "
                "order by number",
                STUDY_ID,
            )
        stopping = {row["number"] for row in rows if '"stopping"' in row["opened"]}
        return [row["number"] for row in rows], stopping


def job(number: int) -> dict[str, Any]:
    job_id = job_id_for("default", f"{STUDY_ID}/{number}")
    return {"job_id": job_id, "trial": TrialOf(study_id=STUDY_ID, number=number)}


def measured(number: int) -> Event[Any]:
    job_id = job(number)["job_id"]
    return make_event(
        TrialMeasured(
            study_id=STUDY_ID,
            number=number,
            job_id=job_id,
            run_id=run_id_for(job_id, 1),
            attempt=1,
            step=50,
            value=value_of(number),
        )
    )


def ended(number: int, is_stopped: bool) -> Event[Any]:
    fields = {**job(number), "finished_at": ENDED_AT}
    if is_stopped:
        return make_event(JobStopped.model_validate({**fields, "reason": "by the search"}))
    result = {"step": 100, "metrics": {"loss": value_of(number)}}
    return make_event(JobSucceeded.model_validate({**fields, "attempts": 1, "result": result}))


def granted(number: int) -> Event[Any]:
    """Devices of the trial: as many trials wait as hold some, so the study uses all its places."""
    job_id = job(number)["job_id"]
    return make_event(
        AllocationGranted.model_validate(
            {
                "job_id": job_id,
                "run_id": run_id_for(job_id, 1),
                "attempt": 1,
                "fence": 1,
                "allocation_id": allocation_id_for(job_id, 1),
                "tenant_id": "default",
                "pool": "default",
                "device_type": "cpu",
                "slots": [{"node_id": "n1", "slot": 0}],
                "granted_at": ENDED_AT,
            }
        )
    )


def value_of(number: int) -> float:
    return (number * 7919 % 10_007) / 10_007


def memory_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def measure(num_trials: int, dsn: str) -> Row:
    database = Database(dsn, "hpo", Origin("/drivetrain/hpo", "drivetrain."))
    await database.open(["services.hpo"])
    study = Study(
        database,
        EventProcessor("hpo", "drivetrain.", HANDLERS, REFUSALS, handle_batch=handle_batch),
    )
    spec = {**SPEC, "max_trials": num_trials}
    submit = StudySubmit.model_validate({"request_id": "scale", "study_id": STUDY_ID, "spec": spec})
    await study.handle([make_event(submit)])
    rates, memories, worked = [], [], 0.0
    judged: set[int] = set()
    while True:
        numbers, stopping = await study.open_trials()
        if not numbers:
            break
        new = [number for number in numbers if number not in judged]
        judged |= set(new)
        for first in range(0, len(new), BATCH):
            await study.handle([granted(number) for number in new[first : first + BATCH]])
        events = [measured(number) for number in new]
        if not events:
            events = [ended(number, number in stopping) for number in numbers]
        started, before = time.perf_counter(), time.process_time()
        for first in range(0, len(events), BATCH):
            await study.handle(events[first : first + BATCH])
        worked += time.process_time() - before
        rates.append((len(events), time.perf_counter() - started))
        memories.append(memory_mib())
    async with database.connection() as connection:
        trials, _ = load_trials(await store.load_trials(connection, STUDY_ID))
    assert len(trials) == num_trials
    assert all(trial.state.is_final for trial in trials)
    await database.close()
    return _row(num_trials, rates, worked, memories)


def _row(
    num_trials: int, rates: list[tuple[int, float]], worked: float, memories: list[float]
) -> Row:
    tenth = max(1, len(rates) // 10)

    def per_second(part: list[tuple[int, float]]) -> float:
        return sum(number for number, _ in part) / sum(seconds for _, seconds in part)

    whole, first, last = per_second(rates), per_second(rates[:tenth]), per_second(rates[-tenth:])
    ours = (
        f"{whole:.0f}/s ({first:.0f} in the first tenth, {last:.0f} in the last); "
        f"{worked / sum(number for number, _ in rates) * 1000:.2f} ms of CPU time each; "
        f"{memories[tenth]:.0f} MiB then {memories[-1]:.0f} MiB"
    )
    return Row(
        "search_scale",
        f"{num_trials:,} trials in one study: results handled per second",
        ours,
        "50-100/s (Ray Tune, published)",
        whole / PEER_PER_SECOND,
        "at least 500/s",
        whole >= 500,
    )


async def main() -> None:
    given = options("search_scale", __doc__ or "")
    logs.configure("hpo", "info")
    gc.freeze()  # as a service does
    with tempfile.TemporaryDirectory() as name:
        async with running_postgres(Path(name)) as postgres:
            row = await measure(400 if given.quick else 20_000, postgres.dsn)
    publish([row], given, ("asyncpg",))


if __name__ == "__main__":
    asyncio.run(main())
