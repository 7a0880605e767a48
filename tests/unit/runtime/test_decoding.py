"""Batches that aiokafka's own decoder refuses: every record of them comes all the same."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder

from services.runtime.decoding import LenientRecords, problem_of
from tests.batches import NotUtf8

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FOUND = [(number, b"k%d" % number, b"v%d" % number) for number in range(5)]


def batch(builder: Any = DefaultRecordBatchBuilder, codec: int = 0, bad: int | None = None) -> Any:
    """Five records; the header of one of them has the name `bad`."""
    made = builder(2, codec, 0, -1, -1, -1, 1 << 20)
    for number in range(5):
        name = "bad" if number == bad else "good"
        assert made.append(number, 7, b"k%d" % number, b"v%d" % number, [(name, b"%d" % number)])
    return bytearray(made.build())


def read(content: bytes) -> list[Any]:
    """As the fetcher does it."""
    records, found = LenientRecords(bytes(content)), []
    while records.has_next():
        taken = records.next_batch()
        assert taken.validate_crc()
        found += taken
    return found


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_every_codec_is_read(codec: int) -> None:
    found = read(batch(codec=codec))
    assert [(it.offset, it.key, it.value) for it in found] == FOUND
    assert [list(it.headers) for it in found] == [[("good", b"%d" % it)] for it in range(5)]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_header_name_that_is_no_text_costs_nothing_but_the_name(codec: int) -> None:
    content = batch(NotUtf8, codec, bad=1)
    found = read(content + batch(_DefaultRecordBatchBuilderPy))
    assert [(it.offset, it.key, it.value) for it in found] == FOUND + FOUND
    names = [name for it in found for name, _ in it.headers]
    assert names == ["good", "\ufffd\ufffd\ufffd", *["good"] * 8]
    assert [text for _, text in found[1].headers] == [b"1"]


@pytest.mark.parametrize("magic", [0, 1])
def test_the_formats_of_old_are_read_too(magic: int) -> None:
    made = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
    made.append(0, timestamp=7, key=b"k", value=b"v")
    assert [(it.key, it.value) for it in read(made.build())] == [(b"k", b"v")]


@pytest.mark.parametrize("change", ["checksum", "codec", "count"])
def test_a_batch_that_cannot_be_decoded_comes_whole(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = batch()
    if change == "checksum":
        content[-1] ^= 1
    else:
        content[22 if change == "codec" else 60] ^= 7  # no such codec; more records than there are
        monkeypatch.setattr("services.runtime.decoding._Batch.validate_crc", lambda _: True)
    good = batch(_DefaultRecordBatchBuilderPy)
    whole, *others = read(content + good)
    # The last offset of the batch: the next read begins behind it.
    assert (whole.offset, whole.key, whole.value) == (4, None, bytes(content))
    assert problem_of(whole.headers)
    assert not any(problem_of(it.headers) for it in others)
    assert [(it.offset, it.key, it.value) for it in others] == FOUND
