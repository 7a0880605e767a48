"""Where a job could cost less: what is advised, how much it would save, and the evidence.

Here: what the shares of its slots show (how long saving stopped training, and how much was lost for
want of a newer checkpoint), and what was paid while its devices were used too little, or not at
all. Others: [fewer_devices.py](fewer_devices.py), [spot_nodes.py](spot_nodes.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from drivetrain_schemas.units import short_money

# Saving should stop training for less of its time than this, and failures should cost less.
MOST_SAVING, MOST_LOST = 5, 5  # percent
LEAST_MICRO_USD = 10_000  # a cent: less is not worth reading

Kind = Literal[
    "fewer_checkpoints",
    "more_checkpoints",
    "busier_devices",
    "idle_slots",
    "fewer_devices",
    "spot_nodes",
]
# Both are about the same time of the same devices, so their savings do not add up.
_OF_USE: tuple[Kind, ...] = ("busier_devices", "idle_slots")


@dataclass(frozen=True, slots=True)
class JobShares:
    """Micro-dollars of a job by use."""

    job_id: str
    name: str | None
    productive: int
    checkpointing: int
    starting: int
    lost: int


@dataclass(frozen=True, slots=True)
class LowUse:
    """The time in which the devices of a job were used less than expected, or not at all.

    `micro_usd`: what was paid for it; `saving_micro_usd`: the part of it that the same work would
    not have cost at the expected use.
    """

    job_id: str
    name: str | None
    slot_hours: float
    used_percent: float
    expected_percent: float
    micro_usd: int
    saving_micro_usd: int


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`saving_micro_usd`: what is above the normal share, in the days that were looked at."""

    job_id: str
    job_name: str | None
    kind: Kind
    saving_micro_usd: int
    evidence: str
    advice: str


def recommendations(job: JobShares) -> list[Recommendation]:
    found = []
    trained = job.productive + job.checkpointing + job.lost
    if (saving := _above(job.checkpointing, trained, MOST_SAVING)) >= LEAST_MICRO_USD:
        share = _percent(job.checkpointing, trained)
        found.append(
            Recommendation(
                job.job_id,
                job.name,
                "fewer_checkpoints",
                saving,
                f"saving stopped training for {share} of its time",
                "save less often (checkpoint.every_minutes), or in the background",
            )
        )
    if (saving := _above(job.lost, trained, MOST_LOST)) >= LEAST_MICRO_USD:
        share = _percent(job.lost, trained)
        found.append(
            Recommendation(
                job.job_id,
                job.name,
                "more_checkpoints",
                saving,
                f"{share} of its training was lost when runs ended without a newer checkpoint",
                "save more often (checkpoint.every_minutes), and find out why its runs ended",
            )
        )
    return found


def busier_devices(low: LowUse) -> list[Recommendation]:
    """At most one; none where it would save less than a cent."""
    if low.saving_micro_usd < LEAST_MICRO_USD:
        return []
    evidence = (
        f"for {slot_time(low.slot_hours)} ({short_money(low.micro_usd)}) its devices were "
        f"used {low.used_percent:.0f} % on average; {low.expected_percent:.0f} % is expected"
    )
    advice = "load data with more workers, use larger batches, or take fewer or smaller devices"
    return [
        Recommendation(
            low.job_id, low.name, "busier_devices", low.saving_micro_usd, evidence, advice
        )
    ]


def idle_slots(idle: LowUse) -> list[Recommendation]:
    """About time without a step: at most one, none where it would save less than a cent."""
    if idle.saving_micro_usd < LEAST_MICRO_USD:
        return []
    evidence = (
        f"for {slot_time(idle.slot_hours)} ({short_money(idle.micro_usd)}) it held slots "
        "and made no step"
    )
    advice = "end programs that wait for input, or pause the job: it resumes from its checkpoint"
    return [
        Recommendation(
            idle.job_id, idle.name, "idle_slots", idle.saving_micro_usd, evidence, advice
        )
    ]


def ordered(found: Iterable[Recommendation]) -> list[Recommendation]:
    """The largest saving first; of those about the same time of a job only the largest."""
    shown: list[Recommendation] = []
    told: set[str] = set()
    for each in sorted(found, key=lambda each: (-each.saving_micro_usd, each.job_id, each.kind)):
        if each.kind in _OF_USE:
            if each.job_id in told:
                continue
            told.add(each.job_id)
        shown.append(each)
    return shown


def slot_time(hours: float) -> str:
    return f"{hours:.1f} slot hours" if hours >= 1 else f"{60 * hours:.2g} slot minutes"


def _above(part: int, whole: int, percent: int) -> int:
    """By how many micro-dollars `part` exceeds this share of the whole; negative: it does not."""
    return part - whole * percent // 100


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"
