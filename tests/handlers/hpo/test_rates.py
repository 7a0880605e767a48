"""What earlier studies of the same job say about the next one: seconds of a step, and the price."""

import json
from typing import Any

import httpx
import pytest

from drivetrain_schemas.base import canonical_json
from services.hpo import rates
from services.hpo.api import read_api
from services.hpo.core.preview import Known, Span
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.handlers.hpo.test_read_api import Parts
from tests.handlers.hpo.test_studies import make_spec

JOB = {**make_spec().job.model_dump(), "max_steps": 100, "resources": {"devices": 2}}
SPEC = make_spec(job=JOB)


@pytest.fixture
async def hpo(database: OpenDatabase) -> Database:
    return await database("hpo")


async def add_study(
    hpo: Database, study_id: str, slot_seconds: float, tenant_id: str = "default", **job: Any
) -> None:
    """One whole trial of 100 steps, one stopped at step 50, one that failed."""
    spec = canonical_json(make_spec(job={**JOB, **job}))
    measured = json.dumps([[10, 0.5], [50, None]])
    async with hpo.transaction() as tx:
        run = tx.connection.execute
        await run(
            "insert into studies (study_id, tenant_id, request_id, spec, num_trials, num_proposed,"
            " status) values ($1, $2, $1, $3, 3, 3, '{}')",
            study_id,
            tenant_id,
            spec,
        )
        for number, (state, values, rungs) in enumerate(
            [("completed", "[1.0]", "[]"), ("stopped", "[]", measured), ("failed", "[]", measured)]
        ):
            await run(
                "insert into trials (study_id, number, job_id, command_event_id, hyperparameters,"
                " state, objectives, measured) values ($1, $2, $3, 'c', '{}', $4, $5, $6)",
                study_id,
                number,
                f"{study_id}-{number}",
                state,
                values,
                rungs,
            )
        await run(
            "insert into spending (study_id, slot_seconds, price_micro_usd_per_slot_hour)"
            " values ($1, $2, 3000000)",
            study_id,
            slot_seconds,
        )


async def known(hpo: Database) -> Known:
    async with hpo.transaction() as tx:
        return await rates.known(tx.connection, "default", SPEC)


async def test_nothing_is_known_without_earlier_studies_of_the_job(hpo: Database) -> None:
    assert await known(hpo) == Known()
    await add_study(hpo, "a", 300.0, tenant_id="other")
    await add_study(hpo, "b", 300.0, resources={"devices": 2, "pool": "other"})
    assert await known(hpo) == Known()


async def test_another_job_on_the_same_devices_tells_the_price_alone(hpo: Database) -> None:
    await add_study(hpo, "a", 300.0, name="another")
    assert await known(hpo) == Known(usd_per_device_hour=3.0)


async def test_studies_of_the_job_tell_the_seconds_of_its_steps(hpo: Database) -> None:
    await add_study(hpo, "a", 300.0)
    await add_study(hpo, "b", 900.0)
    await add_study(hpo, "c", 600.0, resources={"devices": 1})
    found = await known(hpo)
    # 150 steps; the slot-seconds of two devices are twice the seconds.
    assert found.seconds_per_step == Span(1.0, 3.0, 4.0)
    assert found.seconds_per_trial is None
    assert found.usd_per_device_hour == 3.0


async def test_a_preview_has_the_money_of_the_tenant_that_asks(hpo: Database) -> None:
    await add_study(hpo, "a", 300.0)
    app = httpx.ASGITransport(app=read_api(Parts(hpo, SystemClock())))
    async with httpx.AsyncClient(transport=app, base_url="http://hpo") as client:
        body = SPEC.model_dump_json()
        found = (await client.post("/preview?tenant_id=default", content=body)).json()
        assert found["steps"]["likely"] == 3 * 100
        # A second per step on two devices, at 3 dollars per device and hour.
        assert found["cost_usd"]["likely"] == pytest.approx(300 * 2 / 3600 * 3)
        for address in ("/preview?tenant_id=other", "/preview"):
            other = (await client.post(address, content=body)).json()
            assert (other["device_hours"], other["cost_usd"]) == (None, None)
            assert len(other["unknown"]) == 2
