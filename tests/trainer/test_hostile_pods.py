"""Messages and files of a job's own programs that must not disturb the end of their pod."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain_schemas.pods import PodExit, StopNotice
from tests.trainer.pods import Pod, wait_for

MakePod = Callable[..., Pod]
SAY = """
import os, sys
from drivetrain import control
socket = control.connect(os.environ["DRIVETRAIN_CONTROL_SOCKET"])
socket.sendall(open(sys.argv[1], "rb").read())
"""


def samples(columns: object, batch: int = 0) -> bytes:
    message = {
        "t": "samples",
        "run_id": "run",
        "attempt": 1,
        "fence": 1,
        "rank": 0,
        "session": "s",
        "batch": batch,
        "columns": columns,
        "is_result": True,
    }
    return json.dumps(message).encode()


def progress(**fields: object) -> bytes:
    return json.dumps({"t": "progress", "step": 1, **fields}).encode()


SCORE = samples({"score": {"steps": [7], "values": [0.5]}}, batch=9)
SAID = {
    "too many steps": progress(max_steps=2**63 - 1),
    "steps below zero": progress(max_steps=-1),
    "a step in nanoseconds": progress(step=1_700_000_000_000_000_000),
    "an epoch out of range": progress(epoch=2**62),
    "a number of many digits": progress(step=10**400).replace(b'"step": 1,', b""),
    "a reported step in nanoseconds": samples({"loss": {"steps": [1.7e18], "values": [0.3]}}),
    "a reported step out of range": samples({"loss": {"steps": [2**60], "values": [0.3]}}),
    "invalid columns": samples([1]),
    "columns in columns": samples(0).replace(b'"columns": 0', b'"columns": ' + b"[" * 10**5),
    "nesting without end": b"[" * 100_000,
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID.keys())
def test_a_message_out_of_range_is_skipped_and_the_next_one_handled(
    make_pod: MakePod, tmp_path: Path, said: bytes
) -> None:
    (tmp_path / "said").write_bytes(said + b"\n" + SCORE + b"\n")
    pod = make_pod(command=["python", "-c", SAY, str(tmp_path / "said")])
    pod.start_cold()
    end = pod.wait_for_exit()
    assert end.outcome == "succeeded", pod.launch_log
    assert end.result is not None
    assert (end.result.step, end.result.metrics) == (7, {"score": 0.5})


WRITTEN = {
    "more series than an event carries": json.dumps(
        {"step": 1, "metrics": {f"series_{number}": 0.5 for number in range(3300)}}
    ),
    "more bytes than are read": json.dumps({"step": 1, "note": "x" * 200_000}),
    "a step out of range": json.dumps({"step": 2**60}),
    "no JSON": "{",
}


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
def test_an_invalid_result_is_left_out_and_reported(
    make_pod: MakePod, tmp_path: Path, written: str
) -> None:
    (tmp_path / "written").write_text(written)
    command = f'cp {tmp_path / "written"} "$DRIVETRAIN_POD_DIRECTORY/result.json"'
    pod = make_pod(command=["sh", "-c", command])
    pod.start_cold()
    end = pod.wait_for_exit()
    assert (end.outcome, end.result) == ("succeeded", None)
    assert end.detail.startswith("result")
    assert "the result is not kept" in pod.launch_log


def test_a_pipe_as_result_does_not_block(make_pod: MakePod) -> None:
    pod = make_pod(command=["sh", "-c", 'mkfifo "$DRIVETRAIN_POD_DIRECTORY/result.json"'])
    pod.start_cold()
    assert pod.wait_for_exit().outcome == "succeeded"


def test_a_shim_that_cannot_supervise_ends_its_pod_and_reports_it(make_pod: MakePod) -> None:
    broken = (
        "import sys; from pathlib import Path; from drivetrain.pod import shim, supervision\n"
        "def fail(*_): raise RuntimeError('planted')\n"
        "supervision.Supervision._beat = fail\n"
        "shim.run_pod(Path(sys.argv[-1]), is_warm=False)"
    )
    pod = make_pod(command=["sleep", "600"])
    pod.start_cold("-c", broken)
    end = pod.wait_for_exit()
    assert end.outcome == "failed"
    assert "planted" in end.detail
    assert [rank.signal for rank in end.ranks] == [9]


def test_a_notice_is_received_without_its_signal(make_pod: MakePod) -> None:
    pod = make_pod(
        command=["sh", "-c", "trap 'exit 75' TERM; echo up; while :; do sleep 0.1; done"]
    )
    pod.start_cold()
    pod.wait_for_log("up")
    pod.write_notice(StopNotice(reason="cancel", deadline_seconds=20))
    end = pod.wait_for_exit()
    assert (end.outcome, end.ranks[0].exit_code) == ("interrupted", 75)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1024**4)


KINDS = [os.mkfifo, Path.mkdir, make_endless, make_sparse]


@pytest.mark.parametrize("make", KINDS)
def test_anything_in_place_of_a_stop_notice_stops_the_pod_without_blocking(
    make_pod: MakePod, make: Callable[[Path], None]
) -> None:
    pod = make_pod(
        command=["sh", "-c", "trap 'exit 75' TERM; echo up; while :; do sleep 0.1; done"]
    )
    pod.start_cold()
    pod.wait_for_log("up")
    make(pod.directory / "stop.json")
    end = pod.wait_for_exit()
    assert (end.outcome, end.ranks[0].exit_code) == ("interrupted", 75)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("name", ["log", "result.json"])
def test_anything_in_place_of_a_file_of_the_shim_does_not_block(
    make_pod: MakePod, make: Callable[[Path], None], name: str
) -> None:
    """The log is opened after the ranks were started, so they may create it first."""
    pod = make_pod(command=["echo", "said"])
    make(pod.directory / name)
    pod.start_cold()
    path = pod.directory / "exit.json"  # not by a helper that reads the log
    wait_for(path.exists, "exit.json")
    end = PodExit.model_validate_json(path.read_text())
    assert end.outcome == "succeeded"
    assert end.result is None
    assert "said" in end.last_log


def test_a_link_in_place_of_the_log_is_not_followed(make_pod: MakePod, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    pod = make_pod(command=["echo", "said"])
    (pod.directory / "log").symlink_to(other)
    pod.start_cold()
    assert pod.wait_for_exit().outcome == "succeeded"
    assert other.read_text() == "kept"
