"""Batches are unpacked within a bound, whatever they unpack to."""

import gzip
import os
import struct
import subprocess
import sys
from pathlib import Path

import cramjam
import pytest
from aiokafka.codec import snappy_encode

from services.runtime.decompression import (
    GZIP,
    LZ4,
    MAX_BATCH_BYTES,
    SNAPPY,
    ZSTD,
    CannotDecompress,
    decompress,
)

ROOT = Path(__file__).parents[3]
DATA = os.urandom(5_000) * 100
PACKED = {
    "gzip": (GZIP, gzip.compress(DATA)),
    "gzip in members": (GZIP, gzip.compress(DATA[:7000]) + gzip.compress(DATA[7000:])),
    "snappy": (SNAPPY, bytes(cramjam.snappy.compress_raw(DATA))),
    "snappy in blocks": (SNAPPY, snappy_encode(DATA, xerial_compatible=True)),
    "lz4": (LZ4, bytes(cramjam.lz4.compress(DATA))),
    "zstd": (ZSTD, bytes(cramjam.zstd.compress(DATA))),
    "zstd in frames": (
        ZSTD,
        bytes(cramjam.zstd.compress(DATA[:7000])) + bytes(cramjam.zstd.compress(DATA[7000:])),
    ),
}


@pytest.mark.parametrize(("codec", "packed"), PACKED.values(), ids=PACKED)
def test_what_was_packed_is_unpacked_behind_its_head(codec: int, packed: bytes) -> None:
    assert decompress(codec, packed, b"head") == b"head" + DATA


@pytest.mark.parametrize(("codec", "packed"), PACKED.values(), ids=PACKED)
@pytest.mark.parametrize("damage", ["cut", "empty tail", "garbage"])
def test_damaged_data_is_refused(codec: int, packed: bytes, damage: str) -> None:
    wrong = {"cut": packed[:-9], "empty tail": packed + b"\0" * 9, "garbage": b"garbage" * 9}
    with pytest.raises(CannotDecompress):
        decompress(codec, wrong[damage])


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (GZIP, gzip.compress(b"") * 1_001),
        (SNAPPY, b"\x82SNAPPY\x00" + b"\0" * 8 + b"\0\0\0\1\0" * 40_000),
    ],
    ids=["gzip", "snappy"],
)
def test_data_in_too_many_parts_is_refused(codec: int, packed: bytes) -> None:
    """Empty members of gzip to 1 MB took 4 s, and of snappy 2 s, in which nothing else ran."""
    with pytest.raises(CannotDecompress, match="more than"):
        decompress(codec, packed)


@pytest.mark.parametrize("length", [-4, 0, 2**31 - 1])
def test_a_snappy_block_of_no_possible_length_is_refused(length: int) -> None:
    """aiokafka's own decoder goes round and round on a block of -4 bytes."""
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    with pytest.raises(CannotDecompress, match="cut off"):
        decompress(SNAPPY, head + struct.pack(">i", length) * 9)


@pytest.mark.parametrize("codec", [0, 5, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(CannotDecompress, match="no codec"):
        decompress(codec, b"data")


@pytest.mark.parametrize(
    "name", [pytest.param("gzip", marks=pytest.mark.heavy), "snappy", "lz4", "zstd"]
)
def test_a_gigabyte_is_refused_within_the_bound(name: str, tmp_path: Path) -> None:
    """In a process of its own, whose peak is counted from the moment before."""
    script = f"""
import re
from pathlib import Path
from services.runtime.decompression import CannotDecompress, decompress
from tests.batches import bomb

def memory(name):
    return int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10

codec = dict(gzip=1, snappy=2, lz4=3, zstd=4)["{name}"]
packed = bomb("{name}", 1 << 30)
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
try:
    decompress(codec, packed)
except CannotDecompress as error:
    print(error)
    print(memory("VmHWM") - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    problem, growth = done.stdout.splitlines()
    assert "unpacks to more than" in problem
    assert int(growth) < 2 * MAX_BATCH_BYTES
