"""Fetching code that hangs: it is reported, it can be stopped, and it ends."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain_schemas.pods import FailureKind, StopNotice
from tests.trainer.pods import Pod, wait_for

MakePod = Callable[..., Pod]
QUICK = """
import sys, time
from pathlib import Path
from drivetrain.pod import code, fetching, shim, telemetry

def note(self, record):
    with open("beats", "ab") as file:
        file.write(record.value + b"\\n")

telemetry.Telemetry.put_heartbeat = note
code.fetch = lambda *_: time.sleep(600)
fetching.FETCH_SECONDS = float(sys.argv[1])
fetching.QUIET_SECONDS = 0.05
shim.run_pod(Path(sys.argv[-1]), is_warm=False)
"""


@pytest.fixture
def endless(tmp_path: Path) -> dict[str, str]:
    """Code whose bytes never arrive."""
    return {"uri": (tmp_path / "objects/code").as_uri(), "sha256": "0" * 64}


def test_a_fetch_that_hangs_is_reported_and_ends(
    make_pod: MakePod, endless: dict[str, str]
) -> None:
    pod = make_pod(command=["true"], code=endless)
    pod.start_cold("-c", QUICK, "4")
    end = pod.wait_for_exit()
    assert end.outcome == "failed"
    assert end.detail == "code: not fetched within 4 s"
    assert '"phase":"starting"' in (pod.directory / "beats").read_text()


@pytest.mark.parametrize("is_signalled", [True, False], ids=["signal", "file only"])
def test_a_fetch_that_hangs_is_stopped(
    make_pod: MakePod, endless: dict[str, str], is_signalled: bool
) -> None:
    pod = make_pod(command=["true"], code=endless)
    pod.start_cold("-c", QUICK, "600")
    wait_for((pod.directory / "beats").exists, "a heartbeat")
    notice = StopNotice(reason="cancel", deadline_seconds=5)
    if is_signalled:
        pod.stop(notice)
    else:
        pod.write_notice(notice)
    assert pod.wait_for_exit().outcome == "interrupted"
    wait_for(lambda: not pod.processes(), "the fetch to be gone")


SLOW = """
import time
from drivetrain.files import layout
read_part = layout.read_part

def slowly(storage, name):
    time.sleep(0.5)
    return read_part(storage, name)

layout.read_part = slowly
"""


@pytest.mark.heavy
def test_files_that_take_long_are_waited_for_while_they_arrive(make_pod: MakePod) -> None:
    """Twice as long as a fetch may be silent."""
    write = "for n in 1 2 3 4 5 6 7 8; do head -c 100000 /dev/zero > file$n; done; exit 1"
    first = make_pod(command=["bash", "-c", write])
    first.start_cold()
    assert first.wait_for_exit().outcome == "failed"
    again = make_pod(command=["bash", "-c", "cat file* | wc -c"], attempt=2)
    again.start_cold("-c", SLOW + QUICK.replace("code.fetch = lambda *_: time.sleep(600)", ""), "2")
    assert again.wait_for_exit().outcome == "succeeded", again.launch_log
    assert again.log.splitlines()[-1] == "800000"


@pytest.mark.parametrize(
    ("uri", "kind"),
    [("store:code/none.tar.gz", None), ("s3://elsewhere/code.tar.gz", FailureKind.INVALID)],
    ids=["not there yet", "in a place that is not allowed"],
)
def test_only_code_that_may_still_arrive_is_worth_another_attempt(
    make_pod: MakePod, uri: str, kind: FailureKind | None
) -> None:
    pod = make_pod(command=["true"], code={"uri": uri, "sha256": "0" * 64})
    pod.start_cold()
    end = pod.wait_for_exit()
    assert end.outcome == "failed"
    assert (end.failure and end.failure.kind) == kind
