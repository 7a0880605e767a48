"""What a page or an answer costs grows as what it shows, where all that it shows grows together."""

from collections.abc import AsyncIterator, Mapping
from functools import partial

import pytest
import pytest_asyncio

from services.gateway.pages import job_list, parked
from tests.conftest import OpenDatabase
from tests.costs.counting import FACTOR, Runs, measure
from tests.costs.gateway.world import LONG_STUDY, job, little, servers
from tests.handlers.gateway.model import Server

# Four times as many are shown at once.
THINGS = 25
LAST = "{last}"  # the id of the job that has most of everything
PATHS = {
    "jobs": "/",
    "jobs and trials": "/?group=no",
    "jobs over REST": "/v1/jobs?limit=100",
    "a job": f"/jobs/{LAST}?events=all",
    "a job over REST": f"/v1/jobs/{LAST}",
    "its timeline": f"/v1/jobs/{LAST}/timeline",
    "its checkpoints": f"/v1/jobs/{LAST}/checkpoints",
    "its alerts": f"/v1/jobs/{LAST}/alerts",
    "a study": f"/studies/{LONG_STUDY}",
    "a study over REST": f"/v1/studies/{LONG_STUDY}",
    "its insight": f"/v1/studies/{LONG_STUDY}/insight",
    "its trials": f"/v1/studies/{LONG_STUDY}/trials?limit=100",
    "nodes": "/nodes",
    "nodes over REST": "/v1/nodes",
    "alerts": "/alerts",
    "open alerts": "/v1/alerts?state=open&limit=100",
    "parked records": "/parked",
    "parked records of groups": "/v1/parked?service=scheduler&limit=100",
    "groups of parked records": "/v1/parked/groups",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def standing(kept_database: OpenDatabase) -> AsyncIterator[Mapping[int, Server]]:
    models = {size: await little(kept_database, size) for size in (THINGS, FACTOR * THINGS)}
    async with servers(models) as found:
        yield found


async def asking(standing: Mapping[int, Server], path: str, size: int) -> Runs:
    while True:
        yield partial(answer, standing[size], path.format(last=job(size)))


async def comparing(server: Server, path: str, name: str, size: int) -> Runs:
    """So many of the jobs that there are."""
    jobs = "&".join(f"{name}={job(each)}" for each in range(1, size + 1))
    while True:
        yield partial(answer, server, f"{path}?{jobs}")


async def answer(server: Server, path: str) -> None:
    found = await server.client.get(path)
    assert found.status_code == 200, found.text


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
async def test_a_page_costs_as_much_as_it_shows(
    standing: Mapping[int, Server], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, bound in ((job_list, "JOBS_PER_PAGE"), (parked, "ROWS_PER_PAGE")):
        monkeypatch.setattr(module, bound, FACTOR * THINGS)
    (await measure(partial(asking, standing, path), THINGS)).assert_linear()


@pytest.mark.parametrize(("path", "name"), [("/compare", "job"), ("/v1/comparison", "job_id")])
async def test_a_comparison_costs_as_much_as_its_jobs(
    standing: Mapping[int, Server], path: str, name: str
) -> None:
    server = standing[FACTOR * THINGS]
    (await measure(partial(comparing, server, path, name), 2)).assert_linear()
