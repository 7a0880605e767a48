"""Records of `windows` into rows and alerts: the newest state of a source counts, once."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from faust.types import TP

from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import pod_id_for, run_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec
from drivetrain_schemas.metrics import AlertCleared, AlertKind, AlertRaised
from drivetrain_schemas.runs import RunFailed, RunStarted
from drivetrain_schemas.system_series import STEP_WORK
from services.metrics.core.windows import WINDOW_SECONDS, Source, add_batch, add_heartbeat
from services.metrics.handlers import HANDLERS
from services.metrics.series.queries import WindowsQuery
from services.metrics.windows import pages as window_pages
from services.metrics.windows import progress, records
from services.metrics.windows.records import SourceState
from services.metrics.windows.stored import take_windows
from services.runtime.bus import Partition, Record
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import emitted, handle, make_event
from tests.handlers.metrics.builders import JOB

AT = datetime(2026, 1, 1, tzinfo=UTC)
RUN: dict[str, Any] = {"job_id": JOB, "run_id": run_id_for(JOB, 1), "attempt": 1, "fence": 1}


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    return await database("metrics")


def of_rank(source: Source, version: int, rank: int = 0) -> SourceState:
    return SourceState(
        tenant_id="default",
        job_id=JOB,
        run_id=RUN["run_id"],
        attempt=1,
        rank=rank,
        partition=0,
        version=version,
        source=source,
    )


def as_record(state: SourceState) -> Record:
    return Record("drivetrain.windows", 0, 0, 0, state.key, records.write(state))


async def take(metrics: Database, *states: SourceState) -> list[Payload]:
    """Several states as one batch. Returns what was emitted."""
    before = len(await emitted(metrics))
    async with metrics.transaction() as tx:
        assert not await take_windows(tx, [as_record(state) for state in states])
    return [event.payload for event in await emitted(metrics)][before:]


def losing(*means: float, name: str = "loss") -> Source:
    """One window after another, with this loss in each, and its steps."""
    source = Source()
    for number, mean in enumerate(means):
        at = float(number * WINDOW_SECONDS)
        source = add_batch(source, at, 0, "s", number, {name: ([number], [mean])})
    return source


async def test_a_loss_that_diverges_is_raised_once_and_cleared_at_the_end(
    metrics: Database,
) -> None:
    await handle(metrics, HANDLERS, make_event(RunStarted(**RUN, started_at=AT)))
    states = []
    means = [1.0] * 4 + [5.0] * 6
    for number in range(1, len(means) + 1):
        states.append(of_rank(losing(*means[:number]), number))
    told = await take(metrics, *states[:4])
    assert told == [], "the newest windows are not closed yet"
    told += await take(metrics, *states[4:], *states[2:5])
    told += await take(metrics, *states)
    [raised] = told
    assert isinstance(raised, AlertRaised)
    assert (raised.alert, raised.series, raised.value) == (AlertKind.DIVERGING, "loss", 5.0)
    ended = await handle(
        metrics, HANDLERS, make_event(RunFailed(**RUN, ended_at=AT, detail="stopped", last_log=""))
    )
    [cleared] = ended
    assert isinstance(cleared, AlertCleared)
    assert cleared.alert is AlertKind.DIVERGING


MINIMIZES = {"metric": {"name": "validation_loss", "goal": "minimize"}}


@pytest.mark.parametrize(
    ("spec", "series", "is_raised"),
    [
        ({}, "kl_loss", False),
        (MINIMIZES, "validation_loss", True),
        (MINIMIZES, "loss", False),
        ({"metric": {"name": "accuracy", "goal": "maximize"}}, "loss", True),
        ({"alerts": {"diverging": ["kl_loss"]}}, "kl_loss", True),
        ({"alerts": {"diverging": "off"}}, "loss", False),
        ({"alerts": {"diverging": False}}, "loss", False),
    ],
)
async def test_only_the_losses_that_a_job_wants_watched_raise_an_alert(
    metrics: Database, spec: dict[str, Any], series: str, is_raised: bool
) -> None:
    """Others may rise in a healthy run, as an adversary's does."""
    wanted = JobSpec.model_validate({"name": "gan", "command": ["true"], **spec})
    queued = JobQueued(job_id=JOB, request_id="r", spec=wanted, queued_at=AT)
    await handle(metrics, HANDLERS, make_event(queued))
    await handle(metrics, HANDLERS, make_event(RunStarted(**RUN, started_at=AT)))
    means = [1.0] * 4 + [5.0] * 6
    told = []
    for number in range(1, len(means) + 1):
        told += await take(metrics, of_rank(losing(*means[:number], name=series), number))
    assert [one.series for one in told if isinstance(one, AlertRaised)] == [series] * is_raised


async def test_the_slowest_rank_is_told_by_its_own_work(metrics: Database) -> None:
    states = []
    for rank, seconds in enumerate((0.5, 0.25, 0.25)):
        source = Source()
        for number, value in enumerate((seconds, seconds * 2)):
            columns = {STEP_WORK: ([number], [value])}
            source = add_batch(source, float(WINDOW_SECONDS + number), rank, "s", number, columns)
        states.append(of_rank(source, 1, rank))
    await take(metrics, *states)
    async with metrics.connection() as connection:
        [window] = (await window_pages.page(connection, WindowsQuery(job_id=JOB)))["windows"]
    assert (window["slowest_rank"], window["straggler_ratio"]) == (0, 2.0)
    assert window["series"] == {}, "it is no series of the program"


async def test_windows_are_read_by_job_all_sources_together(metrics: Database) -> None:
    pods = []
    for index, speed in enumerate((10, 10, 5)):
        source = Source()
        for at in range(0, 60, 5):
            source = add_heartbeat(source, float(at), at * speed)
        pod_id = pod_id_for(JOB, 1, index)
        state = of_rank(source, 1)
        pods.append(
            SourceState(
                **{
                    **{name: getattr(state, name) for name in state.__struct_fields__},
                    "rank": None,
                    "pod_id": pod_id,
                }
            )
        )
    await take(metrics, of_rank(losing(1.0, 3.0), 1), *pods)
    # An older version of a source changes nothing.
    await take(metrics, of_rank(losing(9.0), 0))
    async with metrics.connection() as connection:
        page = await window_pages.page(connection, WindowsQuery(job_id=JOB))
        later = await window_pages.page(connection, WindowsQuery(job_id=JOB, after=0, limit=1))
    assert page["window_seconds"] == WINDOW_SECONDS
    second = page["windows"][-1]
    assert (second["steps_per_second"], second["slowest_share"], second["num_pods"]) == (10, 0.5, 3)
    assert next(iter(second["pods"])) == pod_id_for(JOB, 1, 2)
    assert second["series"]["loss"]["mean"] == 3.0
    assert later["windows"] == [second]


async def test_a_partition_that_comes_back_is_not_behind_where_it_was_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another replica has read it meanwhile: without new records nothing is to be done."""
    monkeypatch.setattr(progress, "CHECK_SECONDS", 0)
    assigned = iter([{TP("metrics", 0)}, {TP("metrics", 1)}, *[{TP("metrics", 0)}] * 200])
    consumer = SimpleNamespace(assignment=lambda: next(assigned, None), highwater=lambda _: 200)
    left = {Partition("metrics", 0): 100}
    folder: Any = SimpleNamespace(topics={"metrics"}, positions=left)
    with pytest.raises(TypeError, match="NoneType"):  # after the last assignment
        await progress.watch(SimpleNamespace(consumer=consumer), folder, stuck_seconds=0)
