"""Curves of several jobs in one answer: by step, by time, or by time since each job began.

Each curve has the lowest, highest and mean value of equal buckets, so that no peak is hidden. Long
series are read from the coarsest level that is fine enough, few samples exactly. By time, a row of
a level counts where its middle is, which is less than a bucket from each of its samples.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from services.metrics.core import bucketing, charts, levels
from services.metrics.core.bucketing import Clock, Curve, Floats, Ints, Rows
from services.metrics.core.layout import Samples
from services.metrics.series import bucket_store
from services.metrics.series.bucket_store import ChunksOfPart, Part, TilesOfPart
from services.metrics.series.chart_reading import Source
from services.metrics.series.queries import CurvesQuery

# All curves together read so many single samples; beyond that, they are read from their levels.
MAX_EXACT_SAMPLES = 200_000
# Attempts too short for levels are read as they are: no more samples than fit in memory at once.
MAX_SAMPLES = 4_000_000
# By time, buckets are not aligned with the rows of levels, which may be so many buckets wide. The
# next finer level has four times the rows.
ROW_BUCKETS = 1.25
Clocks = Mapping[tuple[str, int], Clock]


class TooManySamples(Exception):
    """The attempts of these curves have more samples than one request reads."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Where buckets are: `num_buckets` of `width` from `start` on."""

    by: str
    start: float
    width: float
    num_buckets: int
    clocks: Clocks
    began_at: Mapping[str, float]

    def x(self, part: Part, steps: Ints) -> Floats | Ints:
        if self.by == "step":
            return steps
        times = self.clocks[part.job_id, part.attempt].times_of(steps)
        return times - self.began_at[part.job_id]

    def steps(self, part: Part) -> tuple[int, int]:
        """The first and last step of the part that are in a bucket."""
        end = self.start + self.width * self.num_buckets
        if self.by == "step":
            first, last = int(self.start), int(end) - 1
        else:
            clock, began_at = self.clocks[part.job_id, part.attempt], self.began_at[part.job_id]
            first = clock.step_at(self.start + began_at)
            last = clock.step_at(end + began_at) + 1
        return max(first, part.first_step), min(last, part.last_step)

    def row_width(self, part: Part) -> float:
        """The widest row of a level that is fine enough."""
        if self.by == "step":
            return self.width
        first, last = self.steps(part)
        return (last - first + 1) / self.num_buckets * ROW_BUCKETS


@dataclass(frozen=True, slots=True)
class _Plan:
    """How one part is read: from a level, or (None) its samples."""

    number: int
    part: Part
    level: int | None
    from_step: int
    to_step: int
    # The steps of later attempts.
    spans: tuple[tuple[int, int], ...]

    @property
    def reach(self) -> int:
        """How many steps before the first one a row may begin that holds it."""
        if self.level is None or self.part.base_width is None:
            return 0
        return levels.width_of(self.part.base_width, self.level) - 1

    def tiles(self) -> list[TilesOfPart]:
        if self.level is None or self.part.base_width is None:
            return []
        width = levels.width_of(self.part.base_width, self.level)
        wanted = [self._tiles(self.level, self.from_step // width * width, self.to_step)]
        for step in (edge for span in self.spans for edge in span) if self.level else ():
            if self.from_step <= step <= self.to_step:
                first = step // width * width
                wanted.append(self._tiles(0, first, first + width - 1))
        return _disjoint(wanted)

    def _tiles(self, level: int, first_step: int, last_step: int) -> TilesOfPart:
        assert self.part.base_width is not None
        width = levels.width_of(self.part.base_width, level)
        first, last = levels.tile_of(first_step, width), levels.tile_of(last_step, width)
        return TilesOfPart(self.number, self.part.run_id, self.part.name, level, first, last)

    def chunks(self) -> ChunksOfPart:
        return ChunksOfPart(
            self.number,
            self.part.job_id,
            self.part.name,
            self.part.run_id,
            self.from_step,
            self.to_step,
            only_new=self.level is not None,
        )


def _disjoint(wanted: Sequence[TilesOfPart]) -> list[TilesOfPart]:
    """The same tiles, each once."""
    found: list[TilesOfPart] = []
    for tiles in sorted(wanted):
        last = found[-1] if found else None
        if last is None or last[:4] != tiles[:4] or tiles.first_tile > last.last_tile:
            found.append(tiles)
        elif tiles.last_tile > last.last_tile:
            found[-1] = last._replace(last_tile=tiles.last_tile)
    return found


async def curves(source: Source, query: CurvesQuery) -> bytes:
    """The answer as JSON. Raises TooManySamples, and StoreError where old samples are needed and
    cannot be read.
    """
    connection = source.connection
    parts = await bucket_store.parts(connection, query.job_id, query.name, query.rank)
    clocks: Clocks = {}
    if query.by != "step":
        clocks = await bucket_store.clocks(connection, query.job_id)
        parts = [part for part in parts if (part.job_id, part.attempt) in clocks]
    axis = _axis(query, parts, clocks)
    plans = _plans(parts, axis)
    tiles = await bucket_store.tiles(
        connection, query.rank, [one for plan in plans for one in plan.tiles()]
    )
    wanted = [plan.chunks() for plan in plans]
    cold = await bucket_store.cold_chunks(connection, query.rank, wanted)
    read = await source.cold.samples([chunk for _, chunk in cold])
    chunks = [(number, one) for (number, _), one in zip(cold, read, strict=True)]
    chunks += await bucket_store.hot_chunks(connection, query.rank, wanted)
    return await asyncio.to_thread(_answer, query, axis, plans, tiles, chunks)


def _axis(query: CurvesQuery, parts: Sequence[Part], clocks: Clocks) -> _Axis:
    began_at: dict[str, float] = {}
    for (job_id, _), clock in clocks.items():
        first = float(clock.times[0]) if query.by == "relative" else 0.0
        began_at[job_id] = min(first, began_at.get(job_id, first))
    whole = _Axis(query.by, 0.0, 1.0, 1, clocks, began_at)
    ends = [whole.x(part, np.array([part.first_step, part.last_step])) for part in parts]
    low = float(min((x[0] for x in ends), default=0.0)) if query.start is None else query.start
    high = float(max((x[1] for x in ends), default=low)) if query.end is None else query.end
    high = max(low, high)
    if query.by == "step":
        step_width = charts.width_for(int(low), int(high), query.num_buckets)
        first, last = int(low) // step_width, int(high) // step_width
        start = first * step_width
        return _Axis(query.by, start, step_width, last - first + 1, clocks, began_at)
    width = (high - low) / query.num_buckets or 1.0
    return _Axis(query.by, low, width, query.num_buckets, clocks, began_at)


def _plans(parts: Sequence[Part], axis: _Axis) -> list[_Plan]:
    """Parts come by job and name, the highest attempt first; what later ones replaced is not read.

    A run that begins anew at each restart is read as if it had one attempt.
    """
    plans: list[_Plan] = []
    spans: dict[tuple[str, str], tuple[tuple[int, int], ...]] = defaultdict(tuple)
    num_exact = num_without_levels = 0
    for number, part in enumerate(parts):
        curve = part.job_id, part.name
        first, last = axis.steps(part)
        whole = part.first_step, part.last_step
        is_replaced = any(low <= whole[0] and whole[1] <= high for low, high in spans[curve])
        if first <= last and not is_replaced:
            level = None
            if part.base_width is not None:
                level = levels.level_for(part.base_width, int(axis.row_width(part)))
            if level is None:
                share = (last - first + 1) / (part.last_step - part.first_step + 1)
                num_exact += int(part.num_samples * share)
                if part.base_width is None:
                    num_without_levels += int(part.num_samples * share)
                elif num_exact > MAX_EXACT_SAMPLES:
                    level = 0
            plans.append(_Plan(number, part, level, first, last, spans[curve]))
        spans[curve] = bucketing.with_span(spans[curve], *whole)
    if num_without_levels > MAX_SAMPLES:
        raise TooManySamples(
            f"these curves have {num_without_levels:,} samples in attempts too short to be summed "
            f"up, and at most {MAX_SAMPLES:,} are read: name fewer jobs or series, or fewer steps"
        )
    return plans


def _answer(
    query: CurvesQuery,
    axis: _Axis,
    plans: Sequence[_Plan],
    tiles: Mapping[tuple[int, int], Rows],
    chunks: Sequence[tuple[int, Samples]],
) -> bytes:
    of_parts: dict[int, list[Samples]] = defaultdict(list)
    for number, samples in chunks:
        of_parts[number].append(samples)
    found: dict[tuple[str, str], list[tuple[Rows, Floats | Ints]]] = defaultdict(list)
    of_curves: dict[tuple[str, str], list[_Plan]] = defaultdict(list)
    for plan in plans:
        of_curves[plan.part.job_id, plan.part.name].append(plan)
    for curve, alike in of_curves.items():
        found[curve] += _of_samples(axis, alike, of_parts)
        found[curve] += _of_levels(axis, alike, tiles)
    return msgspec.json.encode(
        {
            "by": query.by,
            "start": axis.start,
            "width": axis.width,
            "curves": [
                _json(job_id, name, _curve(axis, found[job_id, name]))
                for job_id in query.job_id
                for name in query.name
                if found.get((job_id, name))
            ],
        }
    )


def _of_samples(
    axis: _Axis, plans: Sequence[_Plan], chunks: Mapping[int, Sequence[Samples]]
) -> list[tuple[Rows, Floats | Ints]]:
    """What parts of one curve add to it that are read as they are, or not in their levels yet."""
    plans = [plan for plan in plans if chunks.get(plan.number)]
    if not plans:
        return []
    pieces = [
        bucketing.Piece(chunks[plan.number], plan.from_step, plan.to_step, plan.spans)
        for plan in plans
    ]
    return _placed(axis, plans, *bucketing.of_pieces(pieces))


def _of_levels(
    axis: _Axis, plans: Sequence[_Plan], tiles: Mapping[tuple[int, int], Rows]
) -> list[tuple[Rows, Floats | Ints]]:
    """What parts of one curve that are read from a level add to it."""
    plans = [plan for plan in plans if (plan.number, plan.level) in tiles]
    if not plans:
        return []
    pieces = [
        bucketing.SummedPiece(
            tiles[plan.number, plan.level or 0],
            tiles.get((plan.number, 0)) if plan.level else None,
            plan.from_step - plan.reach,
            plan.to_step,
            plan.spans,
        )
        for plan in plans
    ]
    return _placed(axis, plans, *bucketing.of_summed(pieces))


def _placed(
    axis: _Axis, plans: Sequence[_Plan], rows: Rows, number: Ints
) -> list[tuple[Rows, Floats | Ints]]:
    """The rows, by plan, and where each of them is."""
    if not len(number):
        return []
    steps = (rows.first + rows.last) // 2
    if axis.by == "step":
        return [(rows, steps)]
    ends = np.cumsum(np.bincount(number, minlength=len(plans))).tolist()
    times: Floats = np.concatenate(
        [
            axis.x(plan.part, steps[first:end])
            for plan, (first, end) in zip(plans, pairwise([0, *ends]), strict=True)
        ]
    )
    return [(rows, times)]


def _curve(axis: _Axis, found: Sequence[tuple[Rows, Floats | Ints]]) -> Curve:
    rows = bucketing.joined([rows for rows, _ in found])
    x = np.concatenate([x for _, x in found])
    return bucketing.bucketed(rows, x, axis.start, axis.width, axis.num_buckets)


def _json(job_id: str, name: str, curve: Curve) -> dict[str, object]:
    """Buckets without finite values have null."""
    x = curve.x.tolist()
    return {
        "job_id": job_id,
        "name": name,
        "is_exact": curve.is_exact,
        "x": x,
        "means": curve.mean.tolist(),
        "lows": None if curve.is_exact else curve.low.tolist(),
        "highs": None if curve.is_exact else curve.high.tolist(),
        "not_finite": curve.not_finite.tolist(),
    }
