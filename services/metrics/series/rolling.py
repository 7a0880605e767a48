"""Adds new chunks of samples to the levels that charts read, and merges small chunks.

A task of the service, beside the consumers. It works on one series at a time, in one short
transaction that locks its row: new chunks are read, summed up into tiles, and replaced by one chunk
where they are small, so that a slow run does not leave a row per sample. A chunk that is still new
is in no tile, so each is added exactly once, and a process that dies in between changes nothing.
"""

import asyncio
from datetime import timedelta
from functools import partial

from services.metrics.core import levels
from services.metrics.core.series import Series, merge
from services.metrics.instruments import CHUNKS_ADDED, CHUNKS_MERGED
from services.metrics.series import level_store
from services.metrics.series.level_store import SeriesKey, StoredChunk
from services.runtime import logs
from services.runtime.clock import Clock
from services.runtime.database import Database
from services.runtime.errors import is_temporary
from services.runtime.service import Platform
from services.runtime.transaction import Tx

log = logs.get()

LOOK_SECONDS = 5.0
# Chunks that one look reads; their series are handled before the next look.
MAX_CHUNKS_OF_LOOK = 10_000
MAX_AGE = timedelta(minutes=1)
# So that the consumers' transactions come in between.
PAUSE_SECONDS = 0.005
_START = SeriesKey("", 0, "")


async def roll(platform: Platform) -> None:
    """Until cancelled."""
    roller = Roller(platform.database, platform.clock)
    while True:
        try:
            await roller.roll_all()
        except Exception as error:
            if not is_temporary(error):
                raise
            log.warning("adding samples to levels waits for Postgres", error=repr(error))
        await platform.clock.sleep(LOOK_SECONDS)


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
            for one in found:
                if levels.is_due(one.num_chunks, one.num_samples, is_old=one.is_old):
                    await self._roll(one.key, one.num_chunks)
                after = one.key

    async def _roll(self, key: SeriesKey, num_chunks: int) -> None:
        """Add the chunks that were found; those that arrive meanwhile wait for the next pass."""
        while num_chunks > 0:
            async with self._database.transaction() as tx:
                num_added = await _step(tx, key)
            if num_added == 0:
                return
            num_chunks -= num_added
            await self._clock.sleep(PAUSE_SECONDS)


async def _step(tx: Tx, key: SeriesKey) -> int:
    """Add some new chunks of one series. Returns how many."""
    connection = tx.connection
    series = await level_store.lock_series(connection, key)
    if series is None:
        return 0
    new = await level_store.take_new(connection, key, levels.MAX_NEW_SAMPLES)
    if not new:
        return 0
    samples = await asyncio.to_thread(merge, [one.chunk for one in new])
    room = levels.MAX_CHUNK_SAMPLES - len(samples.steps)
    if series.base_width is None:
        room = levels.MIN_SAMPLES
    last = await level_store.chunk_before(connection, key, series.job_id, new[0].chunk_id, room)
    before = merge([last.chunk]) if last else None
    step = await asyncio.to_thread(
        partial(levels.add, may_begin=not series.is_cold),
        samples,
        len(new),
        before,
        series.base_width,
    )
    await _save_chunks(tx, new, last, step.merged)
    if step.base_width is not None:
        if step.base_width != series.base_width:
            await level_store.set_base_width(connection, key, step.base_width)
        await _save_tiles(tx, key, step)
    tx.after_commit(lambda: CHUNKS_ADDED.inc(len(new)))
    return len(new)


async def _save_chunks(
    tx: Tx, new: list[StoredChunk], last: StoredChunk | None, merged: Series | None
) -> None:
    if merged is None:
        await level_store.keep_as_they_are(tx.connection, [one.chunk_id for one in new])
        return
    replaced = [one.chunk_id for one in ([last] if last else []) + new]
    await level_store.replace_chunks(tx.connection, replaced, merged)
    tx.after_commit(lambda: CHUNKS_MERGED.inc(len(replaced) - 1))


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
