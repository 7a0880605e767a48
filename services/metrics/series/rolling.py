"""Adds new chunks of samples to the levels that charts read, and merges small chunks.

A task of the service, beside the consumers. It works on some series at a time, in one short
transaction that locks their rows: new chunks are read, summed up into tiles, and replaced by one
chunk where they are small, so that a slow run does not leave a row per sample. A chunk that is
still new is in no tile, so each is added exactly once, and a process that dies in between changes
nothing. A thousand pods have some ten thousand small series, each with a chunk that is a minute
old: many of them share a transaction and its statements.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from services.metrics.core import levels
from services.metrics.core.series import Series, merge
from services.metrics.instruments import CHUNKS_ADDED, CHUNKS_MERGED
from services.metrics.series import level_store
from services.metrics.series.level_store import (
    Before,
    LockedSeries,
    NewChunks,
    SeriesKey,
    StoredChunk,
)
from services.runtime.clock import Clock
from services.runtime.database import Database
from services.runtime.repeating import repeat
from services.runtime.service import Platform
from services.runtime.transaction import Tx

LOOK_SECONDS = 5.0
# Chunks that one look reads; their series are handled before the next look.
MAX_CHUNKS_OF_LOOK = 10_000
MAX_AGE = timedelta(minutes=1)
# Of one transaction, beside the bound of samples: their rows are locked meanwhile.
MAX_SERIES_OF_STEP = 50
# So that the consumers' transactions come in between.
PAUSE_SECONDS = 0.005
_START = SeriesKey("", 0, "")


async def roll(platform: Platform) -> None:
    """Until cancelled."""
    roller = Roller(platform.database, platform.clock)
    waits = "adding samples to levels waits for Postgres"
    await repeat(roller.roll_all, platform.clock, LOOK_SECONDS, waits)


class Roller:
    """Looks for series with enough new chunks and adds these, in bounded steps."""

    def __init__(self, database: Database, clock: Clock, max_age: timedelta = MAX_AGE) -> None:
        self._database = database
        self._clock = clock
        self._max_age = max_age

    async def roll_all(self) -> None:
        """One pass over all series with new chunks."""
        after, has_more = _START, True
        while has_more:
            async with self._database.connection() as connection:
                found, has_more = await level_store.new_chunks(
                    connection, after, MAX_CHUNKS_OF_LOOK, self._max_age
                )
            await self._roll(
                one
                for one in found
                if levels.is_due(one.num_chunks, one.num_samples, is_old=one.is_old)
            )
            if found:
                after = found[-1].key

    async def _roll(self, due: Iterable[NewChunks]) -> None:
        """Add the chunks that were found; those that arrive meanwhile wait for the next pass."""
        waiting = deque(due)
        while waiting:
            some = _taken(waiting)
            async with self._database.transaction() as tx:
                num_added = await _step(tx, [one.key for one in some])
            for one in reversed(some):
                num_left = one.num_chunks - num_added.get(one.key, one.num_chunks)
                if num_left > 0:
                    waiting.appendleft(replace(one, num_chunks=num_left))
            await self._clock.sleep(PAUSE_SECONDS)


def _taken(waiting: deque[NewChunks]) -> list[NewChunks]:
    """The first ones, as many as share a transaction."""
    some = [waiting.popleft()]
    num_samples = some[0].num_samples
    while waiting and len(some) < MAX_SERIES_OF_STEP:
        num_samples += waiting[0].num_samples
        if num_samples > levels.MAX_NEW_SAMPLES:
            break
        some.append(waiting.popleft())
    return some


class _Added(NamedTuple):
    """New chunks of one series, the chunk before them, and what adding them leads to."""

    new: list[StoredChunk]
    last: StoredChunk | None
    step: levels.Step


async def _step(tx: Tx, keys: Sequence[SeriesKey]) -> dict[SeriesKey, int]:
    """Add some new chunks of these series. Returns how many of each."""
    connection = tx.connection
    locked = await level_store.lock_series(connection, keys)
    most = levels.MAX_SAMPLES_OF_STEP if len(keys) == 1 else levels.MAX_NEW_SAMPLES
    found = await level_store.take_new(connection, list(locked), most)
    if not found:
        return {}
    new = {key: chunks[: _num_to_add(locked[key], chunks)] for key, chunks in found.items()}
    samples = await asyncio.to_thread(_merged, new)
    wanted = [
        Before(key, locked[key].job_id, chunks[0].chunk_id, _room(locked[key], samples[key]))
        for key, chunks in new.items()
    ]
    last = await level_store.chunks_before(connection, wanted)
    added = await asyncio.to_thread(_added, locked, new, samples, last)
    await _save_chunks(tx, list(added.values()))
    for key, one in added.items():
        if one.step.base_width is not None:
            if one.step.base_width != locked[key].base_width:
                await level_store.set_base_width(connection, key, one.step.base_width)
            await _save_tiles(tx, key, one.step)
    num_added = {key: len(chunks) for key, chunks in new.items()}
    tx.after_commit(lambda: CHUNKS_ADDED.inc(sum(num_added.values())))
    return num_added


def _num_to_add(series: LockedSeries, chunks: Sequence[StoredChunk]) -> int:
    sizes = [len(one.chunk.steps) for one in chunks]
    return levels.num_to_add(sizes, may_merge=series.base_width is None)


def _merged(new: Mapping[SeriesKey, Sequence[StoredChunk]]) -> dict[SeriesKey, Series]:
    return {key: merge([one.chunk for one in chunks]) for key, chunks in new.items()}


def _room(series: LockedSeries, samples: Series) -> int:
    """How many samples the chunk before may hold to be merged with these."""
    if series.base_width is None:
        return levels.MIN_SAMPLES
    return levels.MAX_CHUNK_SAMPLES - len(samples.steps)


def _added(
    locked: Mapping[SeriesKey, LockedSeries],
    new: Mapping[SeriesKey, list[StoredChunk]],
    samples: Mapping[SeriesKey, Series],
    last: Mapping[SeriesKey, StoredChunk],
) -> dict[SeriesKey, _Added]:
    added = {}
    for key, chunks in new.items():
        before, series = last.get(key), locked[key]
        step = levels.add(
            samples[key],
            len(chunks),
            merge([before.chunk]) if before else None,
            series.base_width,
            may_begin=not series.is_cold,
        )
        added[key] = _Added(chunks, before, step)
    return added


async def _save_chunks(tx: Tx, added: Sequence[_Added]) -> None:
    kept = [chunk.chunk_id for one in added if one.step.merged is None for chunk in one.new]
    if kept:
        await level_store.keep_as_they_are(tx.connection, kept)
    replaced = [
        ([chunk.chunk_id for chunk in ([one.last] if one.last else []) + one.new], one.step.merged)
        for one in added
        if one.step.merged is not None
    ]
    if replaced:
        await level_store.replace_chunks(tx.connection, replaced)
        num_merged = sum(len(chunk_ids) - 1 for chunk_ids, _ in replaced)
        tx.after_commit(lambda: CHUNKS_MERGED.inc(num_merged))


async def _save_tiles(tx: Tx, key: SeriesKey, step: levels.Step) -> None:
    assert step.base_width is not None
    old = await level_store.tiles_of(tx.connection, key, list(step.tiles))
    tiles = {
        tile: levels.merge_tiles(
            old.get(tile, ()), buckets, levels.width_of(step.base_width, tile[0])
        )
        for tile, buckets in step.tiles.items()
    }
    await level_store.save_tiles(tx.connection, key, tiles)
