"""A run that logs without end is cut to its quota, with an exact count; others lose nothing."""

# ruff: noqa: F811  (fixtures of another module)

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.metrics import AlertRaised
from drivetrain_schemas.runs import RunStarting
from services.metrics import quotas as quotas_module
from services.metrics import streams
from services.metrics.core.quota import BURST_SECONDS
from services.metrics.handlers import HANDLERS
from services.metrics.instruments import MEDIA_LEFT_OUT
from services.metrics.quotas import Quotas, Rates
from services.runtime.bus import Record
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.events import emitted, handle, make_event, make_record
from tests.handlers.metrics.builders import JOB, make_logs, make_samples
from tests.handlers.metrics.test_media import make_media
from tests.handlers.metrics.test_streams import client, metrics  # noqa: F401

OTHER = "job_" + "o" * 26
RATE = 1000
BURST = int(RATE * BURST_SECONDS)
SAMPLES_A_BATCH = 100
TOKENS = RunTokens(None)


def samples(job_id: str, batch: int, at: float, num: int = SAMPLES_A_BATCH) -> Record:
    values = dict.fromkeys(range(batch * num, (batch + 1) * num), 0.5)
    return at_time(make_samples({"loss": values}, job_id=job_id, batch=batch), at)


def at_time(payload: Payload, at: float) -> Record:
    return replace(make_record(make_event(payload)), timestamp_ms=int(at * 1000))


async def take(
    metrics: Database, records: Sequence[Record], quotas: Quotas, stream: Any = streams.take_samples
) -> None:
    async with metrics.transaction() as tx:
        assert not await stream(TOKENS, tx, records, quotas=quotas)


async def numbers(client: httpx.AsyncClient, job_id: str) -> tuple[int, int]:
    """The samples that are stored, and those that were left out."""
    found = (await client.get("/series", params={"job_id": job_id})).json()
    return sum(one["num_samples"] for one in found["series"]), found["num_samples_left_out"]


async def test_a_flood_is_cut_and_counted_and_a_run_beside_it_loses_nothing(
    metrics: Database,
    client: httpx.AsyncClient,
) -> None:
    """Twice: what is delivered again is neither stored nor counted again."""
    quotas = Quotas(Rates(RATE))
    num_batches, seconds = 400, 4.0
    flood = [samples(JOB, n, n * seconds / num_batches) for n in range(num_batches)]
    calm = [samples(OTHER, n, float(n), num=1) for n in range(int(seconds))]
    in_order = sorted((*flood, *calm), key=lambda record: record.timestamp_ms)
    for first in range(0, len(in_order), 50):
        await take(metrics, in_order[first : first + 50], quotas)
    await take(metrics, in_order, quotas)
    stored, left_out = await numbers(client, JOB)
    assert stored + left_out == num_batches * SAMPLES_A_BATCH
    assert BURST <= stored <= BURST + RATE * seconds + SAMPLES_A_BATCH
    assert await numbers(client, OTHER) == (len(calm), 0)
    raised = [event.payload for event in await emitted(metrics)]
    assert [(one.job_id, one.alert) for one in raised if isinstance(one, AlertRaised)] == [
        (JOB, "samples_dropped")
    ]


async def test_a_transaction_that_is_rolled_back_takes_nothing_of_the_quota(
    metrics: Database,
    client: httpx.AsyncClient,
) -> None:
    quotas = Quotas(Rates(RATE))
    batches = [samples(JOB, n, 0.0) for n in range(BURST // SAMPLES_A_BATCH)]

    async def fails(*given: Any, **kwargs: Any) -> None:
        await streams.take_samples(*given, **kwargs)
        raise RuntimeError("the database is down")

    with pytest.raises(RuntimeError, match="down"):
        await take(metrics, batches, quotas, fails)
    await take(metrics, batches, quotas)
    assert await numbers(client, JOB) == (BURST, 0)


async def test_a_series_of_a_batch_counts_as_several_samples(
    metrics: Database,
    client: httpx.AsyncClient,
) -> None:
    """Rows cost more than samples: a flood of batches with one sample each is cut too."""
    batches = [samples(JOB, n, 0.0, num=1) for n in range(BURST)]
    await take(metrics, batches, Quotas(Rates(RATE)))
    stored, left_out = await numbers(client, JOB)
    assert (stored, left_out) == (BURST // 10, BURST - BURST // 10)


async def start(metrics: Database, tenants: dict[str, str]) -> None:
    for job_id, tenant_id in tenants.items():
        starting = RunStarting(
            job_id=job_id,
            run_id=run_id_for(job_id, 1),
            attempt=1,
            fence=1,
            allocation_id=f"alloc_{job_id.removeprefix('job_')}_1",
            num_pods=1,
        )
        await handle(metrics, HANDLERS, make_event(starting, tenant_id=tenant_id))


async def test_the_runs_of_a_tenant_share_its_quota_whatever_they_claim(
    metrics: Database,
    client: httpx.AsyncClient,
) -> None:
    """The tenant of a run is the one of the scheduler's events."""
    jobs = ["job_" + letter * 26 for letter in "abc"]
    await start(metrics, dict(zip(jobs, ("noisy", "noisy", "calm"), strict=True)))
    quotas = Quotas(Rates(of_run=RATE * 100, of_tenant=RATE))
    num = BURST // SAMPLES_A_BATCH
    for job_id in jobs:
        await take(metrics, [samples(job_id, n, 0.0) for n in range(num)], quotas)
    assert [await numbers(client, job_id) for job_id in jobs] == [
        (BURST, 0),
        (0, BURST),
        (BURST, 0),
    ]


async def test_a_tenant_under_its_quota_loses_nothing_when_its_partitions_are_read_one_by_one(
    metrics: Database,
    client: httpx.AsyncClient,
) -> None:
    """As after an outage: the second run's records are older than what was read last."""
    jobs = ["job_" + letter * 26 for letter in "de"]
    await start(metrics, dict.fromkeys(jobs, "calm"))
    quotas = Quotas(Rates(of_run=RATE, of_tenant=RATE))
    num = 200
    for job_id in jobs:
        await take(metrics, [samples(job_id, n, float(n)) for n in range(num)], quotas)
    assert [await numbers(client, job_id) for job_id in jobs] == [(num * SAMPLES_A_BATCH, 0)] * 2


async def test_lines_beyond_the_quota_are_counted_in_bytes(
    metrics: Database,
    client: httpx.AsyncClient,
) -> None:
    line = "x" * 2000
    num = 2 * BURST // len(line)
    flood = [at_time(make_logs([line], batch=n, first_line=n), 0.0) for n in range(num)]
    other = at_time(make_logs(["still here"], job_id=OTHER, num_dropped_bytes=3), 0.0)
    take_logs = partial(take, metrics, quotas=Quotas(Rates(RATE)), stream=streams.take_logs)
    await take_logs([*flood, other])
    await take_logs([*flood, other])
    page = (await client.get("/logs", params={"job_id": JOB})).json()
    assert (page["num_lines"], page["num_dropped_bytes"]) == (num // 2, BURST)
    page = (await client.get("/logs", params={"job_id": OTHER})).json()
    assert (page["num_lines"], page["num_dropped_bytes"]) == (1, 3)
    raised = {event.payload.job_id: event.payload for event in await emitted(metrics)}
    assert {job_id: one.alert for job_id, one in raised.items()} == {
        JOB: "log_dropped",
        OTHER: "log_dropped",
    }
    assert f"more than {RATE:,} bytes of lines a second" in raised[JOB].detail
    assert "logs.kib_per_second" in raised[OTHER].detail


async def test_a_flood_of_media_is_cut_and_told_once_and_a_run_beside_it_loses_nothing(
    metrics: Database,
    client: httpx.AsyncClient,
) -> None:
    """They are on the topic of the samples, which are stored behind them."""
    rate = 3
    before = MEDIA_LEFT_OUT._value.get()
    flood = [at_time(make_media("a", n, number=n), 0.0) for n in range(100)]
    calm = [at_time(make_media("a", n, number=n, job_id=OTHER), 0.0) for n in range(3)]
    take_media = partial(streams.take_samples, of_media=Quotas(Rates(rate)))
    await take(metrics, [*flood[:50], *calm, samples(JOB, 1, 0.0)], Quotas(Rates(RATE)), take_media)
    await take(metrics, flood[50:], Quotas(Rates(RATE)), take_media)
    num = int(rate * BURST_SECONDS)
    for job_id, steps in ((JOB, num), (OTHER, len(calm))):
        answer = await client.get("/media", params={"job_id": job_id})
        assert [one["num_steps"] for one in answer.json()["names"]] == [steps]
    assert MEDIA_LEFT_OUT._value.get() - before == len(flood) - num
    assert await numbers(client, JOB) == (SAMPLES_A_BATCH, 0)
    (alert,) = [event.payload for event in await emitted(metrics)]
    assert isinstance(alert, AlertRaised)
    assert (alert.job_id, alert.alert) == (JOB, "samples_dropped")
    assert "3 pictures, tables and so on a second" in alert.detail


async def test_buckets_that_are_full_again_are_forgotten(
    metrics: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quotas_module, "MAX_BUCKETS", 2)
    quotas = Quotas(Rates(RATE))
    jobs = ["job_" + letter * 26 for letter in "abc"]
    for number, job_id in enumerate(jobs):
        await take(metrics, [samples(job_id, 0, number * BURST_SECONDS)], quotas)
    assert len(quotas._buckets) == 1
