"""Lines of output: numbered, in bounded chunks, at a bounded rate; every loss is counted."""

import math

from hypothesis import given
from hypothesis import strategies as st

from drivetrain.pod.logs import MAX_CHUNK_BYTES, MAX_LINE_CHARACTERS, RankLog, RateLimit


def make_log(rate: float = math.inf, burst: float = math.inf) -> RankLog:
    return RankLog(0, RateLimit(rate, burst, now=0.0))


def test_lines_are_whole_for_any_chunks() -> None:
    log = make_log()
    for piece in (b"one\ntw", b"o\nthr", b"ee\r\n  4%\r 50%\r", b"rest"):
        log.feed(piece, 0.0)
    (chunk,) = log.take()
    assert chunk.lines == ["one", "two", "three", "  4%", " 50%"]
    (last,) = log.take(is_last=True)
    assert (last.first_line, last.lines) == (5, ["rest"])


def test_output_that_is_not_text_still_arrives() -> None:
    log = make_log()
    log.feed(b"\xff\x00ok\n", 0.0)
    assert log.take()[0].lines == ["\ufffd\x00ok"]


def test_an_endless_line_is_cut() -> None:
    log = make_log()
    log.feed(b"x" * (2 * MAX_LINE_CHARACTERS + 5), 0.0)
    lengths = [len(line) for chunk in log.take(is_last=True) for line in chunk.lines]
    assert lengths == [MAX_LINE_CHARACTERS, MAX_LINE_CHARACTERS, 5]


def test_output_over_the_rate_is_counted_and_the_numbering_shows_the_gap() -> None:
    log = make_log(rate=10.0, burst=10.0)
    log.feed(b"12345678\ndropped\n", 0.0)
    log.feed(b"abcdefgh\n", 1.0)
    first, second = log.take()
    assert (first.first_line, first.lines, first.num_dropped_bytes) == (0, ["12345678"], 0)
    assert (second.first_line, second.lines, second.num_dropped_bytes) == (2, ["abcdefgh"], 8)
    assert log.num_dropped_bytes == 8


def test_the_dropped_count_arrives_without_another_line() -> None:
    log = make_log(rate=1.0, burst=1.0)
    log.feed(b"too long\n", 0.0)
    (chunk,) = log.take()
    assert (chunk.lines, chunk.num_dropped_bytes) == ([], 9)
    assert log.take() == []


@given(st.binary(max_size=200_000), st.integers(1, 70_000))
def test_nothing_is_lost_and_every_chunk_is_bounded(data: bytes, piece: int) -> None:
    log = make_log()
    chunks = []
    for start in range(0, len(data), piece):
        log.feed(data[start : start + piece], 0.0)
        chunks += log.take()
    chunks += log.take(is_last=True)
    assert [chunk.first_line for chunk in chunks] == [
        sum(len(before.lines) for before in chunks[:index]) for index in range(len(chunks))
    ]
    assert all(chunk.size_bytes <= MAX_CHUNK_BYTES for chunk in chunks)
    text = "".join(line for chunk in chunks for line in chunk.lines)
    printable = data.replace(b"\n", b"").replace(b"\r", b"")
    assert text.count("\x00") == printable.count(b"\x00")
