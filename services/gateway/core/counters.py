"""Counters instead of count queries: totals over views, updated by each change of a view.

A counter moves by the difference between a view before and after a batch, so events that change no
view move none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from services.gateway.core.charges import Charge
from services.gateway.core.jobs import Job
from services.gateway.core.noun import NEVER, Key
from services.gateway.core.trials import Rung, Trial


class Change(NamedTuple):
    """One view before a batch (None: there was none) and after it."""

    before: Any
    after: Any


class Table(NamedTuple):
    """Where counters of one kind are stored, and the fields that identify them."""

    table: str
    view: type
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TenantCounts:
    tenant_id: str
    jobs_by_state: Mapping[str, int]
    num_charged_jobs: int = 0
    charged_micro_usd: int = 0


@dataclass(frozen=True, slots=True)
class TrialCounts:
    """Both ends of the values: which one is the best follows from the study's goal.

    A trial that breaks the safety limit is at neither.
    """

    study_id: str
    num_proposed: int = 0
    num_completed: int = 0
    num_failed: int = 0
    lowest_value: float | None = None
    lowest_number: int | None = None
    highest_value: float | None = None
    highest_number: int | None = None
    num_stopped: int = 0
    num_paused: int = 0


@dataclass(frozen=True, slots=True)
class RungCounts:
    """What was decided at a rung of a study; `threshold` is the newest."""

    study_id: str
    step: int
    num_judged: int = 0
    num_continued: int = 0
    num_stopped: int = 0
    num_paused: int = 0
    threshold: float | None = None
    threshold_seq: int = NEVER


@dataclass(frozen=True, slots=True)
class JobSpend:
    job_id: str
    tenant_id: str
    charged_micro_usd: int
    charged_until: datetime


TENANT_COUNTS = Table("tenant_counts", TenantCounts, ("tenant_id",))
TRIAL_COUNTS = Table("trial_counts", TrialCounts, ("study_id",))
RUNG_COUNTS = Table("rung_counts", RungCounts, ("study_id", "step"))
JOB_SPEND = Table("job_spend", JobSpend, ("job_id",))
TABLES = (TENANT_COUNTS, TRIAL_COUNTS, RUNG_COUNTS, JOB_SPEND)

Counters = dict[Table, dict[tuple[Any, ...], Any]]


def touched(changes: Iterable[Change]) -> dict[Table, set[Key]]:
    """The counters that these changes move."""
    keys: dict[Table, set[Key]] = {table: set() for table in TABLES}
    for _, after in changes:
        match after:
            case Job():
                keys[TENANT_COUNTS].add((after.tenant_id,))
            case Trial():
                keys[TRIAL_COUNTS].add((after.study_id,))
            case Rung():
                keys[RUNG_COUNTS].add((after.study_id, after.step))
            case Charge():
                keys[TENANT_COUNTS].add((after.tenant_id,))
                keys[JOB_SPEND].add((after.job_id,))
    return keys


def count(counters: Counters, changes: Iterable[Change]) -> Counters:
    """The counters after these changes."""
    counted = {table: dict(rows) for table, rows in counters.items()}
    for before, after in changes:
        match after:
            case Job():
                rows, key = counted[TENANT_COUNTS], (after.tenant_id,)
                rows[key] = _count_job(rows.get(key) or TenantCounts(*key, {}), before, after)
            case Trial():
                rows, key = counted[TRIAL_COUNTS], (after.study_id,)
                rows[key] = _count_trial(rows.get(key) or TrialCounts(*key), before, after)
            case Rung():
                steps, at = counted[RUNG_COUNTS], (after.study_id, after.step)
                steps[at] = _count_rung(steps.get(at) or RungCounts(*at), before, after)
            case Charge() if before is None:
                _add_charge(counted, after)
    return counted


def _count_job(counts: TenantCounts, before: Job | None, after: Job) -> TenantCounts:
    if before is not None and before.state == after.state:
        return counts
    numbers = dict(counts.jobs_by_state)
    numbers[after.state] = numbers.get(after.state, 0) + 1
    if before is not None:
        numbers[before.state] -= 1
    return replace(counts, jobs_by_state={state: n for state, n in sorted(numbers.items()) if n})


def _count_trial(counts: TrialCounts, before: Trial | None, after: Trial) -> TrialCounts:
    was = before.state if before else None
    counted = replace(
        counts,
        num_proposed=counts.num_proposed + (before is None),
        num_completed=counts.num_completed + (after.state == "completed") - (was == "completed"),
        num_failed=counts.num_failed + (after.state == "failed") - (was == "failed"),
        num_stopped=counts.num_stopped + (after.state == "stopped") - (was == "stopped"),
        num_paused=counts.num_paused + (after.state == "paused") - (was == "paused"),
    )
    if after.value is None or not after.is_safe:
        return counted
    value, number = after.value, after.number
    if counted.lowest_value is None or (value, number) < (
        counted.lowest_value,
        counted.lowest_number,
    ):
        counted = replace(counted, lowest_value=value, lowest_number=number)
    if counted.highest_value is None or (-value, number) < (
        -counted.highest_value,
        counted.highest_number,
    ):
        counted = replace(counted, highest_value=value, highest_number=number)
    return counted


def _count_rung(counts: RungCounts, before: Rung | None, after: Rung) -> RungCounts:
    was = before.verdict if before else None
    is_newest = after.threshold is not None and after.judged_seq > counts.threshold_seq
    return replace(
        counts,
        num_judged=counts.num_judged + (before is None),
        num_continued=counts.num_continued + (after.verdict == "continue") - (was == "continue"),
        num_stopped=counts.num_stopped + (after.verdict == "stop") - (was == "stop"),
        num_paused=counts.num_paused + (after.verdict == "pause") - (was == "pause"),
        threshold=after.threshold if is_newest else counts.threshold,
        threshold_seq=after.judged_seq if is_newest else counts.threshold_seq,
    )


def _add_charge(counted: Counters, charge: Charge) -> None:
    amount = charge.amount_micro_usd
    spends, job = counted[JOB_SPEND], (charge.job_id,)
    tenants, tenant = counted[TENANT_COUNTS], (charge.tenant_id,)
    spend = spends.get(job)
    counts = tenants.get(tenant) or TenantCounts(charge.tenant_id, {})
    tenants[tenant] = replace(
        counts,
        num_charged_jobs=counts.num_charged_jobs + (spend is None),
        charged_micro_usd=counts.charged_micro_usd + amount,
    )
    if spend is None:
        spends[job] = JobSpend(charge.job_id, charge.tenant_id, amount, charge.ends_at)
    else:
        spends[job] = replace(
            spend,
            charged_micro_usd=spend.charged_micro_usd + amount,
            charged_until=max(spend.charged_until, charge.ends_at),
        )
