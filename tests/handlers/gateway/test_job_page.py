"""What the page of a job shows first, and what it leaves out."""

from drivetrain_schemas.jobs import JobRetrying, JobWaiting, UsedSeed, WaitingReason
from drivetrain_schemas.metrics import RunWarned
from drivetrain_schemas.runs import RunInterrupted, RunStarting, RunWaiting, WaitCause
from services.gateway.backends import PartUnavailable
from tests.handlers.gateway.model import Model, Server, serving
from tests.handlers.gateway.story import TENANT, JobStory, Story


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


async def test_a_checkpoint_shows_few_of_its_metrics(server: Server) -> None:
    story = Story()
    job = story.job("digits")
    job.starts()
    job.saves(123, num_others=255)
    await server.model.tell(*story.events)
    page = (await server.client.get(f"/jobs/{job.job_id}")).text
    assert "validation_accuracy 0.9" in page
    assert "and 253 more" in page
    assert page.count("/norm") == 2


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
    lines[7], shown_as = "\x1b]0;title\x07\x9b2J\ttab", "\ufffd]0;title\ufffd\ufffd2J\ttab"

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
    lines[7] = shown_as
    assert answer.text.splitlines() == [f"a1 r0 | {line}" for line in lines]
    assert (await server.client.get(f"/jobs/{job.job_id}/log.txt")).status_code == 503


def warn(story: Story, job: JobStory, number: int, detail: str, warning: str = "no_resume") -> None:
    of_run = {name: job.run[name] for name in ("job_id", "run_id", "attempt")}
    story.tell(RunWarned(**of_run, tenant_id=TENANT, number=number, warning=warning, detail=detail))


async def test_warnings_of_misuse_are_shown_once_for_all_attempts(server: Server) -> None:
    story = Story()
    job = story.job("digits")
    job.starts()
    warn(story, job, 1, "no checkpoint <will> be written")
    warn(story, job, 2, "only of the first")
    job.fails("RuntimeError: the last line")
    job.retries()
    job.starts()
    warn(story, job, 1, "no checkpoint <will> be written")
    await server.model.tell(*story.events)
    await server.model.tell(*story.events)
    shown = (await server.client.get(f"/v1/jobs/{job.job_id}")).json()["warnings"]
    assert [(one["attempt"], one["detail"]) for one in shown] == [
        (2, "no checkpoint <will> be written"), (1, "only of the first")
    ]  # fmt: skip
    explained = (await server.client.get(f"/v1/jobs/{job.job_id}/explain")).json()
    assert explained["warnings"] == shown
    head = (await server.client.get(f"/jobs/{job.job_id}")).text.partition('id="timeline"')[0]
    assert head.count("no checkpoint &lt;will&gt; be written") == 1


async def test_what_attempts_begin_with_is_no_warning(server: Server) -> None:
    """The page tells it of the newest attempt, the timeline of all."""
    story = Story()
    job = story.job("digits")
    job.starts()
    for attempt in (2, 3):
        job.fails("RuntimeError: the last line")
        job.retries()
        job.starts()
        detail = f"attempt {attempt} begins with {attempt + 5} files"
        warn(story, job, 1, detail, warning="begins_with")
        warn(story, job, 2, "no checkpoint will be written")
    await server.model.tell(*story.events)
    page = (await server.client.get(f"/jobs/{job.job_id}")).text
    head, _, timeline = page.partition('id="timeline"')
    assert "attempt 2 begins" not in head
    assert head.count("attempt 3 begins with 8 files") == 1
    assert head.count("<strong>warning</strong>") == 1
    assert "Attempt 2 begins with 7 files" in timeline
    assert "Attempt 3 begins with 8 files" in timeline


async def test_it_is_explained_why_the_last_attempt_failed(server: Server) -> None:
    story = Story()
    job = story.job("digits")
    job.starts()
    reason = "ValueError: too small"
    job.fails("log of the end", detail=reason)
    job.retries()
    await server.model.tell(*story.events)
    answer = (await server.client.get(f"/v1/jobs/{job.job_id}/explain")).json()
    assert f"Attempt 1 failed: {reason}" in answer["text"]
    head = (await server.client.get(f"/jobs/{job.job_id}")).text.partition("<dl")[0]
    assert head.count(f"Attempt 1 failed: {reason}") == 1
    told = len(story.events)
    job.starts()
    await server.model.tell(*story.events[told:])
    answer = (await server.client.get(f"/v1/jobs/{job.job_id}/explain")).json()
    assert answer["text"] == f"Attempt 2 is running. Attempt 1 failed: {reason}"
    told = len(story.events)
    job.succeeds()
    await server.model.tell(*story.events[told:])
    answer = (await server.client.get(f"/v1/jobs/{job.job_id}/explain")).json()
    assert answer["text"] == "Training is complete"


async def test_the_seed_that_was_used_is_shown(server: Server) -> None:
    story = Story()
    seeded, unknown = story.job("seeded"), story.job("unknown")
    for job in (seeded, unknown):
        job.starts()
    seed = UsedSeed(number=42, by_script=("numpy",))
    seeded.succeeds(seed=seed)
    unknown.succeeds()
    await server.model.tell(*story.events)
    result = (await server.client.get(f"/v1/jobs/{seeded.job_id}")).json()["result"]
    assert result["seed"] == {"number": 42, "by_script": ["numpy"]}
    page = (await server.client.get(f"/jobs/{seeded.job_id}")).text
    assert "<dt>Seed</dt><dd>42; seeded by the script itself: numpy</dd>" in page
    page = (await server.client.get(f"/jobs/{unknown.job_id}")).text
    assert "<dt>Seed</dt><dd>unknown: the program decides, and does not say</dd>" in page


async def test_how_much_of_the_log_was_left_out_is_shown(server: Server) -> None:
    story = Story()
    job = story.job("digits")
    job.starts()
    job.beats(1)
    await server.model.tell(*story.events)
    assert "logs.kib_per_second" not in (await server.client.get(f"/jobs/{job.job_id}")).text
    beat = job.beat(2).model_copy(update={"num_dropped_log_bytes": 5_000_000})
    story.tell(beat)
    await server.model.tell(*story.events)
    page = (await server.client.get(f"/jobs/{job.job_id}")).text
    assert "5.0 MB of the newest attempt's output are left out" in page
    shown = (await server.client.get(f"/v1/jobs/{job.job_id}")).json()
    assert shown["num_dropped_log_bytes"] == 5_000_000


async def test_what_keeps_the_pods_from_running_is_on_every_page_of_the_job(model: Model) -> None:
    """The scheduler is not asked: it knows the place of jobs in the queue only."""
    story = Story()
    job = story.job("digits")
    job.attempt = 1
    refused = 'the cluster refuses the pod (webhook policy): failed calling webhook "policy"'
    allocation_id = job.allocation["allocation_id"]
    story.tell(RunStarting(**job.run, allocation_id=allocation_id, num_pods=1))
    cause = WaitCause.REFUSED
    story.tell(RunWaiting(**job.run, cause=cause, by="webhook policy", detail=refused))
    await model.tell(*story.events)
    asked: list[str] = []

    async def forward(part: str, path: str, parameters: object) -> object:
        asked.append(part)
        raise PartUnavailable(part)

    async with serving(model, forward=forward) as server:
        explained = (await server.client.get(f"/v1/jobs/{job.job_id}/explain")).json()
        page = (await server.client.get(f"/jobs/{job.job_id}")).text
        listed = (await server.client.get("/")).text
    shown = "Attempt 1 waits: the cluster refuses the pod (webhook policy): failed calling webhook"
    assert explained["text"].startswith(shown)
    assert explained["waiting"]["reason"] == "refused"
    assert shown in page.partition("Timeline")[0]
    assert shown in page.partition("Timeline")[2]
    assert shown in listed
    assert "scheduler" not in asked


async def test_a_job_that_backs_off_says_what_happened_and_when_it_goes_on(server: Server) -> None:
    story = Story()
    job = story.job("digits")
    job.attempt = 1
    quota = "the namespace has no room for the pod: exceeded quota: few"
    happened = f"attempt 1 was interrupted: {quota}"
    story.tell(RunInterrupted(**job.run, detail=quota, ended_at=story.now))
    after = {"job_id": job.job_id, "not_before_at": story.now}
    story.tell(
        JobRetrying(**after, next_attempt=2, backoff_seconds=5, retries_left=0, detail=happened)
    )
    story.tell(
        JobWaiting(
            **after,
            reason=WaitingReason.BACKING_OFF,
            detail=f"{happened}; the next attempt waits before it starts",
            queue_position=1,
        )
    )
    await server.model.tell(*story.events)
    explained = (await server.client.get(f"/v1/jobs/{job.job_id}/explain")).json()
    assert explained["text"] == (
        f"{happened}; the next attempt waits before it starts "
        f"(not before {after['not_before_at']:%Y-%m-%d %H:%M:%S} UTC)"
    )
    assert explained["waiting"]["not_before_at"] is not None
