"""Jobs on on-demand slots that would cost less in a pool of spot nodes.

Only jobs that save checkpoints: when a provider takes a node away, what was not saved is lost. The
share that is lost is that of the jobs that ran on such nodes; 5 % where none did.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drivetrain_schemas.units import short_money
from services.cost.core.charges import HOUR_MICROSECONDS
from services.cost.core.recommendations import LEAST_MICRO_USD, Recommendation, slot_time

EXPECTED_LOST_PERCENT = 5.0


@dataclass(frozen=True, slots=True)
class OnDemand:
    """What a job that saves checkpoints paid for its on-demand slots of this device type.

    `num_slots`: the most that it held at once.
    """

    job_id: str
    name: str | None
    device_type: str
    num_slots: int
    slot_microseconds: int
    micro_usd: int


@dataclass(frozen=True, slots=True)
class SpotPool:
    """A pool that has spot nodes only, of this device type."""

    pool: str
    device_type: str
    num_slots: int
    micro_usd_per_slot_hour: int


@dataclass(frozen=True, slots=True)
class Lost:
    """What training on spot nodes of this device type cost, and the part of it that was lost."""

    device_type: str
    micro_usd: int
    lost_micro_usd: int


def spot_nodes(
    job: OnDemand, pools: Iterable[SpotPool], lost: Sequence[Lost]
) -> list[Recommendation]:
    """The cheapest pool with as many slots, or none where nothing would be saved."""
    fitting = [
        pool
        for pool in pools
        if pool.device_type == job.device_type and pool.num_slots >= job.num_slots
    ]
    if not fitting:
        return []
    pool = min(fitting, key=lambda pool: (pool.micro_usd_per_slot_hour, pool.pool))
    percent = _lost_percent(job.device_type, lost)
    hours = job.slot_microseconds / HOUR_MICROSECONDS
    expected = hours * pool.micro_usd_per_slot_hour * (1 + percent / 100)
    saving = job.micro_usd - round(expected)
    if saving < LEAST_MICRO_USD:
        return []
    evidence = (
        f"{slot_time(hours)} on demand cost {short_money(job.micro_usd)}; in pool "
        f"{pool.pool}, of spot nodes, they cost {short_money(round(expected))} with the "
        f"{percent:.1f} % that is expected to be lost when nodes are taken away"
    )
    advice = f"submit it to pool {pool.pool}: it resumes from its checkpoints"
    return [Recommendation(job.job_id, job.name, "spot_nodes", saving, evidence, advice)]


def _lost_percent(device_type: str, lost: Sequence[Lost]) -> float:
    for one in lost:
        if one.device_type == device_type and one.micro_usd > 0:
            return 100 * one.lost_micro_usd / one.micro_usd
    return EXPECTED_LOST_PERCENT
