"""The warm template replies to every request and forks only valid ones."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from drivetrain import template as template_module
from tests.trainer.pods import NO_KAFKA, Pod


def ask(template: Path, request: bytes) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(template))
        connection.sendall(request)
        answer = connection.makefile().readline()
    return json.loads(answer)


@pytest.mark.parametrize(
    "request_",
    [
        b"\n",
        b"not json\n",
        b"[" * 16000 + b"\n",
        b"[]\n",
        b'{"directory": 7}\n',
        b'{"directory": "/nowhere"}\n',
    ],
)
def test_an_invalid_request_is_refused_and_the_next_one_served(
    template: Path, make_pod: Callable[..., Pod], request_: bytes
) -> None:
    assert ask(template, request_).keys() == {"error"}
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(template))
    pod = make_pod(command=["true"])
    pod.start_warm(template)
    assert pod.wait_for_exit().outcome == "succeeded"


def test_variables_of_the_interpreter_need_a_new_interpreter(
    template: Path, make_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "near.py").write_text("NAME = 'found'")
    script = tmp_path / "script.py"
    script.write_text("import near, sys; print(near.NAME, 'torch' in sys.modules)")
    pod = make_pod(
        command=["python", str(script)], environment={"PYTHONPATH": tmp_path / "library"}
    )
    pod.start_warm(template)
    assert pod.wait_for_exit().last_log == "found False\n"


def test_a_script_in_the_forked_process_finds_torch_and_the_loop_loaded(
    template: Path, make_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; print(__name__, __file__, {'torch', 'drivetrain.training'} <= {*sys.modules})"
    )
    pod = make_pod(command=["python", str(script)], kafka=NO_KAFKA)
    pod.start_warm(template)
    assert pod.wait_for_exit().last_log == f"__main__ {script} True\n"
    assert json.loads((pod.directory / "identity.json").read_text())["pid"] in pod.processes()


def test_a_refused_fork_leaves_no_descriptor_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    num_open = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(BlockingIOError):
        template_module._fork_shim(tmp_path, ())
    assert len(os.listdir("/proc/self/fd")) == num_open
