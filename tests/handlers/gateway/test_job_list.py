"""The list of jobs: what narrows it, its order, its pages, and the trials of a study as one row."""

from typing import Any
from unittest.mock import AsyncMock

import pytest

from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.studies import TrialCompleted, TrialProposed
from services.gateway.backends import Backends
from services.gateway.pages import routes
from services.gateway.queries import job_list
from tests.handlers.gateway.model import Server
from tests.handlers.gateway.story import Story, search


async def names(server: Server, **query: Any) -> list[str]:
    """The names of the jobs over all pages, two at a time."""
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        answer = await server.client.get("/v1/jobs", params={"limit": 2, **query, **after})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [job["name"] for job in page["jobs"]]
        if page["next"] is None:
            return found
        after = {"after": page["next"]}


async def three_jobs(server: Server) -> Story:
    story = Story()
    jobs = {"Net-a": (["vision"], 0.5), "net-b": (["vision", "big"], 0.9), "text": ([], 0.7)}
    for name, (tags, value) in jobs.items():
        job = story.job(name, tags=tags)
        job.starts()
        job.succeeds(value)
    await server.model.tell(*story.events)
    return story


async def test_jobs_are_found_by_a_part_of_the_name_by_id_and_by_tag(
    server: Server,
) -> None:
    await three_jobs(server)
    assert await names(server, search="NET") == ["net-b", "Net-a"]
    assert await names(server, tag="vision") == ["net-b", "Net-a"]
    assert await names(server, tag="big", search="net") == ["net-b"]
    assert await names(server, search="none of them") == []
    (job,) = (await server.client.get("/v1/jobs", params={"search": "text"})).json()["jobs"]
    assert await names(server, search=job["job_id"][:12]) == ["text"]
    assert await names(server, search=job["job_id"][4:12]) == ["text"]


async def test_jobs_are_found_by_their_project_over_pages_and_on_the_page(server: Server) -> None:
    story = Story()
    for name, project in (("a", "vision"), ("b", "vision"), ("c", "Vision"), ("d", None)):
        story.job(name, project=project)
    story.job("e", project="vision")
    await server.model.tell(*story.events)
    assert await names(server, project="vision") == ["e", "b", "a"]
    assert await names(server, project="vision", sort="oldest") == ["a", "b", "e"]
    assert await names(server, project="Vision") == ["c"]
    assert await names(server, project="none of them") == []
    (job,) = (await server.client.get("/v1/jobs", params={"project": "Vision"})).json()["jobs"]
    assert job["project"] == "Vision"
    html = (await server.client.get("/", params={"project": "Vision"})).text
    assert 'href="/?project=Vision"' in html
    assert html.count('name="job"') == 1


async def test_jobs_are_ordered_by_time_and_by_the_best_value_of_a_metric(
    server: Server,
) -> None:
    story = await three_jobs(server)
    told = len(story.events)
    other = story.job("other", metric={"name": "error", "goal": "minimize"})
    await server.model.tell(*story.events[told:])
    assert await names(server) == ["other", "text", "net-b", "Net-a"]
    assert await names(server, sort="oldest") == ["Net-a", "net-b", "text", "other"]
    metric = "validation_accuracy"
    assert await names(server, metric=metric, sort="highest") == ["net-b", "text", "Net-a"]
    assert await names(server, metric=metric, sort="lowest") == ["Net-a", "text", "net-b"]
    assert await names(server, metric="error") == ["other"]
    # `loss` is in every result, though no job is judged by it.
    answer = (await server.client.get("/v1/jobs", params={"metric": "loss"})).json()
    assert [job["value"] for job in answer["jobs"]] == [{"name": "loss", "value": 0.04}] * 3
    assert other.job_id not in {job["job_id"] for job in answer["jobs"]}


async def test_a_running_job_shows_the_value_of_its_best_checkpoint(server: Server) -> None:
    story = Story()
    job = story.job("digits")
    job.starts()
    job.saves(100, 0.91)
    await server.model.tell(*story.events)
    (shown,) = (await server.client.get("/v1/jobs")).json()["jobs"]
    assert shown["value"] == {"name": "validation_accuracy", "value": 0.91}


async def test_a_search_looks_at_a_bounded_number_of_jobs_and_goes_on(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_list, "WINDOW", 2)
    story = Story()
    for name in ("needle", "b", "c", "d", "e"):
        story.job(name)
    await server.model.tell(*story.events)
    first = (await server.client.get("/v1/jobs", params={"search": "needle"})).json()
    assert (first["jobs"], first["num_searched"]) == ([], 2)
    assert await names(server, search="needle") == ["needle"]
    page = (await server.client.get("/", params={"search": "needle"})).text
    assert "Looked at 2 jobs" in page


async def test_the_trials_of_a_study_are_one_row_of_the_page(server: Server) -> None:
    story = Story()
    study_id = search(story, 6)
    story.job("alone")
    await server.model.tell(*story.events)
    grouped = (await server.client.get("/")).text
    assert grouped.count('name="job"') == 1
    assert grouped.count(f'href="/studies/{study_id}"') == 1
    each = (await server.client.get("/?group=no")).text
    assert each.count('name="job"') == 7
    of_study = (await server.client.get(f"/?study_id={study_id}")).text
    assert of_study.count('name="job"') == 6
    listed = await names(server, study_id=study_id)
    assert listed == [f"digits-search-{number}" for number in reversed(range(6))]


async def test_grouped_pages_follow_each_other_without_a_gap(server: Server) -> None:
    story = Story()
    for number in range(60):
        story.job(f"before-{number}")
    search(story, 2)
    for number in range(60):
        story.job(f"after-{number}")
    await server.model.tell(*story.events)
    address: str | None = "/"
    rows: list[str] = []
    while address is not None:
        page = (await server.client.get(address)).text
        rows += page.split('<th scope="row">')[1:]
        link = page.partition('<a class="button" href="/?after=')[2].partition('"')[0]
        address = f"/?after={link}" if link else None
    assert len(rows) == 121
    assert "digits-search" in rows[60]


@pytest.mark.parametrize(
    "query",
    ["sort=highest", "after=x", "metric=a&sort=highest&after=eHx5", "state=unknown", "sort=no"],
)
async def test_what_makes_no_sense_is_refused(server: Server, query: str) -> None:
    answer = await server.client.get(f"/v1/jobs?{query}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["fix"]


async def test_the_comparison_shows_what_a_running_job_has_spent(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is charged yet, and less than a cent accrues."""
    story = Story()
    one, two = story.job("one"), story.job("two")
    await server.model.tell(*story.events)
    live = {"charged_micro_usd": 0, "accruing_micro_usd": 57, "total_micro_usd": 57}
    of_both = {**live, "platform_micro_usd": 0, "storage_micro_usd": 0, "unpriced": []}
    monkeypatch.setattr(Backends, "get", AsyncMock(return_value=of_both))
    page = (await server.client.get(f"/compare?job={one.job_id}&job={two.job_id}")).text
    assert page.count("<td>$0.000057</td>") == 2


async def test_the_comparison_shows_what_differs(server: Server) -> None:
    story = Story()
    one = story.job("one", hyperparameters={"learning_rate": 0.1, "width": 8})
    other = {"learning_rate": 0.2, "width": 8}
    two = story.job("two", hyperparameters=other, resources={"devices": 1})
    await server.model.tell(*story.events)
    page = (await server.client.get(f"/compare?job={one.job_id}&job={two.job_id}")).text
    differing = [row for row in page.split("<tr ") if row.startswith('class="differs"')]
    assert ["learning_rate" in differing[0], "resources.devices" in differing[1]] == [True, True]
    assert len(differing) == 2
    unknown = await server.client.get("/compare?job=job_" + "a" * 26)
    assert unknown.status_code == 404


async def test_a_whole_id_leads_to_its_job(server: Server) -> None:
    story = Story()
    job = story.job("digits")
    await server.model.tell(*story.events)
    answer = await server.client.get("/", params={"search": job.job_id})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job.job_id}")


async def test_older_studies_are_on_further_pages(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "STUDY_ROWS", 1)
    story = Story()
    first = search(story, 1)
    second = search(story, 1, name="later")
    await server.model.tell(*story.events)
    page = (await server.client.get("/studies")).text
    assert second in page
    assert first not in page
    link = page.partition('href="/studies?after=')[2].partition('"')[0]
    assert first in (await server.client.get(f"/studies?after={link}")).text


@pytest.mark.parametrize("num_parameters", [3, 64])
async def test_the_page_of_a_large_study_is_small(server: Server, num_parameters: int) -> None:
    story = Story()
    study_id = search(story, 1)
    point = {f"a_hyperparameter_{n}": 0.123456789 for n in range(num_parameters)}
    for number in range(1, 300):
        about = {
            "study_id": study_id,
            "number": number,
            "job_id": job_id_for("default", f"{number}"),
        }
        story.tell(TrialProposed(**about, hyperparameters=point))
        value = 0.5 + number / 1000
        story.tell(TrialCompleted(**about, hyperparameters=point, value=value, is_best=True))
    await server.model.tell(*story.events)
    page = (await server.client.get(f"/studies/{study_id}")).text
    assert len(page.encode()) < 300_000
    assert page.count("data-number") >= 15
    assert "of 300, the best first</span>" in page
