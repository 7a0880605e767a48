"""Processes are found and killed regardless of their names."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from drivetrain.pod import processes
from services.runtime import processes as launcher
from services.standalone import identity as standalone

NAMED = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b"\\xff) Z 1 (\\xfe", 0, 0, 0)
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def named() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose name is not UTF-8 and looks like the fields after it."""
    child = subprocess.Popen([sys.executable, "-c", NAMED], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_process_cannot_hide_by_its_name(named: subprocess.Popen[bytes]) -> None:
    seen = processes.descendants(os.getpid())
    assert named.pid in seen
    assert launcher.start_ticks(named.pid) == seen[named.pid]
    identity = standalone.identify(named.pid)
    assert identity is not None
    assert identity.start_ticks == seen[named.pid]


def test_parents_come_before_their_children() -> None:
    nested = "sh -c 'sh -c \"sleep 600 & echo up; wait\" & wait' & wait"
    top = subprocess.Popen(["sh", "-c", nested], stdout=subprocess.PIPE)
    assert top.stdout is not None
    top.stdout.readline()
    seen = list(processes.descendants(os.getpid()))
    below = list(processes.descendants(top.pid))
    for pid in [*below, top.pid]:
        os.kill(pid, signal.SIGKILL)
    top.wait()
    top.stdout.close()
    assert len(below) == 3
    assert [pid for pid in seen if pid in {top.pid, *below}] == [top.pid, *below]


def test_a_reused_pid_is_not_killed(
    named: subprocess.Popen[bytes],
) -> None:
    ticks = processes.descendants(os.getpid())[named.pid]
    processes.signal_process(named.pid, ticks - 1, signal.SIGKILL)
    assert named.poll() is None
    processes.signal_process(named.pid, ticks, signal.SIGKILL)
    assert named.wait() == -signal.SIGKILL


def test_gone_is_reported_after_two_scans_of_each_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was being created at the first scan is found by the second."""
    late = launcher.Process(2, parent=0, start_ticks=20, marker="late")
    scans = iter([{}, {2: late}])
    monkeypatch.setattr(launcher, "census", lambda: next(scans))
    monkeypatch.setattr(launcher, "_signal", lambda *_: True)
    clock = iter([0.0, 1.0, 3.0])
    monkeypatch.setattr(launcher.time, "monotonic", lambda: next(clock))
    assert launcher.kill_marked(frozenset({"late"}), 2.0) == frozenset()


def test_an_error_of_this_machine_does_not_make_a_process_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_more_files(*_: object, **__: object) -> None:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(launcher, "open", no_more_files, raising=False)
    with pytest.raises(OSError, match="too many"):
        launcher.start_ticks(os.getpid())
    with pytest.raises(OSError, match="too many"):
        launcher.census()
