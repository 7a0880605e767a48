"""Nodes of a cluster: which of them accept no runs, and why, by REST and on the page."""

from datetime import UTC, datetime

from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from drivetrain_schemas.runs import RunHeard, RunInterrupted, RunSuspected, RunUnreachable
from tests.handlers.gateway.model import Model, Server
from tests.handlers.gateway.story import Story

FACTS = {"pool": "default", "device_type": "h200", "num_slots": 8}


async def test_a_node_that_is_closed_says_why_until_it_opens(model: Model, server: Server) -> None:
    story = Story()
    for reason in ("not ready <since noon>", None):
        story.tell(
            NodeRegistered(
                node_id="n1",
                **FACTS,
                is_spot=True,
                topology="zone-a",
                unschedulable_reason=reason,
            )
        )
    closed, opened = story.events

    await model.tell(closed)
    (node,) = (await server.client.get("/v1/nodes")).json()["nodes"]
    assert (node["is_spot"], node["topology"]) == (True, "zone-a")
    assert node["unschedulable_reason"] == "not ready <since noon>"
    page = (await server.client.get("/nodes")).text
    assert "Accepts no new runs: not ready &lt;since noon&gt;." in page

    await model.tell(opened)
    (node,) = (await server.client.get("/v1/nodes")).json()["nodes"]
    assert node["unschedulable_reason"] is None
    assert "Accepts no new runs" not in (await server.client.get("/nodes")).text


async def test_the_list_of_jobs_shows_how_many_slots_are_in_use(
    model: Model, server: Server
) -> None:
    """Of nodes that were not removed."""
    story = Story()
    story.nodes("node-1", "node-2", "gone", slots=4)
    story.tell(NodeRemoved(node_id="gone", reason="the node is gone from the cluster"))
    for name in ("one", "two"):
        story.job(name, resources={"devices": 1}).starts()
    await model.tell(*story.events)
    page = (await server.client.get("/")).text
    assert '<dd>2<span class="of"> of 8</span></dd>' in page


async def test_a_node_that_is_gone_is_not_listed(model: Model, server: Server) -> None:
    story = Story()
    story.tell(NodeRegistered(node_id="n1", **FACTS, unschedulable_reason="cordoned"))
    story.tell(NodeRemoved(node_id="n1", reason="the node is gone from the cluster"))
    await model.tell(*story.events)
    assert (await server.client.get("/v1/nodes")).json()["nodes"] == []


async def test_a_run_whose_pods_are_silent_says_since_when(model: Model, server: Server) -> None:
    story = Story()
    job = story.job("digits")
    job.starts()
    heard_at = datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)
    story.tell(RunSuspected(**job.run, last_heard_at=heard_at))
    story.tell(RunHeard(**job.run))
    *before, heard = story.events
    silent = "Nothing was heard of its pods since 2026-01-31 12:00:05 UTC"

    await model.tell(*before)
    explained = (await server.client.get(f"/v1/jobs/{job.job_id}/explain")).json()["text"]
    assert explained.endswith(silent)
    assert silent in (await server.client.get(f"/jobs/{job.job_id}")).text
    await model.tell(heard)
    assert silent not in (await server.client.get(f"/jobs/{job.job_id}")).text


async def test_a_run_of_which_nothing_is_known_says_why_and_so_does_its_end(
    model: Model, server: Server
) -> None:
    story = Story()
    job = story.job("digits")
    job.starts()
    story.tell(RunUnreachable(**job.run, node_ids=("n1",), detail="n1 does not answer"))
    story.tell(RunUnreachable(**job.run, node_ids=()))
    lost = "the node n1 is gone from the cluster"
    story.tell(RunInterrupted(**job.run, detail=lost, ended_at=story.now))
    *before, silent, answers, ended = story.events

    async def explained() -> str:
        return (await server.client.get(f"/v1/jobs/{job.job_id}/explain")).json()["text"]

    await model.tell(*before, silent)
    assert (await explained()).endswith("Attempt 1 keeps its slots and waits: n1 does not answer")
    await model.tell(answers)
    assert "keeps its slots" not in await explained()
    await model.tell(ended)
    assert (await explained()).endswith(f"Attempt 1 was interrupted: {lost}")


async def test_the_page_says_who_holds_each_slot_and_what_waits_for_how_long_and_why(
    model: Model, server: Server
) -> None:
    """The oldest first; not the jobs of others."""
    story, other = Story(), Story(tenant_id="other", node_id="node-2")
    story.nodes("node-1", "node-2")
    story.job("holds", resources={"devices": 1}, project="vision").starts()
    other.job("foreign", resources={"devices": 1}).starts()
    other.job("also-foreign").waits()
    first = story.job("gang", resources={"devices": 3}, project="cars")
    queued = story.events[-1]
    story.job("second").waits(2)
    first.waits(1)
    await model.tell(*story.events, *other.events)

    page = " ".join((await server.client.get("/nodes")).text.split())
    assert page.count('max="2" value="1"') == 2
    assert "vision, attempt 1" in page
    assert "another tenant" in page
    gang, second = "needs 3 slots of pool default; 2 are free", "needs 2 slots of pool default"
    assert page.index(gang) < page.index(second)
    assert "<small>cars ·</small>" in page
    assert f'<time datetime="{queued.occurred_at:%Y-%m-%dT%H:%M}' in page
    assert "foreign" not in page
    nodes = (await server.client.get("/v1/nodes")).json()["nodes"]
    assert [node["slots"][0]["project"] for node in nodes] == ["vision", None]


async def test_a_long_queue_is_counted_and_leads_to_the_list(model: Model, server: Server) -> None:
    story = Story()
    for number in range(51):
        story.job(f"waits-{number}")
    await model.tell(*story.events)
    page = " ".join((await server.client.get("/nodes")).text.split())
    assert "waits-49<" in page
    assert "waits-50<" not in page
    assert 'The oldest 50 of <a href="/?state=queued&amp;sort=oldest">51 jobs</a>' in page
    assert "No job waits" not in page
