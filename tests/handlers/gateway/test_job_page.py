"""What the page of a job shows first, and what it leaves out."""

from tests.handlers.gateway.model import Server, serving
from tests.handlers.gateway.story import Story


async def test_deleted_checkpoints_are_shown_only_on_demand(server: Server) -> None:
    story = Story()
    job = story.job("digits")
    job.starts()
    for step in range(1, 30):
        job.loses(job.saves(step), step)
    job.saves(123)
    await server.model.tell(*story.events)
    page = (await server.client.get(f"/jobs/{job.job_id}")).text
    assert page.count("Pin the checkpoint") == 1
    assert "deleted</span>" not in page
    assert "is complete and verified" not in page
    assert "Attempt 1 is running" in page
    everything = (await server.client.get(f"/jobs/{job.job_id}?events=all")).text
    assert everything.count("deleted</span>") == 29
    assert everything.count("was removed: older") == 29


async def test_a_job_that_waits_for_its_next_attempt_has_no_time_left(
    server: Server,
) -> None:
    story = Story()
    job = story.job("digits")
    job.starts()
    job.beats(0, 100, 200)
    await server.model.tell(*story.events)
    assert "s left" in (await server.client.get(f"/jobs/{job.job_id}")).text
    told = len(story.events)
    job.fails("RuntimeError: the last line")
    job.retries()
    await server.model.tell(*story.events[told:])
    page = (await server.client.get(f"/jobs/{job.job_id}")).text
    assert "s left" not in page
    assert "RuntimeError: the last line" in page.partition("Timeline")[0]
    answer = (await server.client.get(f"/v1/jobs/{job.job_id}")).json()
    assert answer["progress"]["eta_seconds"] is None


async def test_an_ended_job_without_a_planned_end_has_no_empty_bar(server: Server) -> None:
    story = Story()
    job = story.job("endless", max_steps=None)
    job.starts()
    job.beats(0, 100)
    await server.model.tell(*story.events)
    assert "<progress" in (await server.client.get(f"/jobs/{job.job_id}")).text
    told = len(story.events)
    job.succeeds(step=100)
    await server.model.tell(*story.events[told:])
    page = (await server.client.get(f"/jobs/{job.job_id}")).text
    assert 'class="bar bar-succeeded"' in page
    assert 'value="1.0000"' in page


async def test_the_best_value_says_whether_its_weights_were_saved(server: Server) -> None:
    story = Story()
    saved, unsaved = story.job("saved"), story.job("unsaved")
    for job in (saved, unsaved):
        job.starts()
        job.saves(100, 0.5)
        checkpoint_id = job.saves(220, 0.92)
        job.loses(job.saves(225, 0.925), 225)
    saved.succeeds(0.92, step=220)
    unsaved.succeeds(0.93, step=230)
    await server.model.tell(*story.events)

    answer = (await server.client.get(f"/v1/jobs/{unsaved.job_id}")).json()
    assert (answer["best"]["value"], answer["best"]["step"]) == (0.93, 230)
    assert not answer["best"]["is_saved"]
    assert answer["best"]["saved"] == {"value": 0.92, "step": 220, "checkpoint_id": checkpoint_id}
    page = (await server.client.get(f"/jobs/{unsaved.job_id}")).text
    assert "at step 230, not saved; best saved: 0.92 at step 220" in page

    answer = (await server.client.get(f"/v1/jobs/{saved.job_id}")).json()
    assert answer["best"]["is_saved"]
    assert "not saved" not in (await server.client.get(f"/jobs/{saved.job_id}")).text


async def test_a_log_is_downloaded_whole(server: Server) -> None:
    lines = [f"line {number}" for number in range(12_000)]

    async def forward(part: str, path: str, given: dict[str, int]) -> object:
        begin = given["after"]
        shown = lines[begin : begin + given["limit"]]
        return {
            "lines": [{"attempt": 1, "rank": 0, "line": line} for line in shown],
            "next": begin + len(shown),
            "num_lines": len(lines),
        }

    story = Story()
    job = story.job("digits")
    await server.model.tell(*story.events)
    async with serving(server.model, forward=forward) as forwarding:
        answer = await forwarding.client.get(f"/jobs/{job.job_id}/log.txt")
    assert answer.headers["content-disposition"] == f'attachment; filename="{job.job_id}.log"'
    assert answer.text.splitlines() == [f"a1 r0 | {line}" for line in lines]
    assert (await server.client.get(f"/jobs/{job.job_id}/log.txt")).status_code == 503
