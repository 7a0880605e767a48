"""What a job logged: samples, charts and the times of its steps."""

from typing import Literal

from pydantic import BaseModel


class Series(BaseModel):
    """Equal lengths; `values` has the strings nan, inf and -inf, for which JSON has no number.

    `read_from_step`: the first step that was read, where one request cannot read all.
    """

    steps: list[int]
    values: list[float | Literal["nan", "inf", "-inf"]]
    num_samples: int
    is_downsampled: bool
    read_from_step: int = 0


class Samples(BaseModel):
    job_id: str
    series: dict[str, Series]
    num_series_left_out: int = 0


class WindowStatistics(BaseModel):
    """Of the values in one window; `deviation` is their standard deviation."""

    num_finite: int
    num_not_finite: int
    mean: float
    deviation: float
    low: float
    high: float


class Window(BaseModel):
    """`starts_at`: seconds since 1970. `steps_per_second` of the middle pod, `slowest_share` the
    slowest one's part of it; `pods`: the slowest ones, with their steps per second.
    `straggler_ratio`: the own work of the slowest rank in a step, before it waits for the others,
    by that of the middle rank; null where ranks do not wait for each other."""

    starts_at: int
    attempt: int
    steps_per_second: float | None
    slowest_share: float | None
    straggler_ratio: float | None = None
    slowest_rank: int | None = None
    pods: dict[str, float]
    num_pods: int
    utilisation_percent: float | None
    series: dict[str, WindowStatistics]


class Windows(BaseModel):
    job_id: str
    window_seconds: int
    windows: list[Window]


class SeriesSummary(BaseModel):
    """One series of a rank over all attempts; the last step and value are of the last attempt."""

    name: str
    num_samples: int
    first_step: int
    last_step: int
    last_value: float | Literal["nan", "inf", "-inf"]


class SeriesPage(BaseModel):
    """By name. `next` is the `after` of the following page; `num_series` counts all pages.

    `num_samples_left_out`: of more names than a job may have, or beyond a quota.
    """

    job_id: str
    series: list[SeriesSummary]
    next: str | None
    num_series: int
    num_samples_left_out: int


class SystemValue(BaseModel):
    """`last_step`: when it was measured, in seconds of the epoch."""

    name: str
    last_step: int
    last_value: float | Literal["nan", "inf", "-inf"]


class SystemOfRank(BaseModel):
    rank: int
    series: list[SystemValue]


class SystemPage(BaseModel):
    """One entry for each pod, by its first rank. `next` is the `from_rank` of the next page."""

    job_id: str
    ranks: list[SystemOfRank]
    next: int | None


class ChartAttempt(BaseModel):
    """What an attempt logged of the series of a chart."""

    attempt: int
    first_step: int
    last_step: int


class Curve(BaseModel):
    """`steps` is an index into the chart's lists of steps, all lists are of that one's length.

    Each of `values` is a sample, or where there are `lows` and `highs` the mean of those from its
    step to before the next point. `not_finite` has the first step of each point with a NaN or an
    infinite sample; a point without finite samples is null. It begins at `from_step`: earlier
    points, of an earlier answer, stay.
    """

    steps: int
    from_step: int
    values: list[float | None]
    lows: list[float | None] | None
    highs: list[float | None] | None
    not_finite: list[int]


class Chart(BaseModel):
    """A point covers `width` steps, except in exact series. Whole, or what changed: `is_whole`.

    `next` is the `after` of the next request for the same series.
    """

    job_id: str
    width: int
    is_whole: bool
    next: str
    attempts: list[ChartAttempt]
    steps: list[list[int]]
    series: dict[str, Curve]


class AttemptTimes(BaseModel):
    """`times[i]`: when `steps[i]` was first reported, in seconds of the epoch; both ascend."""

    attempt: int
    steps: list[int]
    times: list[float]


class Times(BaseModel):
    job_id: str
    attempts: list[AttemptTimes]
