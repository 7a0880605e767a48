"""What programs print at their worst, from their pipe to records that every reader takes."""

from pathlib import Path

import msgspec
import pytest

from drivetrain.pod.events import OutRecord
from drivetrain_schemas.envelope import MAX_EVENT_BYTES, parse
from drivetrain_schemas.metrics import LogsWritten
from tests.trainer.pods import Pod


def output_of(pod: Pod) -> list[LogsWritten]:
    pod.start_cold()
    assert pod.wait_for_exit().outcome == "succeeded"
    pod.end_shim()
    (kept,) = (pod.directory.parents[2] / "unsent").glob("*-pod_*")
    records = msgspec.msgpack.decode(kept.read_bytes(), type=list[OutRecord])
    assert all(len(one.value) <= MAX_EVENT_BYTES for one in records)
    found = [parse(one.headers, one.value).payload for one in records if "logs" in one.topic]
    return [one for one in found if isinstance(one, LogsWritten)]


@pytest.mark.parametrize(
    ("printed", "num_bytes"),
    [
        # one line without an end
        pytest.param("b'x' * 5_000_000", 5_000_000, marks=pytest.mark.heavy),
        pytest.param("b'line of a flood\\n' * 12_500_000", 200_000_000, marks=pytest.mark.heavy),
        ("b'\\x00\\xff\\xfe\\x1b[31m\\x1b]0;title\\x07\\r\\n' * 10", 190),
    ],
)
def test_output_is_bounded_counted_and_readable(
    tmp_path: Path, printed: str, num_bytes: int
) -> None:
    script = tmp_path / "program.py"
    script.write_text(f"import os\ndata = memoryview({printed})\n" + WRITE)
    pod = Pod(tmp_path, command=["python", str(script)])
    batches = output_of(pod)
    lines = [line for batch in batches for line in batch.lines]
    num_dropped = sum(batch.num_dropped_bytes for batch in batches)
    num_passed = sum(map(len, lines))
    assert num_passed <= 4 * 2**20
    if num_bytes > 2**20:
        assert num_dropped > 0
        assert 0.99 < (num_passed + len(lines) + num_dropped) / num_bytes < 1.01
    else:
        assert lines[0] == "\ufffd\ufffd\ufffd\x1b[31m\x1b]0;title\x07"


WRITE = """
while data:
    data = data[os.write(1, data[:1_000_000]):]
"""
