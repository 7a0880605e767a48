"""Counters move by what a view was before and is afterwards."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.gateway.core.charges import Charge
from services.gateway.core.counters import (
    JOB_SPEND,
    RUNG_COUNTS,
    TENANT_COUNTS,
    TRIAL_COUNTS,
    Change,
    JobSpend,
    RungCounts,
    TenantCounts,
    TrialCounts,
    count,
    touched,
)
from services.gateway.core.jobs import Job
from services.gateway.core.trials import Rung, Trial

AT = datetime(2026, 1, 1, tzinfo=UTC)
NONE: dict[Any, dict[Any, Any]] = {
    table: {} for table in (TENANT_COUNTS, TRIAL_COUNTS, RUNG_COUNTS, JOB_SPEND)
}
JOB = Job("job_a", "team")
TRIAL = Trial("study", 3, "job_a", {})
RUNG = Rung("study", 3, 10, judged_seq=5, verdict="stop", threshold=0.5)


def rung_counts(*changes: Change) -> RungCounts:
    (found,) = count(NONE, changes)[RUNG_COUNTS].values()
    return found


def trial_counts(*changes: Change) -> TrialCounts:
    (found,) = count(NONE, changes)[TRIAL_COUNTS].values()
    return found


def test_a_job_is_counted_in_the_state_that_it_has() -> None:
    queued, failed = replace(JOB, state="queued"), replace(JOB, state="failed")
    others = {TENANT_COUNTS: {("team",): TenantCounts("team", {"queued": 1})}}
    after = count({**NONE, **others}, [Change(None, queued), Change(queued, failed)])
    assert after[TENANT_COUNTS][("team",)].jobs_by_state == {"failed": 1, "queued": 1}
    same = count({**NONE, **others}, [Change(queued, replace(queued, note="x"))])
    assert same[TENANT_COUNTS][("team",)].jobs_by_state == {"queued": 1}


@pytest.mark.parametrize("state", ["completed", "failed", "stopped", "paused"])
def test_a_trial_is_counted_in_its_state_until_it_has_another(state: str) -> None:
    new = trial_counts(Change(None, TRIAL))
    assert new == TrialCounts("study", num_proposed=1)
    there = replace(TRIAL, state=state)
    assert trial_counts(Change(None, TRIAL), Change(TRIAL, there)) == replace(
        new, **{f"num_{state}": 1}
    )
    back = (Change(None, there), Change(there, there), Change(there, TRIAL))
    assert trial_counts(*back) == new


def of_value(number: int, value: float, *, is_safe: bool = True) -> Change:
    return Change(None, replace(TRIAL, number=number, value=value, is_safe=is_safe))


@pytest.mark.parametrize(
    ("values", "lowest", "highest"),
    [
        ([(1, 0.0)], (0.0, 1), (0.0, 1)),
        ([(1, 0.5), (2, -1.0), (3, 2.0)], (-1.0, 2), (2.0, 3)),
        ([(2, 0.5), (1, 0.5)], (0.5, 1), (0.5, 1)),
        ([(1, 0.5), (2, 0.5)], (0.5, 1), (0.5, 1)),
    ],
)
def test_both_ends_of_the_values_are_kept_and_of_equal_ones_the_first_trial(
    values: list[tuple[int, float]], lowest: tuple[float, int], highest: tuple[float, int]
) -> None:
    found = trial_counts(*(of_value(number, value) for number, value in values))
    assert (found.lowest_value, found.lowest_number) == lowest
    assert (found.highest_value, found.highest_number) == highest


def test_a_trial_that_is_not_safe_is_at_neither_end() -> None:
    found = trial_counts(of_value(1, 9.0, is_safe=False), of_value(2, 1.0))
    assert (found.lowest_value, found.highest_value) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("verdict", "num"),
    [("continue", "num_continued"), ("stop", "num_stopped"), ("pause", "num_paused")],
)
def test_a_trial_is_counted_at_a_rung_by_its_last_verdict(verdict: str, num: str) -> None:
    judged = replace(RUNG, verdict=verdict)
    other = replace(RUNG, verdict="other")
    once = rung_counts(Change(None, judged), Change(judged, judged))
    assert (once.num_judged, getattr(once, num)) == (1, 1)
    assert once.num_continued + once.num_stopped + once.num_paused == 1
    changed = rung_counts(Change(None, judged), Change(judged, other))
    assert (changed.num_judged, getattr(changed, num)) == (1, 0)


def test_the_threshold_of_a_rung_is_the_newest() -> None:
    newer = replace(RUNG, number=4, judged_seq=6, threshold=0.7)
    without = replace(RUNG, number=5, judged_seq=7, threshold=None)
    for changes in ([RUNG, newer, without], [newer, RUNG], [newer, replace(newer, threshold=0.9)]):
        found = rung_counts(*(Change(None, rung) for rung in changes))
        assert (found.threshold, found.threshold_seq) == (0.7, 6)


def charge(charge_id: str, amount: int, hour: int, job_id: str = "job_a") -> Charge:
    ends_at = AT + timedelta(hours=hour)
    facts: dict[str, Any] = {"amount_micro_usd": amount, "ends_at": ends_at, "job_id": job_id}
    return Charge(charge_id=charge_id, tenant_id="team", **facts)


def test_charges_of_a_job_add_up_once_each() -> None:
    first, second, other = charge("a", 5, 2), charge("b", 7, 1), charge("c", 1, 1, "job_b")
    after = count(
        NONE, [*(Change(None, it) for it in (first, second, other)), Change(first, first)]
    )
    assert after[JOB_SPEND][("job_a",)] == JobSpend("job_a", "team", 12, AT + timedelta(hours=2))
    tenant = after[TENANT_COUNTS][("team",)]
    assert (tenant.num_charged_jobs, tenant.charged_micro_usd) == (2, 13)


def test_each_kind_of_view_moves_counters_of_its_own() -> None:
    changes = [Change(None, view) for view in (JOB, TRIAL, RUNG, charge("a", 1, 1, "job_b"))]
    assert touched(changes) == {
        TENANT_COUNTS: {("team",)},
        TRIAL_COUNTS: {("study",)},
        RUNG_COUNTS: {("study", 10)},
        JOB_SPEND: {("job_b",)},
    }
