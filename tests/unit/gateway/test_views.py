"""What each event says is what its view shows."""

from functools import reduce
from typing import Any

import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.budgets import (
    AtLimit,
    BudgetChanged,
    BudgetPeriod,
    BudgetReached,
    BudgetReleased,
    BudgetRemoved,
    BudgetRequestRejected,
    BudgetSpec,
)
from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointingFailed,
    CheckpointingRecovered,
    CheckpointPinned,
    CheckpointRestored,
    SaveFailure,
)
from drivetrain_schemas.ids import allocation_id_for, checkpoint_id_for, run_id_for
from drivetrain_schemas.jobs import (
    JobPaused,
    JobPausing,
    JobRequestRejected,
    JobResumed,
    JobRetrying,
    JobStopping,
    JobWaiting,
    RejectionReason,
    TrialOf,
    WaitingReason,
)
from drivetrain_schemas.metrics import AlertCleared, AlertRaised
from drivetrain_schemas.runs import (
    RunHeard,
    RunStarted,
    RunStarting,
    RunUnreachable,
    RunWaiting,
    WaitCause,
)
from services.gateway.core.alerts import ALERTS
from services.gateway.core.budgets import BUDGETS
from services.gateway.core.checkpoints import CHECKPOINTS
from services.gateway.core.jobs import JOBS
from services.gateway.core.noun import NEVER
from services.gateway.core.rejections import REJECTIONS
from services.gateway.core.requests import REQUESTS
from services.gateway.core.runs import RUNS
from tests.handlers.gateway.story import START, TENANT
from tests.unit.gateway.views import JOB, STUDY, queued, shown, told, view

RUN = {"job_id": JOB, "run_id": run_id_for(JOB, 1), "attempt": 1, "fence": 11}


def refused(reason: RejectionReason) -> JobRequestRejected:
    return JobRequestRejected(job_id=JOB, command_event_id="c", reason=reason, detail="no")


PAUSED = JobPaused(job_id=JOB, reason="later", attempt=1, paused_at=START)
RETRYING = JobRetrying(
    job_id=JOB, next_attempt=2, backoff_seconds=2.5, not_before_at=START, retries_left=1
)


def test_a_job_of_a_trial_is_in_the_group_of_its_study() -> None:
    of_trial = view(JOBS, queued(TrialOf(study_id=STUDY, number=0), project="p"))
    assert shown(of_trial, "group_id", "spec_project", "state") == (STUDY, "p", "queued")
    assert view(JOBS, queued()).group_id is None
    request = view(REQUESTS, queued(TrialOf(study_id=STUDY, number=0)))
    assert shown(request, "study_id", "trial_number") == (STUDY, 0)
    assert shown(view(REQUESTS, queued()), "study_id", "trial_number") == (None, None)


def test_a_job_that_is_tried_again_says_when_and_forgets_it_when_it_is_queued() -> None:
    retrying = view(JOBS, queued(), RETRYING)
    assert shown(retrying, "state", "waiting_reason", "waiting_detail", "not_before_at") == (
        *("queued", "backing_off", "attempt 2 follows after 2.5 s"),
        START,
    )
    assert view(JOBS, RETRYING, queued()).not_before_at is None


def test_a_job_that_backs_off_keeps_its_time_when_the_scheduler_says_why() -> None:
    why = JobWaiting(
        job_id=JOB,
        reason=WaitingReason.BACKING_OFF,
        detail="attempt 1 was lost",
        queue_position=1,
        not_before_at=START,
    )
    waiting = view(JOBS, queued(), RETRYING, why)
    assert shown(waiting, "waiting_detail", "not_before_at") == ("attempt 1 was lost", START)


def test_what_its_pods_wait_for_is_shown_until_that_is_over() -> None:
    starting = RunStarting(**RUN, allocation_id=allocation_id_for(JOB, 1), num_pods=1)
    waits = RunWaiting(**RUN, cause=WaitCause.REFUSED, by="quota few", detail="refused: no")
    names = ("state", "waiting_reason", "waiting_detail")
    told = ("starting", "refused", "refused: no")
    assert shown(view(JOBS, queued(), starting, waits), *names) == told
    over = RunWaiting(**RUN)
    assert shown(view(JOBS, queued(), starting, waits, over), *names) == ("starting", None, None)
    started = RunStarted(**RUN, started_at=START)
    runs = view(JOBS, queued(), starting, waits, started)
    assert shown(runs, *names) == ("running", None, None)


@pytest.mark.parametrize(
    ("payloads", "state", "requested"),
    [
        ((JobPausing(job_id=JOB, reason=""),), "queued", "pause"),
        ((JobStopping(job_id=JOB, reason=""),), "queued", "stop"),
        ((JobPausing(job_id=JOB, reason=""), PAUSED), "paused", None),
        ((PAUSED, JobResumed(job_id=JOB, queued_at=START)), "queued", None),
        ((JobPausing(job_id=JOB, reason=""), JobResumed(job_id=JOB)), "queued", None),
        ((PAUSED, JobResumed(job_id=JOB)), "paused", None),
    ],
)
def test_what_was_asked_of_a_job_is_shown_until_it_happens_or_is_withdrawn(
    payloads: tuple[Payload, ...], state: str, requested: str | None
) -> None:
    assert shown(view(JOBS, queued(), *payloads), "state", "requested") == (state, requested)


def test_a_refused_job_is_rejected_and_one_that_was_accepted_goes_on() -> None:
    refusal = refused(RejectionReason.ID_CONFLICT)
    assert shown(view(JOBS, refusal), "state", "refused_detail") == ("rejected", "no")
    assert shown(view(JOBS, queued(), refusal), "state", "refused_detail") == ("queued", "no")


@pytest.mark.parametrize("reason", RejectionReason)
def test_a_refusal_about_no_request_makes_no_job(reason: RejectionReason) -> None:
    is_about_none = reason in (RejectionReason.NO_SUCH_JOB, RejectionReason.ALREADY_FINISHED)
    assert JOBS.find_key(told(refused(reason))) == (None if is_about_none else (JOB,))
    assert REJECTIONS.find_key(told(refused(reason))) == ("c", JOB)


@pytest.mark.parametrize(("attempts", "shown_attempt"), [((1, 2), 2), ((2, 1), 2), ((1, 1), 1)])
def test_the_run_of_a_job_is_that_of_its_highest_attempt(
    attempts: tuple[int, ...], shown_attempt: int
) -> None:
    starting = [
        RunStarting(
            **{**RUN, "run_id": run_id_for(JOB, attempt), "attempt": attempt},
            allocation_id=allocation_id_for(JOB, attempt),
            num_pods=3,
        )
        for attempt in attempts
    ]
    job = view(JOBS, *starting)
    assert shown(job, "attempt", "run_id") == (shown_attempt, run_id_for(JOB, shown_attempt))
    run = view(RUNS, starting[0], RunHeard(**RUN))
    assert shown(run, "num_pods", "state") == (3, "running")


def test_a_run_is_unreachable_while_a_node_is() -> None:
    away = RunUnreachable(**RUN, node_ids=("n",), detail="n is silent")
    back = RunUnreachable(**RUN, node_ids=(), detail="all answer")
    assert view(RUNS, away).unreachable == "n is silent"
    assert view(RUNS, away, back).unreachable is None


def test_of_two_events_the_higher_number_counts_and_one_without_a_number_counts_as_0() -> None:
    low, high = (
        told(RunUnreachable(**RUN, node_ids=("n",), detail=str(seq)), seq) for seq in (None, 1)
    )
    for events in ((low, high), (high, low), (high, low, high)):
        assert reduce(RUNS.apply, events, None).unreachable == "1"
    assert shown(RUNS.apply(None, low), "unreachable", "unreachable_seq") == ("None", 0)
    again = told(RunUnreachable(**RUN, node_ids=("n",), detail="other"), 1)
    assert RUNS.apply(RUNS.apply(None, high), again).unreachable == "1", "a number comes once"


OF_ALERT: dict[str, Any] = {k: v for k, v in RUN.items() if k != "fence"} | {"tenant_id": TENANT}


def failed(last_step: int | None) -> CheckpointingFailed:
    reason = SaveFailure.STORE_FULL
    return CheckpointingFailed(
        **RUN, tenant_id=TENANT, reason=reason, detail="full", failed_step=9, last_step=last_step
    )


@pytest.mark.parametrize(
    ("last_step", "detail"),
    [
        (None, "no checkpoint: full"),
        (0, "no checkpoint since step 0: full"),
        (1000, "no checkpoint since step 1,000: full"),
    ],
)
def test_checkpoints_that_fail_are_an_alert_until_one_is_saved(
    last_step: int | None, detail: str
) -> None:
    alert = view(ALERTS, failed(last_step))
    assert shown(alert, "alert", "step", "detail") == ("no_checkpoints", 9, detail)
    assert (alert.raised_seq, alert.cleared_seq) == (1, NEVER)
    over = view(ALERTS, failed(1), CheckpointingRecovered(**RUN, tenant_id=TENANT, step=10))
    assert (over.raised_seq, over.cleared_seq) == (1, 2)


def test_an_alert_has_its_own_name() -> None:
    raised = AlertRaised(**OF_ALERT, alert="stalled", detail="no step", step=3)
    cleared = AlertCleared(**OF_ALERT, alert="stalled", detail="steps again")
    assert shown(view(ALERTS, raised, cleared), "alert", "step", "cleared_seq") == ("stalled", 3, 2)


def committed(*, is_best: bool) -> CheckpointCommitted:
    key = f"checkpoints/{TENANT}/{JOB}/f000000000011-s000000000009-aaaaaaaa/manifest.json"
    return CheckpointCommitted(
        checkpoint_id=checkpoint_id_for(key), tenant_id=TENANT, **RUN, step=9, manifest_key=key,
        size_bytes=1, num_shards=1, epoch=0, metrics={}, is_latest=True, is_best=is_best,
    )  # fmt: skip


OF_CHECKPOINT = {
    "checkpoint_id": committed(is_best=True).checkpoint_id, "tenant_id": TENANT, **RUN, "step": 9
}  # fmt: skip


def restored(attempt: int) -> CheckpointRestored:
    resumed = {"resumed_by_run_id": run_id_for(JOB, attempt), "resumed_by_attempt": attempt}
    return CheckpointRestored(**OF_CHECKPOINT, **resumed, load_seconds=1.0)


def test_a_checkpoint_that_was_the_best_has_the_number_of_its_commit() -> None:
    assert shown(view(CHECKPOINTS, committed(is_best=True)), "best_seq", "is_pinned") == (1, False)
    assert view(CHECKPOINTS, committed(is_best=False)).best_seq is None
    deleted = CheckpointDeleted(**OF_CHECKPOINT, size_bytes=1, reason="old")
    pinned = CheckpointPinned(**OF_CHECKPOINT)
    found = view(CHECKPOINTS, committed(is_best=True), deleted, pinned)
    assert shown(found, "deleted_seq", "deleted_reason", "is_pinned") == (2, "old", True)


@pytest.mark.parametrize("attempts", [(2,), (2, 1), (1, 2)])
def test_a_checkpoint_names_the_last_attempt_that_used_it(attempts: tuple[int, ...]) -> None:
    assert view(CHECKPOINTS, *map(restored, attempts)).restored_by_attempt == 2


OF_BUDGET = {"tenant_id": TENANT, "name": "b", "version": 3}
BUDGET = BudgetSpec(
    limit_micro_usd=10, period=BudgetPeriod.TOTAL, warn_percents=(50, 90), at_limit=AtLimit.HOLD
)
CHANGED = BudgetChanged(**OF_BUDGET, spec=BUDGET, changed_at=START)
REACHED = BudgetReached(
    **OF_BUDGET, percent=90, action=AtLimit.WARN, spent_micro_usd=9, spec=BUDGET, reached_at=START
)
RELEASED = BudgetReleased(**OF_BUDGET, reason="new_period", spent_micro_usd=1, released_at=START)


def test_a_budget_is_as_it_was_set_until_it_is_removed() -> None:
    budget = view(BUDGETS, CHANGED)
    assert shown(budget, "version", "is_removed", "limit_micro_usd", "at_limit") == (
        *(3, False, 10),
        "hold",
    )
    assert (budget.period, budget.warn_percents) == ("total", [50, 90])
    assert view(BUDGETS, CHANGED, BudgetRemoved(**OF_BUDGET, removed_at=START)).is_removed
    assert view(BUDGETS, REACHED).is_removed, "what it is has not been said yet"


def test_a_budget_says_what_was_reached_until_it_is_released() -> None:
    names = ("reached_percent", "spent_micro_usd", "reached_at")
    assert shown(view(BUDGETS, CHANGED, REACHED), *names) == (90, 9, START)
    assert shown(view(BUDGETS, CHANGED, REACHED, RELEASED), *names) == (0, 1, None)


def test_a_refusal_that_names_nothing_waits_for_nobody() -> None:
    refusal = BudgetRequestRejected(
        tenant_id=TENANT, name="b", command_event_id="c", reason="too_many", detail="no"
    )
    found = view(REJECTIONS, refusal)
    assert shown(found, "subject_id", "reason", "detail", "errors") == ("b", "too_many", "no", [])
    assert REJECTIONS.find_key(told(refusal.model_copy(update={"name": None}))) is None
