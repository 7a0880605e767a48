"""What the search service tells the gateway: what comes next, and what a study would use."""

import asyncio
import threading
from dataclasses import dataclass

import httpx
import pytest

from drivetrain_schemas.jobs import JobSubmit
from drivetrain_schemas.studies import StudyPause, StudyPaused
from services.hpo.api import read_api
from services.hpo.core.samplers.gp import Gp
from services.hpo.core.trials import Trials
from services.hpo.handlers import HANDLERS
from services.runtime.clock import Clock, SystemClock
from services.runtime.database import Database
from tests.events import emitted, handle
from tests.handlers.hpo.test_searches import (
    ASHA,
    PAUSING,
    command,
    hpo,
    measured,
    of_type,
    paused,
    renamed,
    search_request,
    start,
    with_poor_trial,
)
from tests.handlers.hpo.test_studies import STUDY_ID, make_spec, succeeded

__all__ = ["hpo"]


@dataclass
class Parts:
    """The part of a platform that the read API uses."""

    database: Database
    clock: Clock


@pytest.fixture
async def client(hpo: Database) -> httpx.AsyncClient:
    app = read_api(Parts(hpo, SystemClock()))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://hpo")


async def test_what_comes_next_is_what_then_happens(
    hpo: Database, client: httpx.AsyncClient
) -> None:
    await with_poor_trial(hpo)
    before = len(await emitted(hpo))
    found = (await client.get("/next", params={"study_id": STUDY_ID})).json()
    assert len(await emitted(hpo)) == before, "it only reads"
    assert found["state"] == "running"
    assert (found["pruner"], found["num_proposed"], found["num_active"]) == ("asha", 3, 3)
    [rung] = found["rungs"]
    assert (rung["step"], rung["num_measured"]) == (3, 3)
    assert (rung["best"], rung["median"]) == (0.0, 1.0)
    assert rung["threshold"] is not None
    assert (found["next"]["kind"], found["next"]["number"]) == ("propose", 3)
    assert "trial 3" in found["sentence"]


async def test_a_trial_that_waits_for_a_place_is_what_comes_next(
    hpo: Database, client: httpx.AsyncClient
) -> None:
    [trial] = await start(hpo, pruner=PAUSING, max_parallel_trials=1)
    for value in (0.5, 0.6):
        await handle(hpo, HANDLERS, measured(trial, 3, value))
        [trial] = of_type(await handle(hpo, HANDLERS, paused(trial)), JobSubmit)
    await handle(hpo, HANDLERS, measured(trial, 3, 0.7))
    found = (await client.get("/next", params={"study_id": STUDY_ID})).json()
    assert (found["next"]["kind"], found["next"]["number"]) == ("promote", 0)
    assert found["sentence"] == (
        "The next free place goes to trial 0, which waits: "
        "It is number 1 of 3 at step 3: only the best goes on."
    )


async def test_a_study_that_is_not_there_is_not_found(client: httpx.AsyncClient) -> None:
    missing = "study_" + "a" * 26
    assert (await client.get("/next", params={"study_id": missing})).status_code == 404


async def test_a_preview_starts_nothing_and_names_what_is_wrong(
    hpo: Database, client: httpx.AsyncClient
) -> None:
    request = search_request(pruner=ASHA)
    answer = await client.post("/preview", content=request.payload.spec.model_dump_json())
    assert answer.status_code == 200
    assert await emitted(hpo) == []
    broken = make_spec().model_dump(mode="json") | {"max_trials": 0}
    refused = await client.post("/preview", json=broken)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "max_trials"
    assert await handle(hpo, HANDLERS) == []


async def test_what_comes_next_is_decided_beside_the_event_loop(
    hpo: Database, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = search_request(sampler="gp"), renamed(search_request(), "other")
    await handle(hpo, HANDLERS, first)
    [job, *_] = of_type(await handle(hpo, HANDLERS, second), JobSubmit)
    begun, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def propose(self: Gp, trials: Trials, number: int) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert may_end.wait(10)

    monkeypatch.setattr(Gp, "propose", propose)
    asked = asyncio.create_task(client.get("/next", params={"study_id": STUDY_ID}))
    await begun.wait()
    pausing = asyncio.create_task(handle(hpo, HANDLERS, command(StudyPause)))
    try:
        await handle(hpo, HANDLERS, succeeded(job, 0.5))
        assert not asked.done(), "another study went on meanwhile"
        assert not pausing.done(), "what changes this one waits for the answer"
    finally:
        may_end.set()
    assert (await asked).json()["next"]["kind"] == "wait"
    assert StudyPaused in map(type, await pausing)
