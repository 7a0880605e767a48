"""What a chart needs of many series, read by a few statements for all of them.

Series with levels of at most the chart's width are read from these, with the chunks that are not in
them yet; all others from their chunks. Where attempts of a series meet, level 0 tells which steps
are the higher attempt's; within one of its buckets, some samples of the lower one may be included
although they are superseded.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from services.metrics.cold.reading import ColdReader
from services.metrics.core import levels
from services.metrics.core.buckets import Bucket, cut, widen
from services.metrics.core.series import Chunk, Series, merge
from services.metrics.series import level_store
from services.metrics.series import store as series_store
from services.metrics.series.level_store import Tiles
from services.metrics.series.store import Extent, Range

# Of one series: if attempts meet more often, the last places are looked at closely.
MAX_MIXED = 16
Found = dict[str, Series | list[Bucket]]
ByRun = Mapping[tuple[str, str], Sequence[Bucket]]


@dataclass(frozen=True, slots=True)
class Source:
    """What a request reads from: the tables, and the object store for old samples."""

    connection: asyncpg.Connection
    cold: ColdReader


@dataclass(frozen=True, slots=True)
class _Part:
    """One series of one run; `level` is None where its chunks are read."""

    extent: Extent
    from_step: int
    level: int | None

    @property
    def width(self) -> int:
        """Of the buckets that are read."""
        assert self.level is not None
        return levels.width_of(self.base_width, self.level)

    @property
    def base_width(self) -> int:
        assert self.extent.base_width is not None
        return self.extent.base_width

    def tiles(self, level: int, first_step: int, last_step: int) -> Tiles:
        width = levels.width_of(self.base_width, level)
        first, last = levels.tile_of(first_step, width), levels.tile_of(last_step, width)
        return Tiles(self.extent.run_id, self.extent.name, level, first, last)


@dataclass(frozen=True, slots=True)
class _Resolved:
    """Buckets of a series by their number, those that are mixed, and what they are made of."""

    parts: Sequence[_Part]
    samples: Mapping[int, Series]
    width: int
    # That of the finest buckets of all parts.
    fine_width: int
    buckets: Mapping[int, Bucket]
    mixed: Sequence[int]


async def read(
    source: Source,
    wanted: Range,
    extents: Sequence[Extent],
    from_steps: Mapping[str, int],
    width: int,
    max_samples: int,
) -> Found:
    """Of each series in `from_steps` the steps from there on: samples, or buckets up to `width`."""
    last_step = (wanted.to_step // width + 1) * width - 1
    parts = _parts(wanted, extents, from_steps, width)
    chunks = await _chunks(source, wanted, last_step, parts, max_samples)
    leveled = [part for part in parts if part.level is not None]
    tiles = [part.tiles(part.level or 0, part.from_step, last_step) for part in leveled]
    found = await level_store.read_tiles(source.connection, wanted.rank, tiles) if tiles else {}

    def combine() -> tuple[Found, dict[str, _Resolved]]:
        whole: Found = {}
        resolved = {}
        for name in from_steps:
            of_name = [part for part in parts if part.extent.name == name]
            if any(part.level is not None for part in of_name):
                resolved[name] = _resolve(of_name, chunks, found, last_step)
            else:
                of_all = [one for part in of_name for one in chunks.get(_key(part), ())]
                first = max(wanted.from_step, from_steps[name])
                whole[name] = merge(of_all, first, wanted.to_step)
        return whole, resolved

    whole, resolved = await asyncio.to_thread(combine)
    fine = await _fine(source.connection, wanted.rank, resolved)
    for name, one in resolved.items():
        whole[name] = _refined(one, fine)
    return whole


def _parts(
    wanted: Range, extents: Sequence[Extent], from_steps: Mapping[str, int], width: int
) -> list[_Part]:
    parts = []
    for extent in extents:
        if extent.name in from_steps:
            first = max(wanted.from_step, from_steps[extent.name]) // width * width
            base = extent.base_width
            level = None if base is None else levels.level_for(base, width)
            parts.append(_Part(extent, first, level))
    return parts


async def _chunks(
    source: Source,
    wanted: Range,
    last_step: int,
    parts: Sequence[_Part],
    max_samples: int,
) -> Mapping[tuple[str, int], Sequence[Chunk]]:
    """By series and attempt; where there are too many samples, those of the last steps."""
    aligned = Range(wanted.job_id, wanted.rank, wanted.names, 0, last_step)
    whole = [(part.extent, part.from_step) for part in parts if part.level is None]
    new = [(part.extent, part.from_step) for part in parts if part.level is not None]
    facts = [
        *await series_store.facts_of_all(source.connection, aligned, whole),
        *await series_store.facts_of_new(source.connection, aligned, new),
    ]
    num_samples = 0
    kept: set[int] = set()
    for index in sorted(range(len(facts)), key=lambda one: facts[one].max_step, reverse=True):
        num_samples += facts[index].num_samples
        if kept and num_samples > max_samples:
            break
        kept.add(index)
    cold = [one for index in sorted(kept) if (one := facts[index].cold) is not None]
    found: dict[tuple[str, int], list[Chunk]] = {}
    for of, chunk in zip(cold, await source.cold.read(cold), strict=True):
        found.setdefault((of.series, of.attempt), []).append(chunk)
    chunk_ids = [facts[index].chunk_id for index in kept if facts[index].cold is None]
    if chunk_ids:
        for key, chunks in (await series_store.chunks_by_id(source.connection, chunk_ids)).items():
            found.setdefault(key, []).extend(chunks)
    return found


def _key(part: _Part) -> tuple[str, int]:
    return part.extent.name, part.extent.attempt


def _resolve(
    parts: Sequence[_Part],
    chunks: Mapping[tuple[str, int], Sequence[Chunk]],
    found: ByRun,
    last_step: int,
) -> _Resolved:
    width = max(part.width for part in parts if part.level is not None)
    fine_width = max(part.base_width for part in parts if part.level is not None)
    samples = {
        part.extent.attempt: merge(chunks.get(_key(part), ()), part.from_step, last_step)
        for part in parts
    }
    of_attempts = {
        part.extent.attempt: _buckets(
            found.get((part.extent.run_id, part.extent.name), ()),
            samples[part.extent.attempt],
            width,
        )
        for part in parts
    }
    first, last = parts[0].from_step // width, last_step // width
    buckets, mixed = levels.resolve(of_attempts, width)
    buckets = {number: one for number, one in buckets.items() if first <= number <= last}
    looked_at = sorted(mixed & buckets.keys())[-MAX_MIXED:] if fine_width < width else []
    return _Resolved(parts, samples, width, fine_width, buckets, looked_at)


def _buckets(found: Sequence[Bucket], samples: Series, width: int) -> list[Bucket]:
    """What levels hold of an attempt, and the samples that are not in them."""
    return levels.merge_tiles(found, cut(samples.steps, samples.values, width), width)


async def _fine(
    connection: asyncpg.Connection, rank: int, resolved: Mapping[str, _Resolved]
) -> ByRun:
    """Level 0 of the buckets that are mixed."""
    wanted = [
        part.tiles(0, number * one.width, (number + 1) * one.width - 1)
        for one in resolved.values()
        for number in one.mixed
        for part in one.parts
        if part.level is not None
    ]
    return await level_store.read_tiles(connection, rank, _disjoint(wanted)) if wanted else {}


def _disjoint(wanted: Sequence[Tiles]) -> list[Tiles]:
    """The same tiles, each once. Never one by one: a sparse attempt's bucket may cover millions."""
    found: list[Tiles] = []
    for tiles in sorted(wanted):
        last = found[-1] if found else None
        if last is None or last[:3] != tiles[:3] or tiles.first_tile > last.last_tile:
            found.append(tiles)
        elif tiles.last_tile > last.last_tile:
            found[-1] = last._replace(last_tile=tiles.last_tile)
    return found


def _refined(one: _Resolved, fine: ByRun) -> list[Bucket]:
    """The buckets in order, mixed ones made of the finest that there are."""
    if not one.mixed:
        return list(one.buckets.values())
    mixed = set(one.mixed)
    of_attempts = {}
    for part in one.parts:
        samples = one.samples[part.extent.attempt]
        found = list(fine.get((part.extent.run_id, part.extent.name), ()))
        buckets = _buckets(found, samples, one.fine_width)
        of_attempts[part.extent.attempt] = [
            bucket for bucket in buckets if bucket.first_step // one.width in mixed
        ]
    exact, _ = levels.resolve(of_attempts, one.fine_width)
    refined = {
        bucket.first_step // one.width: bucket
        for bucket in widen((exact[number] for number in sorted(exact)), one.width)
    }
    return [refined.get(number, bucket) for number, bucket in one.buckets.items()]
