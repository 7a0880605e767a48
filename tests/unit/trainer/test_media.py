"""What `run.log_image` and the others store, and what they refuse without failing training."""

import json
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy
import pytest

from drivetrain import media, media_content
from drivetrain.errors import StorageError
from drivetrain.media import Media, Place
from drivetrain.messages import MediaSaved
from drivetrain.storage import create_storage


def pixels_of(png: bytes) -> numpy.ndarray:
    """Decoded by the format's rules, for rows without a filter."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, {}
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        content = png[at + 8 : at + 8 + size]
        (checksum,) = struct.unpack(">I", png[at + 8 + size : at + 12 + size])
        assert checksum == zlib.crc32(kind + content)
        chunks[kind] = content
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    assert (depth, list(chunks)) == (8, [b"IHDR", b"IDAT", b"IEND"])
    rows = numpy.frombuffer(zlib.decompress(chunks[b"IDAT"]), numpy.uint8)
    rows = rows.reshape(height, 1 + width * channels)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


RGB = numpy.arange(4 * 5 * 3, dtype=numpy.uint8).reshape(4, 5, 3)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (RGB, RGB),
        (RGB.transpose(2, 0, 1), RGB),
        (RGB[:, :, 0], RGB[:, :, :1]),
        (RGB.astype(numpy.int64) * 1000 - 500, (RGB > 0) * 255),
        (RGB / 255.0, RGB),
        (RGB > 7, (RGB > 7) * 255),
        (numpy.array([[numpy.nan, numpy.inf, -numpy.inf, 2.0]]), [[[0], [255], [0], [255]]]),
    ],
)
def test_an_array_is_stored_as_the_pixels_it_holds(given: Any, expected: Any) -> None:
    found = pixels_of(media_content.image(given).finish())
    assert (found == numpy.asarray(expected)).all()


def test_what_changes_after_the_call_is_not_seen() -> None:
    array = RGB.copy()
    content = media_content.image(array)
    array[:] = 0
    assert (pixels_of(content.finish()) == RGB).all()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (numpy.zeros((2, 3, 5)), "the shape (2, 3, 5) is not a picture"),
        (numpy.zeros((0, 3)), "is not a picture"),
        (numpy.zeros((5000, 3400, 3), numpy.uint8), "the limit is 25,000,000"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "log_file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50_000_000), "the limit is 25,000,000"),
        (7, "a int is not a picture"),
        ("no-such-file.png", "no-such-file.png cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_picture_is_refused_with_the_reason(given: Any, reason: str) -> None:
    with pytest.raises(media_content.Refused) as refused:
        media_content.image(given)
    assert reason in str(refused.value)


def test_a_histogram_counts_all_finite_values_once() -> None:
    values = [0.0, 0.5, 1.0, 1.0, float("nan"), float("inf")]
    found = json.loads(media_content.histogram(values, 4).finish())
    assert (found["low"], found["high"], found["counts"]) == (0.0, 1.0, [1, 0, 1, 2])
    assert (found["num_values"], found["num_counted"]) == (6, 4)
    same = json.loads(media_content.histogram(numpy.full((3, 2), 7.0), 2).finish())
    assert (same["low"], same["high"], sum(same["counts"])) == (6.5, 7.5, 6)
    assert sum(json.loads(media_content.histogram([], 2).finish())["counts"]) == 0


def test_of_many_values_a_part_is_counted() -> None:
    content = media_content.histogram(numpy.zeros(2_500_000, numpy.float32), 8)
    found = json.loads(content.finish())
    assert found["num_values"] == 2_500_000
    assert 500_000 < found["num_counted"] <= 1_000_000


def test_a_table_is_made_of_mappings_or_of_rows_with_columns() -> None:
    rows = [{"a": 1, "b": float("nan")}, {"a": numpy.float32(0.5), "c": {"x": 1}}]
    found = json.loads(media_content.table(rows, None).finish())
    assert found == {
        "columns": ["a", "b", "c"],
        "rows": [[1, "nan", None], [0.5, None, "{'x': 1}"]],
    }
    assert json.loads(media_content.table([["<b>", 2]], ["x", "y"]).finish()) == {
        "columns": ["x", "y"],
        "rows": [["<b>", 2]],
    }
    for rows, columns in ((([1, 2],), ["a"]), ([[1]], None), ([{}] * 10_001, ["a"])):
        with pytest.raises(media_content.Refused):
            media_content.table(rows, columns)


class Recorded:
    """A Media with its store in a directory, and what it sent and warned of."""

    def __init__(self, directory: Path) -> None:
        self.store = create_storage(directory)
        self.sent: list[MediaSaved] = []
        self.warnings: list[str] = []
        self.media = Media(
            lambda: self.store, self.sent.append, lambda _, detail: self.warnings.append(detail)
        )

    def text(self, name: Any, text: str, step: int = 1, **place: Any) -> None:
        self.media.log(Place(name, step, **place), lambda: media_content.text(text))


def test_the_same_bytes_are_stored_once_and_named_each_time(tmp_path: Path) -> None:
    logged = Recorded(tmp_path)
    for step, text in ((1, "same"), (2, "same"), (3, "other")):
        logged.text("said", text, step, caption="c\0" * 400)
    logged.media.close(10)
    assert [(one.step, one.number, one.size_bytes) for one in logged.sent] == [
        (1, 1, 4), (2, 2, 4), (3, 3, 5),
    ]  # fmt: skip
    assert logged.sent[0].sha256 == logged.sent[1].sha256
    assert logged.store.get(logged.sent[2].sha256) == b"other"
    assert len(logged.store.list()) == 2
    assert len(logged.sent[0].caption) == 500
    assert "\0" not in logged.sent[0].caption


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\u202eb", " a", "", "n" * 129, None, 5])
def test_a_name_that_is_not_valid_is_left_out_with_a_warning(tmp_path: Path, name: Any) -> None:
    logged = Recorded(tmp_path)
    logged.text(name, "text")
    logged.text("good", "text")
    logged.media.close(10)
    assert [one.name for one in logged.sent] == ["good"]
    assert "its name is not valid" in logged.warnings[0]


def test_a_value_that_raises_is_left_out(tmp_path: Path) -> None:
    logged = Recorded(tmp_path)
    logged.media.log(Place("bad", 1), lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    assert "'bad' is not logged: ZeroDivisionError" in logged.warnings[0]


def test_a_store_that_answers_later_gets_everything_and_the_call_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "TRIES_AFTER_SECONDS", (0.0, 0.0, 0.0))
    logged, is_back, num_failed = Recorded(tmp_path), threading.Event(), 0
    put = logged.store.put_if_absent

    def away(key: str, data: bytes) -> bool:
        nonlocal num_failed
        is_back.wait(10)
        num_failed += 1
        if num_failed < 3:
            raise StorageError("away")
        return put(key, data)

    logged.store.put_if_absent = away  # type: ignore[method-assign]
    logged.text("a", "text")
    logged.text("b", "more")
    assert logged.sent == []
    is_back.set()
    logged.media.close(10)
    assert [one.name for one in logged.sent] == ["a", "b"]
    assert logged.warnings == []


def test_what_does_not_fit_the_queue_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "MAX_WAITING_BYTES", 10)
    logged, goes_on = Recorded(tmp_path), threading.Event()
    put = logged.store.put_if_absent

    def slow(key: str, data: bytes) -> bool:
        goes_on.wait(10)
        return put(key, data)

    logged.store.put_if_absent = slow  # type: ignore[method-assign]
    logged.text("a", "12345678")
    logged.text("b", "12345678")
    goes_on.set()
    logged.media.close(10)
    assert [one.name for one in logged.sent] == ["a"]
    assert logged.warnings == ["'b' is not logged: too much waits to be stored: log less often"]


def test_an_attempt_stores_only_so_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MAX_ATTEMPT_BYTES", 10)
    monkeypatch.setattr(media, "MAX_ATTEMPT_ITEMS", 3)
    logged = Recorded(tmp_path)
    for number in range(4):
        logged.text("a", f"{number}2345678", number)
    logged.media.close(10)
    assert [one.step for one in logged.sent] == [0]
    assert any("stored 10 bytes, the limit" in warning for warning in logged.warnings)
    assert any("has logged 3, which is the limit" in warning for warning in logged.warnings)
