"""What a pod sends of its own use, without being asked."""

import json
from pathlib import Path

import msgspec
import pytest

from drivetrain.pod.events import OutRecord
from tests.trainer.pods import Pod

PROGRAM = """
import subprocess, sys, time
held = bytearray(b"x") * 150_000_000
busy = "import time; begin = time.monotonic()\\nwhile time.monotonic() - begin < 3: pass"
subprocess.run([sys.executable, "-c", busy])
"""


@pytest.mark.heavy
def test_cpu_and_memory_of_all_its_processes(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    pod = Pod(tmp_path, command=["python", str(script)])
    pod.start_cold()
    assert pod.wait_for_exit().outcome == "succeeded"
    pod.end_shim()
    (kept,) = (pod.directory.parents[2] / "unsent").glob("*-pod_*")
    records = msgspec.msgpack.decode(kept.read_bytes(), type=list[OutRecord])
    batches = [json.loads(one.value) for one in records if one.topic.endswith("metrics")]
    assert len({(one["session"], one["batch"]) for one in batches}) == len(batches) >= 1
    columns = batches[0]["columns"]
    # The child is busy, the parent holds the memory; other load may leave the child half a core.
    assert columns["system/cpu_percent"]["values"][0] > 10
    assert 150e6 < columns["system/memory_bytes"]["values"][0] < 600e6
    assert "system/host_network_sent_bytes_per_s" in columns
