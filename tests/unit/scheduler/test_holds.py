"""What a budget holds back waits, and is in nobody's way."""

from datetime import UTC, datetime

import pytest

from drivetrain_schemas.jobs import WaitingReason
from services.scheduler.core.cycle import decide
from services.scheduler.core.holds import Hold
from services.scheduler.core.model import Kind, Node, QueuedJob
from services.scheduler.core.occupancy import Occupancy
from services.scheduler.core.queue import Queue
from services.scheduler.core.snapshot import Snapshot

NOW = datetime(2026, 2, 1, tzinfo=UTC)


def job(
    number: int,
    tenant_id: str = "vision",
    study_id: str | None = None,
    project: str | None = None,
) -> QueuedJob:
    kind = Kind("default", None, 1, 0)
    return QueuedJob(
        f"job-{number}", kind, number, tenant_id=tenant_id, study_id=study_id, project=project
    )


def snapshot(jobs: list[QueuedJob], *holds: Hold) -> Snapshot:
    nodes = (Node("a", "default", "cpu", 2),)
    return Snapshot(Occupancy(nodes, {}), Queue.of(jobs), holds)


@pytest.mark.parametrize(
    ("hold", "held", "granted"),
    [
        (Hold("vision", "b", "why"), {"job-1", "job-2"}, ["job-3"]),
        (Hold("vision", "b", "why", study_id="s"), {"job-2"}, ["job-1", "job-3"]),
        (Hold("vision", "b", "why", job_id="job-1"), {"job-1"}, ["job-2", "job-3"]),
        (Hold("other", "b", "why", study_id="s"), set(), ["job-1", "job-2"]),
        (Hold("vision", "b", "why", project="p"), {"job-2"}, ["job-1", "job-3"]),
    ],
)
def test_held_jobs_get_no_run_and_block_nobody(
    hold: Hold, held: set[str], granted: list[str]
) -> None:
    jobs = [job(1), job(2, study_id="s", project="p"), job(3, "other", project="p")]
    decision = decide(snapshot(jobs, hold), NOW)
    assert [grant.job_id for grant in decision.grants] == granted
    reached = [each for each in decision.waiting if each.reason is WaitingReason.BUDGET_REACHED]
    assert {each.detail for each in reached} <= {"why"}
    assert {each.job_id for waiting in reached for each in waiting.jobs} == held


def test_a_job_waits_for_the_first_of_the_budgets_that_hold_it() -> None:
    holds = [
        Hold("vision", "a", "the study", study_id="s"),
        Hold("vision", "b", "all"),
        Hold("vision", "c", "the project", project="p"),
    ]
    jobs = [job(1), job(2, study_id="s", project="p"), job(3, project="p")]
    decision = decide(snapshot(jobs, *holds), NOW)
    why = {each.job_id: waiting.detail for waiting in decision.waiting for each in waiting.jobs}
    assert why == {"job-1": "all", "job-2": "the study", "job-3": "all"}


def test_every_job_is_granted_or_waits() -> None:
    jobs = [job(number, "vision" if number % 3 else "other") for number in range(30)]
    decision = decide(snapshot(jobs, Hold("vision", "b", "why")), NOW)
    found = [grant.job_id for grant in decision.grants]
    found += [each.job_id for waiting in decision.waiting for each in waiting.jobs]
    assert sorted(found) == sorted(each.job_id for each in jobs)
