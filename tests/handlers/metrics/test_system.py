"""Series that pods send of themselves: kept apart from what the job logs."""

# ruff: noqa: F811  (fixtures of other modules)

from functools import partial
from typing import Any

from drivetrain_schemas import system_series
from drivetrain_schemas.metrics import AlertRaised
from services.metrics import streams
from services.metrics.series import names
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.events import handle_batch, make_event
from tests.handlers.metrics.builders import make_samples
from tests.handlers.metrics.test_rungs import loss
from tests.handlers.metrics.test_rungs import metrics as of_trial  # noqa: F401
from tests.handlers.metrics.test_rungs import take as measured
from tests.handlers.metrics.test_streams import client, get, metrics  # noqa: F401

AT = 1_790_000_000
CPU, MEMORY = "system/cpu_percent", "system/memory_bytes"


async def take(metrics: Database, *batches: Any) -> list[Any]:
    handler = partial(streams.take_samples, RunTokens(None))
    return await handle_batch(metrics, handler, *map(make_event, batches))


def system(rank: int = 0, attempt: int = 1, cpu: float = 50.0, at: int = AT) -> Any:
    columns = {CPU: {at: cpu}, MEMORY: {at: 1e9}}
    return make_samples(columns, session=f"system{attempt}", rank=rank, attempt=attempt)


async def test_they_are_listed_and_read_only_where_they_are_asked_for(metrics, client) -> None:
    await take(metrics, make_samples({"loss": {1: 0.5}, "system/mine": {1: 1.0}}), system())
    listed = await get(client, "/series")
    assert [one["name"] for one in listed["series"]] == ["loss", "system/mine"]
    assert listed["num_series"] == 2
    assert set((await get(client, "/samples"))["series"]) == {"loss", "system/mine"}
    of_pod = await get(client, "/series", system=True)
    assert ([one["name"] for one in of_pod["series"]], of_pod["num_series"]) == ([CPU, MEMORY], 2)
    assert set((await get(client, "/samples", system=True))["series"]) == {CPU, MEMORY}
    chart = await get(client, "/chart", name=CPU)
    assert (chart["steps"][0], chart["series"][CPU]["values"]) == ([AT], [50.0])


async def test_the_last_values_of_all_pods_by_pages(metrics, client) -> None:
    pods = [system(rank=rank, cpu=rank) for rank in (0, 4, 8)]
    again = system(rank=4, attempt=2, cpu=99.0, at=AT + 5)
    await take(metrics, *pods, again, make_samples({"loss": {1: 0.5}}, rank=2))
    first = await get(client, "/system", limit=2)
    assert [one["rank"] for one in first["ranks"]] == [0, 4]
    assert first["ranks"][1]["series"] == [
        {"name": CPU, "last_step": AT + 5, "last_value": 99.0},
        {"name": MEMORY, "last_step": AT + 5, "last_value": 1e9},
    ]
    rest = await get(client, "/system", limit=2, from_rank=first["next"])
    assert ([one["rank"] for one in rest["ranks"]], rest["next"]) == ([8], None)


async def test_they_do_not_count_as_names_of_the_job(metrics, client, monkeypatch) -> None:
    monkeypatch.setattr(names, "MAX_SERIES_OF_JOB", 1)
    sent = await take(metrics, make_samples({"loss": {1: 0.5}}), system())
    assert not [event for event in sent if isinstance(event, AlertRaised)]
    assert (await get(client, "/system"))["ranks"]
    (alert,) = await take(metrics, make_samples({"further": {1: 0.5}}, batch=1))
    assert "further" in alert.detail


async def test_their_times_are_no_steps_that_reach_a_rung(of_trial) -> None:
    assert await measured(of_trial, system(), loss(4, batch=0)) == []
    assert await measured(of_trial, loss(12, batch=1)) == [(10, 0.4)]


def test_only_names_of_the_list_are_of_the_platform() -> None:
    assert system_series.is_system_series(system_series.of_device(12, "power_watts"))
    for name in ("system/mine", "system/device_0_colour", "system/cpu_percent ", "my/system/x"):
        assert not system_series.is_system_series(name)
