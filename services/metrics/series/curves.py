"""The series of a job as the read API answers them: their names, their samples, a chart of many.

Work on many numbers is done in a thread: the event loop also keeps the consumer alive.
"""

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal

import asyncpg
import msgspec

from services.metrics.core import charts
from services.metrics.core.buckets import Bucket
from services.metrics.core.charts import Position
from services.metrics.core.downsampling import downsample
from services.metrics.core.series import Chunk, Series, merge
from services.metrics.series import chart_reading
from services.metrics.series import store as series_store
from services.metrics.series.chart_json import encode
from services.metrics.series.chart_reading import Source
from services.metrics.series.queries import (
    LAST_STEP,
    MAX_SERIES,
    ChartQuery,
    SamplesQuery,
    SeriesQuery,
    SystemQuery,
)
from services.metrics.series.store import Extent, Range


async def page_of_series(connection: asyncpg.Connection, query: SeriesQuery) -> dict[str, Any]:
    found = await series_store.series_page(connection, query, query.limit + 1)
    rows = [
        {
            "name": one.name,
            "num_samples": one.num_samples,
            "first_step": one.first_step,
            "last_step": one.last_step,
            "last_value": _json_value(one.last_value),
        }
        for one in found[: query.limit]
    ]
    return {
        "job_id": query.job_id,
        "series": rows,
        "next": rows[-1]["name"] if len(found) > query.limit else None,
        "num_series": await series_store.num_series(connection, query),
        "num_samples_left_out": await series_store.num_left_out(connection, query.job_id),
    }


async def page_of_system(connection: asyncpg.Connection, query: SystemQuery) -> dict[str, Any]:
    """What the pods of a job used last, by the first rank of each pod."""
    found = await series_store.newest_system_values(
        connection, query.job_id, query.from_rank, query.limit + 1
    )
    ranks: dict[int, list[dict[str, Any]]] = {}
    for one in found:
        value = _json_value(one.last_value)
        last = {"name": one.name, "last_step": one.last_step, "last_value": value}
        ranks.setdefault(one.rank, []).append(last)
    following = sorted(ranks)[query.limit :]
    return {
        "job_id": query.job_id,
        "ranks": [
            {"rank": rank, "series": series}
            for rank, series in ranks.items()
            if rank not in following
        ],
        "next": following[0] if following else None,
    }


async def samples(source: Source, query: SamplesQuery, max_samples: int) -> dict[str, Any]:
    connection = source.connection
    names = tuple(dict.fromkeys(query.name)) or query.names
    if names is None:
        names = tuple(
            await series_store.names_of_job(
                connection, query.job_id, query.rank, query.attempt, system=query.system
            )
        )
    wanted = Range(
        query.job_id,
        query.rank,
        names[:MAX_SERIES],
        query.from_step,
        query.to_step,
        query.attempt,
    )
    first = await series_store.first_readable_step(connection, wanted, max_samples)
    wanted = replace(wanted, from_step=first)
    old = await series_store.cold_chunks_of_series(connection, wanted)
    chunks: dict[str, list[Chunk]] = {name: [] for name in wanted.names}
    for of, chunk in zip(old, await source.cold.read(old), strict=True):
        chunks[of.series].append(chunk)
    for name, new in (await series_store.chunks_of_series(connection, wanted)).items():
        chunks[name].extend(new)

    def answer() -> dict[str, Any]:
        series = {name: merge(of, first, query.to_step) for name, of in chunks.items()}
        return {name: _samples(one, first, query.max_points) for name, one in series.items()}

    return {
        "job_id": query.job_id,
        "series": await asyncio.to_thread(answer),
        "num_series_left_out": max(0, len(names) - MAX_SERIES),
    }


def _samples(whole: Series, first: int, max_points: int) -> dict[str, Any]:
    shown = downsample(whole, max_points)
    return {
        "steps": shown.steps,
        "values": [_json_value(value) for value in shown.values],
        "num_samples": len(whole.steps),
        "is_downsampled": len(shown.steps) < len(whole.steps),
        "read_from_step": first,
    }


@dataclass(frozen=True, slots=True)
class _Plan:
    """What to read of a chart, and how to draw it."""

    wanted: Range
    extents: tuple[Extent, ...]
    max_points: int
    width: int
    view: int
    # Of each series that is in the answer, from which step on it is.
    from_steps: Mapping[str, int]
    is_whole: bool

    @property
    def is_of_all_steps(self) -> bool:
        return self.wanted.from_step == 0 and self.wanted.to_step == LAST_STEP


async def chart(source: Source, query: ChartQuery, max_samples: int) -> bytes:
    """One answer for all series: whole, or what changed since the position `after`.

    The connection is in a transaction that sees one state of the tables.
    """
    plan = await _planned(source.connection, query)
    chunk = await series_store.newest_chunk(source.connection, plan.wanted)
    found = await chart_reading.read(
        source, plan.wanted, plan.extents, plan.from_steps, plan.width, max_samples
    )
    return await asyncio.to_thread(_answer, plan, chunk, found)


async def _planned(connection: asyncpg.Connection, query: ChartQuery) -> _Plan:
    names = tuple(dict.fromkeys(query.name))
    wanted = Range(query.job_id, query.rank, names, query.from_step, query.to_step, query.attempt)
    extents = tuple(await series_store.extents(connection, wanted))
    attempts = sorted({one.attempt for one in extents})
    view = zlib.crc32(repr((names, query.rank, query.attempt, query.max_points, attempts)).encode())
    known = charts.read_position(query.after)
    max_points = charts.points_per_series(query.max_points, len(names))
    if known is not None and known.view == view:
        max_points = max(charts.MIN_POINTS, min(max_points, known.max_points))
    plan = _Plan(
        wanted=wanted,
        extents=extents,
        max_points=max_points,
        width=_width(extents, wanted, max_points),
        view=view,
        from_steps=dict.fromkeys(names, 0),
        is_whole=True,
    )
    if known is None or (known.view, known.width) != (view, plan.width) or not plan.is_of_all_steps:
        return plan
    changes = await series_store.changes(connection, wanted, known.chunk)
    from_steps = {}
    for change in changes:
        num_samples = _num_samples(plan, change.name)
        # Where few were there before, the series was exact until now.
        is_whole = num_samples - change.num_samples <= max_points
        from_steps[change.name] = 0 if is_whole else change.from_step // plan.width * plan.width
    return replace(plan, from_steps=from_steps, is_whole=False)


def _width(extents: tuple[Extent, ...], wanted: Range, max_points: int) -> int:
    if not extents:
        return 1
    first = max(wanted.from_step, min(one.first_step for one in extents))
    last = min(wanted.to_step, max(one.last_step for one in extents))
    return charts.width_for(first, max(first, last), max_points)


def _num_samples(plan: _Plan, name: str) -> int:
    return sum(one.num_samples for one in plan.extents if one.name == name)


def _answer(plan: _Plan, chunk: int, found: Mapping[str, Series | list[Bucket]]) -> bytes:
    """The answer as JSON: with fewer points where it would be too large."""
    while True:
        curves = {
            name: charts.draw(one, plan.width, is_exact=_is_exact(plan, name, one))
            for name, one in found.items()
        }
        position = Position(chunk, plan.width, plan.max_points, plan.view)
        content = msgspec.json.encode(
            {
                "job_id": plan.wanted.job_id,
                "width": plan.width,
                "is_whole": plan.is_whole,
                "next": str(position),
                "attempts": _attempts(plan.extents),
                **encode(curves, plan.from_steps),
            }
        )
        if len(content) <= charts.MAX_BYTES or plan.max_points <= charts.MIN_POINTS:
            return content
        max_points = max(charts.MIN_POINTS, plan.max_points // 2)
        width = max(2 * plan.width, _width(plan.extents, plan.wanted, max_points))
        plan = replace(plan, max_points=max_points, width=width)


def _is_exact(plan: _Plan, name: str, found: Series | list[Bucket]) -> bool:
    if isinstance(found, Series) and not plan.is_of_all_steps:
        return len(found.steps) <= plan.max_points
    return _num_samples(plan, name) <= plan.max_points


def _attempts(extents: tuple[Extent, ...]) -> list[dict[str, int]]:
    """Of each attempt its first and last step in these series."""
    steps: dict[int, tuple[int, int]] = {}
    for one in extents:
        first, last = steps.get(one.attempt, (one.first_step, one.last_step))
        steps[one.attempt] = min(first, one.first_step), max(last, one.last_step)
    return [
        {"attempt": attempt, "first_step": first, "last_step": last}
        for attempt, (first, last) in sorted(steps.items())
    ]


def _json_value(value: float) -> float | Literal["nan", "inf", "-inf"]:
    if isfinite(value):
        return value
    if value != value:
        return "nan"
    return "inf" if value > 0 else "-inf"
