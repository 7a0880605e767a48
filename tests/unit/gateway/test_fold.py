"""The read model's fold: any order of doubled and late events, in any batches, is one model."""

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.annotations import JobAnnotated
from drivetrain_schemas.checkpoints import CheckpointingFailed, CheckpointingRecovered, SaveFailure
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import (
    JobCancelled,
    JobCancelling,
    JobFailed,
    JobPaused,
    JobPausing,
    JobRequestRejected,
    JobResumed,
    JobStopped,
    JobStopping,
    JobSubmit,
    RejectionReason,
)
from drivetrain_schemas.metrics import AlertCleared, AlertRaised, RunWarned
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from drivetrain_schemas.runs import RunHeard, RunLost, RunSuspected
from services.gateway.core import counters, model
from services.gateway.core.counters import JOB_SPEND, TENANT_COUNTS, TRIAL_COUNTS
from services.gateway.core.jobs import JOBS, Job
from services.gateway.core.nodes import ALLOCATIONS, NODES
from services.gateway.core.noun import Noun
from services.gateway.core.requests import REQUESTS
from services.gateway.core.runs import RUNS
from services.gateway.core.studies import STUDIES
from services.gateway.core.trials import TRIALS
from tests.handlers.gateway.story import TENANT, JobStory, Story, day, spec

Views = dict[Any, dict[Any, Any]]


def project(batches: Sequence[Sequence[Event[Any]]]) -> Views:
    """What the shell does with Postgres, on dictionaries."""
    views: Views = {}
    for events in batches:
        known = {
            noun: {key: views[noun][key] for key in keys if key in views.get(noun, {})}
            for noun, keys in model.touched(events).items()
        }
        changed = model.fold(known, events)
        changes = [change for of_noun in changed.values() for change in of_noun.values()]
        before = {
            table: {key: views[table][key] for key in keys if key in views.get(table, {})}
            for table, keys in counters.touched(changes).items()
        }
        for noun, of_noun in changed.items():
            views.setdefault(noun, {}).update({key: it.after for key, it in of_noun.items()})
        for table, rows in counters.count(before, changes).items():
            views.setdefault(table, {}).update(rows)
    return views


def disturbed(events: Sequence[Event[Any]], seed: int) -> list[list[Event[Any]]]:
    """The events in another order, some of them twice, in batches of any size."""
    chance = random.Random(seed)
    shuffled = [*events, *chance.choices(events, k=len(events) // 2)]
    chance.shuffle(shuffled)
    batches = []
    while shuffled:
        size = chance.randint(1, 7)
        batches.append(shuffled[:size])
        shuffled = shuffled[size:]
    return batches


@given(st.integers(0, 2**32))
def test_a_whole_day_ends_in_the_same_model(seed: int) -> None:
    events = list(day())
    assert project(disturbed(events, seed)) == project([events])


def _alerts(story: Story, job: JobStory) -> None:
    of_run = {"tenant_id": TENANT, **job.run}
    of_run.pop("fence")
    story.tell(AlertRaised(**of_run, alert="stalled", detail="no step for 10 min"))
    story.tell(AlertCleared(**of_run, alert="stalled", detail="steps again"))
    story.tell(RunWarned(**of_run, number=1, warning="no_resume", detail="nothing is saved"))


def _checkpointing(story: Story, job: JobStory) -> None:
    about = {"tenant_id": TENANT, **job.run}
    reason = SaveFailure.STORE_FULL
    story.tell(CheckpointingFailed(**about, reason=reason, detail="the disk is full", last_step=3))
    story.tell(CheckpointingRecovered(**about, step=9))


def _suspected(story: Story, job: JobStory) -> None:
    story.tell(RunSuspected(**job.run))
    story.tell(RunHeard(**job.run))


def _lost(story: Story, job: JobStory) -> None:
    story.tell(RunLost(**job.run, detail="its shim died", ended_at=story.now))


def _removed(story: Story, job: JobStory) -> None:
    story.tell(NodeRemoved(node_id="node-1", reason="drained"))
    story.nodes("node-1", slots=story.events[-1].seq or 1)


def _refused(story: Story, job: JobStory) -> None:
    story.tell(
        JobRequestRejected(
            job_id=job.job_id,
            command_event_id=f"cmd-{len(story.events)}",
            reason=RejectionReason.ID_CONFLICT,
            detail="another spec",
        )
    )


def _cancels(story: Story, job: JobStory) -> None:
    story.tell(JobCancelling(job_id=job.job_id, reason="enough"))
    story.tell(JobCancelled(job_id=job.job_id, reason="enough", finished_at=story.now))


def _pauses(story: Story, job: JobStory) -> None:
    number = len(story.events)
    story.tell(JobPausing(job_id=job.job_id, reason="later"))
    if number % 3:
        story.tell(
            JobPaused(job_id=job.job_id, reason="later", attempt=number, paused_at=story.now)
        )
    if number % 2:
        story.tell(JobResumed(job_id=job.job_id, queued_at=story.now if number % 3 else None))


def _annotates(story: Story, job: JobStory) -> None:
    number = len(story.events)
    tags, project = (f"tag-{number}",), "digits" if number % 2 else None
    story.tell(JobAnnotated(job_id=job.job_id, tags=tags, note=f"note {number}", project=project))


def _stops(story: Story, job: JobStory) -> None:
    story.tell(JobStopping(job_id=job.job_id, reason="poor"))
    if len(story.events) % 2:
        story.tell(JobStopped(job_id=job.job_id, reason="poor", finished_at=story.now))


def _saves(story: Story, job: JobStory) -> None:
    number = len(story.events)
    job.loses(job.saves(number, is_best=number % 2 > 0), number)


def _fails(story: Story, job: JobStory) -> None:
    job.starts()  # each attempt is charged once
    job.fails()


def _ends(story: Story, job: JobStory) -> None:
    story.tell(JobFailed(job_id=job.job_id, attempts=1, detail="no", finished_at=story.now))


STEPS: tuple[Callable[[Story, JobStory], None], ...] = (
    lambda story, job: job.waits(),
    lambda story, job: job.starts(),
    lambda story, job: job.retries(),
    lambda story, job: job.beats(len(story.events)),
    _saves, _fails, _alerts, _checkpointing, _suspected, _lost, _removed, _refused, _cancels, _ends,
    _pauses, _stops, _annotates,
)  # fmt: skip


@given(st.lists(st.integers(0, len(STEPS) - 1), max_size=30), st.integers(0, 2**32))
def test_also_events_in_an_order_that_makes_no_sense(steps: list[int], seed: int) -> None:
    story = Story()
    story.nodes("node-1", "node-2")
    jobs = [story.job("one"), story.job("two")]
    for job in jobs:
        job.starts()
    for number, step in enumerate(steps):
        STEPS[step](story, jobs[number % 2])
    assert project(disturbed(story.events, seed)) == project([story.events])


@given(st.integers(0, 2**32))
def test_counters_are_what_the_views_add_up_to(seed: int) -> None:
    views = project(disturbed(list(day()), seed))
    states = [job.state for job in views[JOBS].values()]
    (tenant,) = views[TENANT_COUNTS].values()
    assert tenant.jobs_by_state == {state: states.count(state) for state in sorted(set(states))}
    assert tenant.num_charged_jobs == len(views[JOB_SPEND])
    spent = sum(spend.charged_micro_usd for spend in views[JOB_SPEND].values())
    assert tenant.charged_micro_usd == spent > 0
    (trials,) = views[TRIAL_COUNTS].values()
    values = {trial.number: trial.value for trial in views[TRIALS].values() if trial.value}
    assert (trials.num_proposed, trials.num_completed) == (len(views[TRIALS]), len(values))
    assert trials.highest_number == max(values, key=lambda number: values[number])
    assert trials.lowest_value == min(values.values())


def view(noun: Noun, *events: Event[Any]) -> Any:
    """The one view of this noun after these events."""
    (found,) = project([events])[noun].values()
    return found


def test_an_event_that_comes_late_moves_nothing_back() -> None:
    story = Story()
    job = story.job("late")
    job.starts()
    job.succeeds()
    queued, *others = [event for event in story.events if event.payload.kind.type != "x"]
    assert view(JOBS, *others, queued).state == "succeeded"
    assert view(JOBS, *others, queued).queued_at is not None


def test_a_job_that_waits_again_has_no_reason_of_before() -> None:
    story = Story()
    job = story.job("waits")
    job.waits()
    waiting: Job = view(JOBS, *story.events)
    assert (waiting.state, waiting.queue_position) == ("queued", 1)
    job.starts()
    assert view(JOBS, *story.events).waiting_reason is None


@pytest.mark.parametrize("is_late", [False, True])
def test_the_accepted_request_counts_among_others_under_its_id(is_late: bool) -> None:
    story = Story()
    other = Event(
        "cmd-1", "/x", story.now, TENANT, JobSubmit(request_id="a", spec=spec("a", max_steps=7))
    )
    story.wait(1)
    queued = story.job("a") and story.events[0]
    request = view(REQUESTS, *((queued, other) if is_late else (other, queued)))
    assert (request.is_accepted, request.max_steps) == (True, 400)
    assert view(JOBS, other, queued).submitted_at == other.occurred_at


def test_of_requests_that_were_not_accepted_the_first_counts() -> None:
    story = Story()
    later = story.now + timedelta(seconds=1)
    first = Event("cmd-2", "/x", story.now, TENANT, JobSubmit(request_id="a", spec=spec("first")))
    second = Event("cmd-1", "/x", later, TENANT, JobSubmit(request_id="a", spec=spec("second")))
    assert view(REQUESTS, first, second).name == view(REQUESTS, second, first).name == "first"
    assert view(REQUESTS, first).subject_id == job_id_for(TENANT, "a")


def test_a_node_that_was_removed_first_still_has_its_pool() -> None:
    story = Story()
    story.nodes("node-1")
    story.tell(NodeRemoved(node_id="node-1", reason="drained"))
    registered, removed = story.events
    assert isinstance(registered.payload, NodeRegistered)
    node = view(NODES, removed, registered)
    assert (node.pool, node.removed_seq > node.registered_seq) == ("default", True)


def test_a_release_is_final_whichever_comes_first() -> None:
    story = Story()
    job = story.job("held")
    job.starts()
    job.releases()
    found = [
        event
        for event in story.events
        if isinstance(event.payload, AllocationGranted | AllocationReleased)
    ]
    assert view(ALLOCATIONS, *reversed(found)).released_at is not None


def test_a_run_that_ended_stays_ended() -> None:
    story = Story()
    job = story.job("suspect")
    job.starts()
    _suspected(story, job)
    job.fails()
    *before, last = [event for event in story.events if type(event.payload) in RUNS.rules]
    run = view(RUNS, last, *before)
    assert (run.state, run.signal, run.num_pods) == ("failed", 9, 1)
    assert run.started_at is not None


def test_a_study_only_moves_forward() -> None:
    events = [event for event in day() if type(event.payload) in STUDIES.rules]
    assert view(STUDIES, *events).state == view(STUDIES, *reversed(events)).state == "running"


def test_an_event_that_changes_nothing_is_no_change() -> None:
    story = Story()
    story.nodes("node-1")
    [event] = story.events
    before = {NODES: {("node-1",): view(NODES, event)}}
    assert model.fold(before, [event]) == {NODES: {}}
    assert [len(keys) for keys in model.fold({}, [event]).values()] == [1]
    story.job("again")
    submitted = story.events[-1]
    job = view(JOBS, submitted)
    assert model.fold({JOBS: {(job.job_id,): job}}, [submitted])[JOBS] == {}, "an equal view"
