"""Ask and durable tell at 1,000 trials: `python -m benchmarks.search_ask_durable`.

An external study: each ask and each tell is a command through the real handlers, in a transaction
of its own on an embedded Postgres (inbox, search, rows, event log, outbox). The peer is Optuna's
TPE on SQLite, in the same run: `ask` with all suggestions, and `tell`.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution

from benchmarks.report import Row, options, publish
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import study_id_for
from drivetrain_schemas.studies import StudyAsk, StudyImport
from drivetrain_schemas.trials import TrialTell
from services.hpo.handlers import HANDLERS, REFUSALS, handle_batch
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.processing import EventProcessor
from services.runtime.transaction import Origin
from services.standalone.embedded import running_postgres
from tests.events import make_event, make_record

TITLE = "Ask and tell"
MEASURES = (
    "services/hpo/core",
    "services/hpo/handlers.py",
    "services/hpo/saved.py",
    "services/hpo/searches.py",
    "services/hpo/store.py",
    "services/hpo/work.py",
    "services/runtime/processing.py",
    "services/runtime/transaction.py",
)
NOTES = """
The two commands through the handlers of the search service, each in a transaction of its own with
inbox, rows, event log and outbox, over Postgres. Kafka and the gateway are not in it: over REST,
each also waits for its command on Kafka and for the answer on Kafka, which takes many times as
long. The peer does both in its own process, with SQLite.
"""

NAMES = "abcdef"
STUDY_ID = study_id_for("default", "ask")
KNOWN = 1000
Points = list[dict[str, float]]


def loss_of(point: dict[str, Any]) -> float:
    return sum((float(point[name]) - 0.3) ** 2 for name in NAMES)


def known_points(known: int) -> Points:
    drawn = np.random.default_rng(7).random((known, len(NAMES)))
    return [dict(zip(NAMES, map(float, row), strict=True)) for row in drawn]


async def ours(dsn: str, points: Points, num: int, sampler: str) -> tuple[np.ndarray, float]:
    """Seconds of each ask and of each tell, (num, 2); and of CPU time for both, on average."""
    database = Database(dsn, "hpo", Origin("/drivetrain/hpo", "drivetrain."))
    await database.open(["services.hpo"])
    processor = EventProcessor("hpo", "drivetrain.", HANDLERS, REFUSALS, handle_batch=handle_batch)
    offset = 0

    async def handle(event: Event[Any]) -> None:
        nonlocal offset
        offset += 1
        async with database.transaction() as tx:
            work = processor.plan([make_record(event, offset=offset)])
            assert work is not None
            await work(tx)

    spec = {
        "name": "ask",
        "external": True,
        "metric": {"name": "loss", "goal": "minimize"},
        "space": {name: {"type": "uniform", "low": 0.0, "high": 1.0} for name in NAMES},
        "sampler": sampler,
        "max_trials": len(points) + num,
    }
    trials = [{"hyperparameters": point, "values": [loss_of(point)]} for point in points]
    fields = {"request_id": "ask", "study_id": STUDY_ID, "spec": spec, "trials": trials}
    await handle(make_event(StudyImport.model_validate(fields)))
    seconds, worked = np.empty((num, 2)), time.process_time()
    for place in range(num):
        ask = make_event(StudyAsk(study_id=STUDY_ID, request_id=f"ask-{place}"))
        tell = make_event(TrialTell(study_id=STUDY_ID, number=len(points) + place, values=(0.5,)))
        started = time.perf_counter()
        await handle(ask)
        asked = time.perf_counter()
        await handle(tell)
        seconds[place] = asked - started, time.perf_counter() - asked
    worked = (time.process_time() - worked) / num
    async with database.connection() as connection:
        done = await connection.fetchval("select count(*) from trials where state = 'completed'")
    assert done == len(points) + num
    await database.close()
    return seconds, worked


def optunas(directory: Path, points: Points, num: int) -> list[float]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=f"sqlite:///{directory}/optuna.db", sampler=optuna.samplers.TPESampler(seed=7)
    )
    space: dict[str, BaseDistribution] = {name: FloatDistribution(0.0, 1.0) for name in NAMES}
    study.add_trials(
        [
            optuna.trial.create_trial(params=point, distributions=space, value=loss_of(point))
            for point in points
        ]
    )
    seconds = []
    for _ in range(num):
        started = time.perf_counter()
        trial = study.ask(dict(space))
        study.tell(trial, 0.5)
        seconds.append(time.perf_counter() - started)
    return seconds


def _row(what: str, parts: np.ndarray, worked: float, peer: Sequence[float]) -> Row:
    def text(seconds: Sequence[float] | np.ndarray) -> str:
        median, worst = np.percentile(seconds, [50, 99]) * 1000
        return f"{median:.1f} ms, p99 {worst:.1f} ms"

    own, (ask, tell) = parts.sum(axis=1), np.median(parts, axis=0) * 1000
    p99, of_peer = float(np.percentile(own, 99)), float(np.percentile(peer, 99))
    return Row(
        "search_ask_durable",
        f"ask + durable tell at {what}: median, p99",
        f"{text(own)}; ask {ask:.1f} ms, tell {tell:.1f} ms; {worked * 1000:.1f} ms of CPU time",
        f"{text(peer)} (Optuna TPE, SQLite)",
        p99 / of_peer,
        "p99 at most 5 ms",
        p99 <= 0.005,
    )


async def main() -> None:
    given = options("search_ask_durable", __doc__ or "")
    logs.configure("hpo", "info")
    gc.freeze()  # as a service does
    known, num = (100, 20) if given.quick else (KNOWN, 500)
    points = known_points(known)
    rows = []
    for sampler in ("auto", "tpe"):
        with tempfile.TemporaryDirectory() as name:
            peer = optunas(Path(name), points, num)
            async with running_postgres(Path(name) / "postgres") as postgres:
                found = await ours(postgres.dsn, points, num, sampler)
            rows.append(_row(f"{known:,} trials, {sampler}", *found, peer))
    publish(rows, given, ("optuna", "asyncpg"))


if __name__ == "__main__":
    asyncio.run(main())
