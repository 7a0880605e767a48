"""Money: what was charged, what accrues, what a job would cost."""

from datetime import date
from typing import Literal

from pydantic import BaseModel


class Unpriced(BaseModel):
    """Slots in use that no price covers."""

    pool: str
    device_type: str


class Spend(BaseModel):
    """Charged for what was released, accruing for what is held now.

    `platform_micro_usd` is the platform's own cost, in none of the other figures: slots that were
    still held after their pods had ended. Slots listed in `unpriced` count as 0, because their
    price is not known. `storage_micro_usd`: for stored checkpoints, up to the last whole day (UTC);
    in none of the other figures.
    """

    charged_micro_usd: int
    accruing_micro_usd: int
    total_micro_usd: int
    platform_micro_usd: int = 0
    storage_micro_usd: int = 0
    unpriced: list[Unpriced] = []


class JobCost(Spend):
    job_id: str


class CostOfJob(BaseModel):
    job_id: str
    name: str | None
    charged_micro_usd: int


class CostReport(BaseModel):
    """`items` are the jobs charged last, at most 500; the sum and `num_jobs` are of all.

    `spend` is None where the cost service did not answer; what is charged is always there.
    """

    by: Literal["job"]
    items: list[CostOfJob]
    num_jobs: int
    charged_micro_usd: int
    spend: Spend | None


class PoolShare(BaseModel):
    """What somebody had of a pool on a day (UTC).

    `kind`: productive, checkpointing, lost, starting: of a tenant; platform: held after the pods
    had ended; idle. `tenant_id`: the caller's, `others`, or None where nobody pays.
    """

    day: date
    pool: str
    device_type: str
    kind: str
    tenant_id: str | None
    slot_seconds: float
    micro_usd: int


class PoolReport(BaseModel):
    """The shares of a pool's day add up to what its nodes offered."""

    shares: list[PoolShare]


class Recommendation(BaseModel):
    """Where a job could cost less: what it would have saved in these days, the evidence, and what
    to do. `kind`: fewer_checkpoints, more_checkpoints, busier_devices, idle_slots, fewer_devices,
    spot_nodes."""

    job_id: str
    job_name: str | None
    kind: str
    saving_micro_usd: int
    evidence: str
    advice: str


class RecommendationList(BaseModel):
    """The largest saving first, at most 50."""

    recommendations: list[Recommendation]


class JobHistory(BaseModel):
    """What the latest `num_jobs` took that succeeded with the same name, command or project
    (`basis`); 0: there is no history.

    `low` to `high` is the range of eight in ten; of few jobs, the extremes. Amounts are at today's
    price.
    """

    num_jobs: int
    basis: Literal["name", "command", "project"] | None = None
    low_device_seconds: float | None = None
    median_device_seconds: float | None = None
    high_device_seconds: float | None = None
    low_micro_usd: int | None = None
    median_micro_usd: int | None = None
    high_micro_usd: int | None = None


class Estimate(BaseModel):
    """`estimated_micro_usd`: for the given seconds; without any, the median of `history`."""

    price_id: str
    price_micro_usd_per_slot_hour: int
    estimated_micro_usd: int
    history: JobHistory | None = None
