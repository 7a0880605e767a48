"""What is damaged in the object store is refused; it never becomes other samples or other lines."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from services.metrics.cold import format as cold_format
from services.metrics.core import layout
from services.metrics.core.layout import Part, Samples
from services.metrics.core.log_search import Chunk
from services.metrics.logs import format as log_format
from services.runtime.errors import StoreError

NUM_FLIPS = 200


def flipped(content: bytes) -> Iterator[bytes]:
    """The content with one bit of it changed, at places that a seed chooses."""
    random = Random(1)
    for _ in range(NUM_FLIPS):
        damaged = bytearray(content)
        damaged[random.randrange(len(content))] ^= 1 << random.randrange(8)
        yield bytes(damaged)


def test_damaged_samples_are_refused() -> None:
    part = Part(job_id="job", series="loss", rank=0, attempt=1, run_id="run")
    values = np.random.default_rng(1).normal(size=4000)
    content = cold_format.encode(layout.lay_out([(part, Samples(np.arange(4000), values))]))
    footer = content[cold_format.footer_offset(content) :]
    metadata = cold_format.Metadata(footer, len(content))
    span = metadata.span(0)
    intact = content[span.start : span.end]
    assert np.array_equal(metadata.read(0, intact).values, values)
    for damaged in flipped(intact):
        try:
            found = metadata.read(0, damaged)
        except cold_format.Damaged:
            continue
        assert np.array_equal(found.values, values)  # a bit of a header that nothing follows from
        assert np.array_equal(found.steps, np.arange(4000))


def lines() -> tuple[list[Chunk], bytes, int]:
    chunk = Chunk(1, 0, 0, 2000, 0, 1.0, [f"step {n} loss {1 / (n + 1):.6f}" for n in range(2000)])
    content, (block,) = log_format.encode([log_format.StoredChunk(chunk, 20, 50_000)])
    return [chunk], content, block.num_bytes


def test_damaged_lines_are_refused() -> None:
    chunks, content, num_bytes = lines()
    assert log_format.decode(content, num_bytes) == chunks
    num_refused = 0
    for damaged in flipped(content):
        try:
            log_format.decode(damaged, num_bytes)
        except StoreError:
            num_refused += 1
    assert num_refused == NUM_FLIPS


def test_lines_that_lost_their_end_are_refused() -> None:
    _, content, num_bytes = lines()
    for length in (0, log_format._CHECK.size - 1, len(content) - log_format._CHECK.size):
        with pytest.raises(StoreError):
            log_format.decode(content[:length], num_bytes)
