"""Who had the slots over time, and what they were used for."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel


class FleetSeries(BaseModel):
    """A value for each step: slots x microseconds, and micro-dollars.

    `kind` by use: productive, checkpointing, starting, lost, platform (held after the pods had
    ended) or idle. By holder: `held` by `holder` (None: jobs without a project), `others` (those
    with less, and other tenants), platform or idle. `name` is that of a job.
    """

    pool: str
    device_type: str
    kind: str
    holder: str | None = None
    name: str | None = None
    slot_microseconds: list[int]
    micro_usd: list[int]


class Fleet(BaseModel):
    """`starts_at` is the begin of each step (UTC) that has begun. `pools`: all that there were.

    The series of a step add up to what the nodes offered and cost, and the hours of a day to the
    day.
    """

    step: Literal["hour", "day"]
    starts_at: list[datetime]
    pools: list[str]
    series: list[FleetSeries]
