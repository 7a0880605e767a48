"""Lines of output: numbered, in bounded chunks, at a bounded rate; every loss is counted."""

import io
import math

from hypothesis import given
from hypothesis import strategies as st

from drivetrain.pod.logs import MAX_CHUNK_BYTES, MAX_LINE_CHARACTERS, RankLog, RateLimit
from drivetrain.pod.progress_bars import Lines


def make_log(rate: float = math.inf, burst: float = math.inf) -> RankLog:
    return RankLog(0, RateLimit(rate, burst, now=0.0))


def test_lines_are_whole_for_any_chunks() -> None:
    log = make_log()
    for piece in (b"one\ntw", b"o\nthr", b"ee\r", b"\nfour\r\n", b"rest"):
        log.feed(piece, 0.0)
    (chunk,) = log.take(0.0)
    assert chunk.lines == ["one", "two", "three", "four"]
    assert log.tail == b"one\ntwo\nthree\nfour\nrest"
    (last,) = log.take(0.0, is_last=True)
    assert (last.first_line, last.lines) == (4, ["rest"])


def test_output_that_is_not_text_still_arrives() -> None:
    log = make_log()
    log.feed(b"\xff\x00ok\n", 0.0)
    assert log.take(0.0)[0].lines == ["\ufffd\x00ok"]


def test_an_endless_line_is_cut() -> None:
    log = make_log()
    log.feed(b"x" * (2 * MAX_LINE_CHARACTERS + 5), 0.0)
    lengths = [len(line) for chunk in log.take(0.0, is_last=True) for line in chunk.lines]
    assert lengths == [MAX_LINE_CHARACTERS, MAX_LINE_CHARACTERS, 5]


def test_output_over_the_rate_is_counted_and_the_numbering_shows_the_gap() -> None:
    log = make_log(rate=10.0, burst=10.0)
    log.feed(b"12345678\ndropped\n", 0.0)
    log.feed(b"abcdefgh\n", 1.0)
    first, second = log.take(0.0)
    assert (first.first_line, first.lines, first.num_dropped_bytes) == (0, ["12345678"], 0)
    assert (second.first_line, second.lines, second.num_dropped_bytes) == (2, ["abcdefgh"], 8)
    assert log.num_dropped_bytes == 8


def test_the_dropped_count_arrives_without_another_line() -> None:
    log = make_log(rate=1.0, burst=1.0)
    log.feed(b"too long\n", 0.0)
    (chunk,) = log.take(0.0)
    assert (chunk.lines, chunk.num_dropped_bytes) == ([], 9)
    assert log.take(0.0) == []


@given(st.binary(max_size=200_000), st.integers(1, 70_000))
def test_nothing_is_lost_and_every_chunk_is_bounded(data: bytes, piece: int) -> None:
    log = make_log()
    chunks = []
    for start in range(0, len(data), piece):
        log.feed(data[start : start + piece], 0.0)
        chunks += log.take(0.0)
    chunks += log.take(0.0, is_last=True)
    assert [chunk.first_line for chunk in chunks] == [
        sum(len(before.lines) for before in chunks[:index]) for index in range(len(chunks))
    ]
    assert all(chunk.size_bytes <= MAX_CHUNK_BYTES for chunk in chunks)
    text = "".join(line for chunk in chunks for line in chunk.lines)
    if b"\r" not in data and b"\x1b" not in data:
        assert text.count("\x00") == data.count(b"\x00")


class Printed(io.StringIO):
    """What a program prints goes into the log, a tenth of a second passes with each write."""

    def __init__(self, log: RankLog) -> None:
        super().__init__()
        self.log = log
        self.now = 0.0
        self.lines: list[str] = []

    def write(self, text: str) -> int:
        self.now += 0.1
        self.log.feed(text.encode(), self.now)
        self.take()
        return len(text)

    def take(self, is_last: bool = False) -> None:
        for chunk in self.log.take(self.now, is_last):
            self.lines += chunk.lines

    def paint(self, text: str, position: int = 0) -> None:
        """As tqdm shows a state of a bar; `position` lines below the first one."""
        self.write("\n" * position)
        self.write("\r" + text)
        self.write("\x1b[A" * position)


def test_a_progress_bar_is_a_line_every_few_seconds_and_its_last_state() -> None:
    printed = Printed(make_log())
    printed.write("begins\n")
    for epoch in (1, 2):
        for percent in range(101):
            printed.paint(f"epoch {epoch}: {percent}%|###|")
        printed.write("\n")
        printed.write("loss 0.1\n")
    printed.take(is_last=True)
    bars = [line for line in printed.lines if line.startswith("epoch")]
    assert [line for line in bars if "100%" in line] == ["epoch 1: 100%|###|", "epoch 2: 100%|###|"]
    assert 4 <= len(bars) <= printed.now / 5 + 2
    others = [line for line in printed.lines if line not in bars]
    assert others == ["begins", "loss 0.1", "loss 0.1"]
    assert printed.lines[-2:] == ["epoch 2: 100%|###|", "loss 0.1"]


def test_bars_below_each_other_do_not_fill_the_log() -> None:
    printed = Printed(make_log())
    for outer in range(20):
        printed.paint(f"outer: {outer}/20")
        for inner in range(20):
            printed.paint(f"inner: {inner}/20", position=1)
        printed.paint(" " * 12, position=1)
    printed.paint("outer: 20/20")
    printed.write("\n")
    printed.take(is_last=True)
    assert printed.lines[-1] == "outer: 20/20"
    assert 3 <= len(printed.lines) <= printed.now / 5 + 2


def test_a_bar_that_stands_still_is_shown() -> None:
    log = make_log()
    log.feed(b"\r 10%\r 20%", 0.0)
    log.feed(b"\r 30%\r", 1.0)
    assert log.take(4.0) == []
    (chunk,) = log.take(9.0)
    assert chunk.lines == [" 20%"]
    log.feed(b"\nnext\n", 10.0)
    assert [line for chunk in log.take(10.0, is_last=True) for line in chunk.lines] == [
        " 30%",
        "next",
    ]


@given(
    st.lists(st.text("ab \u00e9", max_size=60), min_size=1, max_size=400),
    st.integers(1, 3000),
    st.sampled_from([200.0, 5000.0]),
)
def test_of_a_flood_whole_lines_pass_under_their_numbers_and_the_rest_is_counted(
    lines: list[str], piece: int, rate: float
) -> None:
    log = make_log(rate=rate, burst=rate)
    data = "".join(f"{line}\n" for line in lines).encode()
    chunks = []
    for number, start in enumerate(range(0, len(data), piece)):
        log.feed(data[start : start + piece], number * 0.1)
        chunks += log.take(number * 0.1)
    chunks += log.take(1e9, is_last=True)
    passed = {
        chunk.first_line + at: line for chunk in chunks for at, line in enumerate(chunk.lines)
    }
    assert all(lines[number] == line for number, line in passed.items())
    num_bytes = sum(len(line.encode()) + 1 for line in passed.values())
    assert num_bytes + log.num_dropped_bytes == len(data)
    assert sum(chunk.num_dropped_bytes for chunk in chunks) == log.num_dropped_bytes
    assert log.tail == data[-len(log.tail) :]


def test_a_flood_costs_work_per_read_and_not_per_line() -> None:
    """Else the rank would wait for the shim: 100 MB/s are a million lines per second."""
    log = make_log(rate=1.0, burst=1.0)
    log.feed(b"\nx\n", 0.0)
    lines = log._lines
    log._lines = NoLines()
    log._lines.rest = lines.rest
    log.feed(b"y\n" * 30_000 + b"half", 0.1)
    log.feed(b" a line\n", 0.2)
    num_dropped = sum(chunk.num_dropped_bytes for chunk in log.take(0.2))
    assert num_dropped == log.num_dropped_bytes == 2 + 60_000 + 12
    assert log.tail.endswith(b"y\nhalf a line\n")


class NoLines(Lines):
    def feed(self, data: bytes, now: float):
        raise AssertionError("each line is looked at")
