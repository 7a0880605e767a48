"""Fetching code that hangs: it is reported, it can be stopped, and it ends."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain_schemas.pods import StopNotice
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
