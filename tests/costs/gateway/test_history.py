"""What a page or an answer costs follows what it shows, not what ever happened."""

from collections.abc import AsyncIterator, Mapping
from functools import partial

import pytest
import pytest_asyncio

from services.gateway.queries import alerts, job_list, searches, timeline
from services.gateway.rest.positions import position_text
from tests.conftest import OpenDatabase
from tests.costs.counting import FACTOR, Runs, measure
from tests.costs.gateway.world import LONG_STUDY, history, job, servers, study
from tests.handlers.gateway.model import Server

JOBS = 1500
# A page reads at most this many of what it looks through, which is less than there is here.
WINDOW = 200
LAST = "{last}"  # the id of the newest job
PATHS = {
    "jobs": "/",
    "jobs of a state": "/?state=failed",
    "jobs and trials": "/?group=no",
    "jobs by value": "/?metric=accuracy&sort=highest",
    "jobs of a study": f"/?study_id={study(7)}",
    "jobs over REST": "/v1/jobs",
    "running jobs": "/v1/jobs?state=running&limit=100",
    "jobs far down": "/v1/jobs?limit=100&after={early}",
    "jobs by a text that none has": "/v1/jobs?search=nowhere",
    "jobs by a tag that none has": "/v1/jobs?tag=nowhere",
    "jobs by a metric that none has": "/v1/jobs?metric=nowhere",
    "a job": f"/jobs/{LAST}",
    "a job over REST": f"/v1/jobs/{LAST}",
    "its timeline": f"/v1/jobs/{LAST}/timeline",
    "why it runs": f"/v1/jobs/{LAST}/explain",
    "its alerts": f"/v1/alerts?job_id={LAST}",
    "jobs compared": f"/compare?job={LAST}&job={job(50)}",
    "jobs compared over REST": f"/v1/comparison?job_id={LAST}&job_id={job(50)}",
    "studies": "/studies",
    "a study": f"/studies/{study(7)}",
    "a long study": f"/studies/{LONG_STUDY}",
    "further trials": f"/studies/{LONG_STUDY}?after=200:0.00125:800",
    "a long study over REST": f"/v1/studies/{LONG_STUDY}?max_trials=300",
    "its insight": f"/v1/studies/{LONG_STUDY}/insight",
    "its trials": f"/v1/studies/{LONG_STUDY}/trials?after=900&limit=100",
    "whether to stop": f"/v1/studies/{LONG_STUDY}/trials/700/should-stop",
    "studies of a state": "/v1/studies?state=running",
    "studies of a name": "/v1/studies?name=long",
    "nodes": "/nodes",
    "nodes over REST": "/v1/nodes",
    "alerts": "/alerts",
    "alerts over REST": "/v1/alerts",
    "open alerts": "/v1/alerts?state=open",
    "ended alerts of a kind": "/v1/alerts?state=ended&alert=diverging",
    "silences": "/v1/silences",
    "parked records": "/parked",
    "parked records of a group": "/parked?service=scheduler&reason=reason%201",
    "decided records": "/v1/parked?state=discarded",
    "groups of parked records": "/v1/parked/groups",
    "cost": "/v1/cost",
    "ids of jobs": "/v1/ids?kind=job&text=job",
    "ids by a beginning": f"/v1/ids?kind=job&text={job(50)[:-1]}",
    "ids of studies": f"/v1/ids?kind=study&text={study(7)[:-1]}",
    "ids of checkpoints": "/v1/ids?kind=checkpoint&text=ckpt_b",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def histories(kept_database: OpenDatabase) -> AsyncIterator[Mapping[int, Server]]:
    models = {size: await history(kept_database, size) for size in (JOBS, FACTOR * JOBS)}
    async with servers(models) as standing:
        yield standing


async def asking(standing: Mapping[int, Server], path: str, size: int) -> Runs:
    early = position_text("2026-01-02T02:00:00+00:00", job(1))
    while True:
        yield partial(answer, standing[size], path.format(last=job(size), early=early))


async def answer(server: Server, path: str) -> None:
    found = await server.client.get(path)
    assert found.status_code == 200, found.text


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
async def test_history_costs_nothing(
    histories: Mapping[int, Server], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, bound in ((alerts, "WINDOW"), (job_list, "WINDOW"), (searches, "RECENT_TRIALS")):
        monkeypatch.setattr(module, bound, WINDOW)
    (await measure(partial(asking, histories, path), JOBS)).assert_flat()


async def test_who_follows_a_job_from_long_ago_reads_its_own_events(
    histories: Mapping[int, Server],
) -> None:
    (await measure(partial(following, histories), JOBS)).assert_flat()


async def following(standing: Mapping[int, Server], size: int) -> Runs:
    async def read() -> None:
        async with standing[size].platform.database.connection() as connection:
            assert await timeline.of_job(connection, "default", job(size), 0, 10**9, 500)

    while True:
        yield read
