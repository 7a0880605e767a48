"""Levels of buckets of a long series, and how new samples are added to them.

Level 0 has buckets of about 16 samples; each further level has buckets four times as wide. Buckets
are stored in tiles of 64. Each attempt has levels of its own, so that a step can be answered by the
highest attempt that logged it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from services.metrics.core.buckets import Bucket, cut, widen
from services.metrics.core.series import Series

SAMPLES_PER_BUCKET = 16
FACTOR = 4
NUM_LEVELS = 6
BUCKETS_PER_TILE = 64
# Shorter series are read whole. More than the points of one curve, which is then not exact.
MIN_SAMPLES = 2048
# What one chunk should hold; chunks of a quarter of it stay as they are. A poll reads whole chunks,
# so they should not be large.
MAX_CHUNK_SAMPLES = 1024
MIN_CHUNK_SAMPLES = MAX_CHUNK_SAMPLES // 4
# New chunks are added when there are so many, or so many samples in them, or when one is old.
MAX_NEW_CHUNKS = 32
MAX_NEW_SAMPLES = 4096
# Of chunks that stay as they are, so many are added at once: with every time the last tiles are
# written again.
MAX_SAMPLES_OF_STEP = 4 * MAX_NEW_SAMPLES

TileKey = tuple[int, int]  # level, tile


@dataclass(frozen=True, slots=True)
class Step:
    """What adding new chunks leads to: the chunk that replaces them, and what the levels gain.

    `merged` is None where the chunks stay as they are.
    """

    merged: Series | None
    base_width: int | None
    tiles: Mapping[TileKey, Sequence[Bucket]]


def is_due(num_chunks: int, num_samples: int, *, is_old: bool) -> bool:
    return num_chunks >= MAX_NEW_CHUNKS or num_samples >= MAX_NEW_SAMPLES or is_old


def num_to_add(sizes: Sequence[int], *, may_merge: bool) -> int:
    """How many of the next chunks are added at once, by their numbers of samples.

    Fewer where they may become one chunk, which should not be large.
    """
    num_samples = 0
    for number, size in enumerate(sizes):
        may_merge = may_merge or size < MIN_CHUNK_SAMPLES
        if num_samples >= (MAX_NEW_SAMPLES if may_merge else MAX_SAMPLES_OF_STEP):
            return number
        num_samples += size
    return len(sizes)


def add(
    new: Series,
    num_chunks: int,
    last: Series | None,
    base_width: int | None,
    *,
    may_begin: bool = True,
) -> Step:
    """Add the samples of new chunks; `last` is the chunk before them, if it has room for more.

    A series without levels has no other chunk than that, which always has room. `may_begin` is
    false where it has further samples elsewhere, which levels would lack.
    """
    whole = _joined(last, new)
    if base_width is not None:
        is_small = len(new.steps) < num_chunks * MIN_CHUNK_SAMPLES
        return Step(whole if is_small else None, base_width, _tiles(new, base_width))
    if len(whole.steps) < MIN_SAMPLES or not may_begin:
        return Step(whole, None, {})
    base_width = _base_width(whole)
    return Step(whole, base_width, _tiles(whole, base_width))


def width_of(base_width: int, level: int) -> int:
    return int(base_width * FACTOR**level)


def level_for(base_width: int, width: int) -> int | None:
    """The level with the widest buckets of at most this width; None: they are all wider."""
    fitting = [level for level in range(NUM_LEVELS) if width_of(base_width, level) <= width]
    return fitting[-1] if fitting else None


def tile_of(step: int, width: int) -> int:
    return step // (width * BUCKETS_PER_TILE)


def merge_tiles(old: Iterable[Bucket], new: Iterable[Bucket], width: int) -> list[Bucket]:
    """The buckets of a tile with those that are added.

    A step that one run logs again after a while is counted twice.
    """
    return widen(sorted([*old, *new], key=lambda one: one.first_step // width), width)


def resolve(
    of_attempts: Mapping[int, Sequence[Bucket]], width: int
) -> tuple[dict[int, Bucket], set[int]]:
    """By number of the bucket: the highest attempt's where attempts overlap; and which are mixed.

    A bucket is mixed where a lower attempt has samples outside of the steps of the higher ones: it
    then sums up both, although some samples of the lower one may be superseded.
    """
    kept: dict[int, list[Bucket]] = {}
    for attempt in sorted(of_attempts, reverse=True):
        for bucket in of_attempts[attempt]:
            others = kept.setdefault(bucket.first_step // width, [])
            if not others or _reaches_beyond(bucket, others):
                others.append(bucket)
    mixed = {number for number, buckets in kept.items() if len(buckets) > 1}
    return {number: widen(kept[number], width)[0] for number in sorted(kept)}, mixed


def _reaches_beyond(bucket: Bucket, others: Sequence[Bucket]) -> bool:
    first = min(one.first_step for one in others)
    return bucket.first_step < first or bucket.last_step > max(one.last_step for one in others)


def _joined(last: Series | None, new: Series) -> Series:
    """Of a step that is in both, the new value."""
    if last is None:
        return new
    if last.steps[-1] < new.steps[0]:
        return Series((*last.steps, *new.steps), (*last.values, *new.values))
    both = dict(zip(last.steps, last.values, strict=True))
    both.update(zip(new.steps, new.values, strict=True))
    return Series(tuple(sorted(both)), tuple(both[step] for step in sorted(both)))


def _base_width(series: Series) -> int:
    """Sixteen samples' steps, rounded up to a power of two."""
    gap = (series.steps[-1] - series.steps[0]) // (len(series.steps) - 1)
    return SAMPLES_PER_BUCKET * int(2 ** max(0, gap - 1).bit_length())


def _tiles(series: Series, base_width: int) -> dict[TileKey, list[Bucket]]:
    tiles: dict[TileKey, list[Bucket]] = {}
    buckets = cut(series.steps, series.values, base_width)
    for level in range(NUM_LEVELS):
        width = width_of(base_width, level)
        buckets = widen(buckets, width) if level else buckets
        for bucket in buckets:
            tiles.setdefault((level, tile_of(bucket.first_step, width)), []).append(bucket)
    return tiles
