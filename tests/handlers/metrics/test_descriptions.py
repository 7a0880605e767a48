"""What a pod says of its surroundings becomes one event of its run."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pydantic import SecretStr

from drivetrain_schemas.descriptions import PodDescribed, Surroundings
from drivetrain_schemas.envelope import MAX_EVENT_BYTES
from drivetrain_schemas.ids import run_id_for
from services.metrics import handlers
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import emitted, handle_batch, make_event, make_record
from tests.handlers.metrics.builders import JOB

TOKENS = RunTokens(SecretStr("a-key-that-only-services-have"))
take = partial(handlers.take_reports, RunTokens(None))


def make_described(number: int = 1, attempt: int = 1, **fields: Any) -> PodDescribed:
    said = {"python": "3.11", "platform": "Linux", "entry_point": "train.py", **fields}
    return PodDescribed(
        tenant_id="default",
        job_id=JOB,
        run_id=run_id_for(JOB, attempt),
        attempt=attempt,
        fence=attempt,
        pod_id=f"pod_{JOB.removeprefix('job_')}_{attempt}_0",
        number=number,
        surroundings=Surroundings.model_validate(said),
    )


async def test_each_description_is_emitted_once_and_an_older_one_never_after_it(
    database: OpenDatabase,
) -> None:
    metrics = await database("metrics")
    first, second = make_described(1), make_described(2, data=[{"uri": "s3://x/y"}])
    await handle_batch(metrics, take, make_event(first))
    await handle_batch(metrics, take, make_event(second), make_event(first), make_event(second))
    await handle_batch(metrics, take, make_event(make_described(1, attempt=2)))
    found = [event.payload for event in await emitted(metrics)]
    assert [(one.kind.type, one.attempt, one.number) for one in found] == [
        ("run.described", 1, 1),
        ("run.described", 1, 2),
        ("run.described", 2, 1),
    ]
    assert found[1].surroundings == second.surroundings


@pytest.mark.parametrize("token", [None, "0" * 32])
async def test_a_pod_describes_only_its_own_run(database: OpenDatabase, token: str | None) -> None:
    metrics = await database("metrics")
    forged = replace(make_event(make_described()), run_token=token)
    own = TOKENS.of(run_id_for(JOB, 1), 1)
    true = replace(make_event(make_described(python="3.12")), run_token=own)
    async with metrics.transaction() as tx:
        await handlers.take_reports(TOKENS, tx, [make_record(forged), make_record(true, offset=1)])
    (event,) = await emitted(metrics)
    assert event.payload.surroundings.python == "3.12"


async def test_one_that_is_too_large_as_an_event_of_ours_is_left_out(
    database: OpenDatabase,
) -> None:
    """A record may be as large as an event, and numbers in it shorter than we write them."""
    metrics = await database("metrics")
    numbers = {f"rate_{number}": 1e15 for number in range(128)}
    packages = [{"name": "n" * 100, "version": "1" * 60}] * 1400
    large = make_record(make_event(make_described(packages=packages, hyperparameters=numbers)))
    assert large.value is not None
    short = large.value.replace(b"1000000000000000.0", b"1E15")
    given = replace(large, value=short + b" " * (MAX_EVENT_BYTES - len(short)))
    good = make_record(make_event(make_described(attempt=2)), offset=1)
    async with metrics.transaction() as tx:
        assert not await handlers.take_reports(RunTokens(None), tx, [given, good])
    found = [event.payload for event in await emitted(metrics)]
    assert [(one.kind.type, one.attempt) for one in found] == [("run.described", 2)]
