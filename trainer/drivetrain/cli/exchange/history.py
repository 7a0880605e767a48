"""Every sample that counts of a job, read through the gateway in parts of bounded size.

Of each step counts what the last attempt logged, as on the job's page. A sample carries no time of
its own: its time is that of its step, between two steps whose times are known spread evenly. What
the pods say of themselves is measured by time: there, steps are seconds since the job began.
"""

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from drivetrain.cli.errors import NoAnswer
from drivetrain.cli.output import Item
from drivetrain.cli.session import segment
from drivetrain_schemas.system_series import is_system_series

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

# What one request may answer: /v1/jobs/{id}/metrics.
MAX_POINTS = 20_000
MAX_SERIES = 50
MAX_NAMES_CHARACTERS = 8000  # as they stand in the address


class Sample(NamedTuple):
    """`at` is in seconds of the epoch. `value` may be NaN or infinite."""

    rank: int
    name: str
    attempt: int
    step: int
    at: float
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a rank over all attempts."""

    rank: int
    name: str
    num_samples: int
    first_step: int
    last_step: int


class Clock:
    """When the steps of one attempt were, in seconds of the epoch; `began`: the first of them."""

    def __init__(self, steps: Sequence[int], times: Sequence[float]) -> None:
        self._steps, self._times = steps, times
        self.began = times[0]

    def at(self, step: int) -> float:
        after = bisect_right(self._steps, step)
        if after in (0, len(self._steps)):
            return self._times[after and -1]
        (first, last), (began, ended) = (
            self._steps[after - 1 : after + 1],
            self._times[after - 1 : after + 1],
        )
        return began + (ended - began) * (step - first) / (last - first)


class History:
    """The samples of one job, whose view `job` is that of GET /v1/jobs/{id}."""

    def __init__(self, gateway: "Gateway", job: Item) -> None:
        self._gateway = gateway
        self._path = f"/v1/jobs/{segment(job['job_id'])}"
        self._attempts = [run["attempt"] for run in job["runs"]]
        self._clocks = _clocks(job, gateway.get(f"{self._path}/times"))
        self._began = min((clock.began for clock in self._clocks.values()), default=0.0)
        spec = job.get("spec") or {}
        self._num_ranks = int((spec.get("resources") or {}).get("devices") or 1)

    def series(self) -> Iterator[Series]:
        """By rank and name, without their samples."""
        for rank in range(self._num_ranks):
            for system in (None, "true"):
                query = {"rank": rank, "system": system}
                for one in self._gateway.pages(f"{self._path}/series", "series", query):
                    steps = one["first_step"], one["last_step"]
                    yield Series(rank, one["name"], one["num_samples"], *steps)

    def samples(self, wanted: Iterable[Series]) -> Iterator[Sample]:
        """Series after series, each by step."""
        for group in _groups(wanted):
            if len(group) == 1:
                yield from self._of_long_series(group[0])
            else:
                yield from self._of_short_series(group)

    def _of_short_series(self, group: Sequence[Series]) -> Iterator[Sample]:
        first = min(one.first_step for one in group)
        last = max(one.last_step for one in group)
        found: dict[str, dict[int, Sample]] = {one.name: {} for one in group}
        for attempt in self._attempts:
            columns, is_whole = self._read(group, attempt, first, last)
            if not is_whole:  # the job goes on, and has more by now
                for one in group:
                    yield from self._of_long_series(one)
                return
            for name, steps, values in columns:
                for step, value in zip(steps, values, strict=True):
                    found[name][step] = self._sample(group[0].rank, name, attempt, step, value)
        for samples in found.values():
            yield from (samples[step] for step in sorted(samples))

    def _of_long_series(self, one: Series) -> Iterator[Sample]:
        of_attempts = [self._of_attempt(one, attempt) for attempt in self._attempts]
        merged = heapq.merge(*of_attempts, key=lambda sample: (sample.step, -sample.attempt))
        for _, of_step in groupby(merged, attrgetter("step")):
            yield next(of_step)

    def _of_attempt(self, one: Series, attempt: int) -> Iterator[Sample]:
        """Range of steps after range; one that holds too much is read again in a smaller one."""
        steps = one.last_step - one.first_step + 1
        width = max(1, steps * MAX_POINTS // (2 * max(1, one.num_samples)))
        first = one.first_step
        while first <= one.last_step:
            last = min(first + width - 1, one.last_step)
            found, is_whole = self._read([one], attempt, first, last)
            if not is_whole and width > 1:
                width //= 2
                continue
            if not is_whole:
                raise NoAnswer(
                    f"step {first} of {one.name!r:.100} cannot be read whole",
                    fix="ask the operator to raise max_samples_read of the metrics service",
                )
            for name, at_steps, values in found:
                for step, value in zip(at_steps, values, strict=True):
                    yield self._sample(one.rank, name, attempt, step, value)
                if len(at_steps) < MAX_POINTS // 4:
                    width *= 2
            first = last + 1

    def _read(
        self, group: Sequence[Series], attempt: int, first: int, last: int
    ) -> tuple[list[tuple[str, list[int], list[Any]]], bool]:
        """Name, steps and values of each series in this range; whether nothing is left out."""
        names = [one.name for one in group]
        query: dict[str, Any] = {"rank": group[0].rank, "attempt": attempt, "name": names}
        limits = {"from_step": first, "to_step": last, "max_points": MAX_POINTS}
        answer = self._gateway.get(f"{self._path}/metrics", {**query, **limits})["series"]
        is_whole = not any(
            one["is_downsampled"] or one["read_from_step"] > first for one in answer.values()
        )
        return [(name, one["steps"], one["values"]) for name, one in answer.items()], is_whole

    def _sample(self, rank: int, name: str, attempt: int, step: int, value: Any) -> Sample:
        if is_system_series(name):
            since = max(0, step - int(self._began))
            return Sample(rank, name, attempt, since, float(step), float(value))
        return Sample(rank, name, attempt, step, self._clocks[attempt].at(step), float(value))


def _groups(wanted: Iterable[Series]) -> Iterator[list[Series]]:
    """Series of one rank that one request can answer whole; a long one by itself."""
    group: list[Series] = []
    num_samples = num_characters = 0
    for one in wanted:
        size = len(quote(one.name))
        num_samples += one.num_samples
        num_characters += size
        is_full = (
            len(group) == MAX_SERIES
            or num_samples > MAX_POINTS
            or num_characters > MAX_NAMES_CHARACTERS
        )
        if group and (is_full or one.rank != group[0].rank):
            yield group
            group, num_samples, num_characters = [], one.num_samples, size
        group.append(one)
    if group:
        yield group


def _clocks(job: Item, times: Item) -> dict[int, Clock]:
    """Of an attempt without any known time: the begin of the attempt."""
    known = {one["attempt"]: Clock(one["steps"], one["times"]) for one in times["attempts"]}
    for run in job["runs"]:
        began = run["started_at"] or run["starting_at"] or job["submitted_at"]
        at = datetime.fromisoformat(began).timestamp() if began else 0.0
        known.setdefault(run["attempt"], Clock([0], [at]))
    return known
