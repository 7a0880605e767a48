"""Reads single row groups of the files with old samples: of each only its steps and values.

The tables tell which rows are wanted, so that a request fetches no more than the row groups that
overlap it. Footers are kept in memory.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from services.metrics.cold.format import Damaged, Metadata
from services.metrics.core.layout import Samples
from services.metrics.core.series import Chunk
from services.runtime.errors import StoreError
from services.runtime.object_store import NoSuchObject, ObjectStore

# A footer has about 60 KB.
MAX_FOOTERS = 128
MAX_REQUESTS = 8
# Less than the gateway waits for the whole answer.
MAX_SECONDS = 1.5


class ColdChunk(NamedTuple):
    """Rows of one row group: samples of one series of one run."""

    key: str
    size_bytes: int
    footer_offset: int
    row_group: int
    first_row: int
    num_samples: int
    series: str
    attempt: int


class ColdReader:
    """For all requests of a process."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._footers: OrderedDict[str, Metadata] = OrderedDict()
        self._places = asyncio.Semaphore(MAX_REQUESTS)

    async def read(self, wanted: Sequence[ColdChunk]) -> list[Chunk]:
        """The chunks in the order given. Raises StoreError, also where it takes too long."""
        if not wanted:
            return []
        groups = list(dict.fromkeys(one[:4] for one in wanted))
        try:
            async with asyncio.timeout(MAX_SECONDS):
                read = await asyncio.gather(*(self._row_group(*group) for group in groups))
        except TimeoutError:
            raise StoreError(f"the object store needs more than {MAX_SECONDS:g} s") from None
        found = dict(zip(groups, read, strict=True))
        return [_chunk(found[one[:4]], one) for one in wanted]

    async def _row_group(
        self, key: str, size_bytes: int, footer_offset: int, row_group: int
    ) -> Samples:
        async with self._places:
            try:
                metadata = self._footers.get(key)
                if metadata is None:
                    footer = await self._store.get_range(key, footer_offset, size_bytes)
                    metadata = await asyncio.to_thread(Metadata, footer, size_bytes)
                    self._footers[key] = metadata
                    while len(self._footers) > MAX_FOOTERS:
                        self._footers.popitem(last=False)
                self._footers.move_to_end(key)
                content = await self._store.get_range(key, *metadata.span(row_group))
                return await asyncio.to_thread(metadata.read, row_group, content)
            except NoSuchObject:
                raise StoreError(f"the object store has lost {key}") from None
            except Damaged as error:
                raise StoreError(f"{key} in the object store is damaged: {error}") from error


def _chunk(group: Samples, one: ColdChunk) -> Chunk:
    rows = slice(one.first_row, one.first_row + one.num_samples)
    return Chunk(one.attempt, group.steps[rows].tolist(), group.values[rows].tolist())
