"""Pods share one account of Kafka: samples and logs count only with the token of their run."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pydantic import SecretStr

from drivetrain_schemas.ids import job_id_for, run_id_for
from drivetrain_schemas.metrics import AlertRaised, LaterRun, LogsWritten, SamplesRecorded
from drivetrain_schemas.runs import RunStarted
from services.metrics import streams
from services.metrics.handlers import HANDLERS
from services.metrics.windows.folding import observe
from services.runtime.instruments import FORGED
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import emitted, handle, make_event, make_record
from tests.handlers.metrics.builders import JOB, NOW, make_logs, make_samples

TOKENS = RunTokens(SecretStr("a-key-that-only-services-have"))
OWN = TOKENS.of(run_id_for(JOB, 1), 1)
OTHER_JOB = job_id_for("default", "another")
FORGED_BATCHES: dict[str, tuple[dict[str, Any], str | None]] = {
    "without a token": ({}, None),
    "with an invented token": ({}, "0" * 32),
    "of another run of the job": ({"attempt": 2}, OWN),
    "of an older fence": ({"fence": 2}, OWN),
    "of another job": ({"job_id": OTHER_JOB}, OWN),
    "of another job under the own run": ({"job_id": OTHER_JOB, "run_id": run_id_for(JOB, 1)}, OWN),
}


def num_forged(payload: SamplesRecorded | LogsWritten) -> float:
    return FORGED.labels(payload.kind.type)._value.get()


@pytest.mark.parametrize("forged", FORGED_BATCHES)
@pytest.mark.parametrize("stream", ["samples", "logs"])
async def test_a_pod_cannot_write_for_another_run(
    database: OpenDatabase, stream: str, forged: str
) -> None:
    """Nor take the place of a true batch with the same key."""
    metrics = await database("metrics")
    fields, token = FORGED_BATCHES[forged]
    make, take, count = {
        "samples": (
            partial(make_samples, {"loss": {1: 0.5}}),
            streams.take_samples,
            "select count(*) from chunks",
        ),
        "logs": (
            partial(make_logs, ["a line"]),
            streams.take_logs,
            "select count(*) from log_chunks",
        ),
    }[stream]
    false, true = make(**fields), make()
    before = num_forged(false)
    records = [
        make_record(replace(make_event(payload), run_token=token), offset=offset)
        for offset, (payload, token) in enumerate([(false, token), (true, OWN)])
    ]
    async with metrics.transaction() as tx:
        assert await take(TOKENS, tx, records[:1]) == []
        assert await tx.connection.fetchval(count) == 0
        assert await take(TOKENS, tx, records) == []
        assert await tx.connection.fetchval(count) == 1
    assert num_forged(false) - before == 2


def later(attempt: int, fence: int) -> dict[str, Any]:
    return {"resent_by": LaterRun(attempt=attempt, fence=fence)}


@pytest.mark.parametrize(
    ("batch", "token", "num_stored"),
    [
        pytest.param(later(2, 7), TOKENS.of(run_id_for(JOB, 2), 7), 1, id="a later run"),
        pytest.param(later(2, 7), OWN, 0, id="without the later run's token"),
        pytest.param(later(2, 8), TOKENS.of(run_id_for(JOB, 2), 7), 0, id="an older fence"),
        pytest.param(later(1, 1) | {"attempt": 2}, OWN, 0, id="an earlier run"),
        pytest.param(later(2, 7), TOKENS.of(run_id_for(OTHER_JOB, 2), 7), 0, id="another job"),
        pytest.param(
            later(2, 7) | {"run_id": run_id_for(OTHER_JOB, 1)},
            TOKENS.of(run_id_for(JOB, 2), 7),
            0,
            id="under another job's run",
        ),
    ],
)
async def test_only_a_later_run_of_a_job_may_send_what_an_earlier_one_left_in_a_checkpoint(
    database: OpenDatabase, batch: dict[str, Any], token: str | None, num_stored: int
) -> None:
    metrics = await database("metrics")
    payload = make_samples({"loss": {1: 0.5}}, **batch)
    record = make_record(replace(make_event(payload), run_token=token))
    async with metrics.transaction() as tx:
        assert await streams.take_samples(TOKENS, tx, [record]) == []
        rows = await tx.connection.fetch("select * from chunks")
    assert len(rows) == num_stored
    assert observe(TOKENS, record) is None


async def test_an_alert_is_of_the_tenant_of_its_run_whatever_the_batch_claims(
    database: OpenDatabase,
) -> None:
    """Else a pod would call the webhooks of another tenant, and get past its own silences."""
    metrics = await database("metrics")
    started = RunStarted(job_id=JOB, run_id=run_id_for(JOB, 1), attempt=1, fence=1, started_at=NOW)
    await handle(metrics, HANDLERS, make_event(started, tenant_id="its-own"))
    claims = make_record(make_event(make_samples({"loss": {1: "nan"}}, tenant_id="another")))
    async with metrics.transaction() as tx:
        assert await streams.take_samples(RunTokens(None), tx, [claims]) == []
    (raised,) = await emitted(metrics)
    assert isinstance(raised.payload, AlertRaised)
    assert (raised.tenant_id, raised.payload.tenant_id) == ("its-own", "its-own")
