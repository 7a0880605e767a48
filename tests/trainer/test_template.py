"""The warm template replies to every request, forks only valid ones, and only for its caller."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drivetrain import template as template_module
from drivetrain.admission import Admission
from tests.trainer.pods import NO_KAFKA, Pod
from tests.trainer.warm_template import WarmTemplate, ask, name_caller, request


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


def test_a_request_of_another_process_is_refused_and_reported(
    warm_template: WarmTemplate, template: Path, make_pod: Callable[..., Pod]
) -> None:
    """It has the same user, and a directory that would do."""
    pod = make_pod(command=["true"])
    asker, answer = warm_template.ask_as_another(pod.directory)
    assert answer == {"error": "only the scheduler may ask for a pod"}
    line = warm_template.logged()[-1]
    assert (line["pid"], line["uid"]) == (asker, os.geteuid())
    assert line["event"] == "request refused: not from the scheduler"
    assert "tests.trainer.warm_template" in line["program"]
    assert f"process {asker}" in warm_template.report()
    pod.start_warm(template)
    assert pod.wait_for_exit().outcome == "succeeded"


def test_the_caller_may_change(
    warm_template: WarmTemplate, template: Path, make_pod: Callable[..., Pod]
) -> None:
    """A scheduler that starts again is another process."""
    pod = make_pod(command=["true"])
    try:
        warm_template.admit(os.getppid())
        assert ask(template, request(pod.directory)).keys() == {"error"}
        assert not (pod.directory / "identity.json").exists()
    finally:
        warm_template.admit(os.getpid())
    pod.start_warm(template)
    assert pod.wait_for_exit().outcome == "succeeded"


def test_what_was_asked_before_the_caller_was_named_is_refused(
    warm_template: WarmTemplate, template: Path, make_pod: Callable[..., Pod]
) -> None:
    """The pid may have been another process's then, which left its connection to a third one."""
    pod = make_pod(command=["true"])
    answer = warm_template.ask_before_it_is_named(pod.directory)
    assert answer == {"error": "only the scheduler may ask for a pod"}
    assert not (pod.directory / "identity.json").exists()
    warm_template.admit(os.getpid())
    pod.start_warm(template)
    assert pod.wait_for_exit().outcome == "succeeded"


def test_only_the_directory_of_a_pod_is_taken(
    template: Path, make_pod: Callable[..., Pod], pods_root: Path, tmp_path: Path
) -> None:
    pod = make_pod(command=["true"])
    elsewhere = make_pod(command=["true"], pods=tmp_path / "pods")
    (own := pod.work / "job" / "1" / pod.pod_id).mkdir(parents=True)
    (linked := pods_root / "job_linked").symlink_to(elsewhere.directory.parents[1])
    (last := pod.directory.with_name("linked")).symlink_to(elsewhere.directory)
    refused = (
        elsewhere.directory,
        own,
        last,
        linked / "1" / elsewhere.pod_id,
        pod.directory / ".." / pod.pod_id,
        pods_root / ".." / pod.directory.relative_to(pods_root.parent),
        pod.directory.parent,
    )
    for directory in refused:
        if not (directory / "spec.json").exists():
            (directory / "spec.json").write_text("{}")
        assert "no directory of a pod" in str(ask(template, request(directory))["error"])
    pod.start_warm(template)
    assert pod.wait_for_exit().outcome == "succeeded"


def test_a_pod_has_nothing_of_the_parents_socket(
    template: Path, make_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    """It would hear who the caller is, and could not write there, but needs neither."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os; names = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd')"
        " if os.path.lexists(f'/proc/self/fd/{n}')]; print([n for n in names if 'socket' in n])"
    )
    pod = make_pod(command=["python", str(script)], kafka=NO_KAFKA)
    pod.start_warm(template)
    assert pod.wait_for_exit().last_log == "[]\n"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[socket.socket]:
    """The template's end of a connection that this process has made."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as made:
        listener.bind(str(path))
        listener.listen()
        made.connect(str(path))
        accepted, _ = listener.accept()
        with accepted:
            yield accepted


def test_the_pid_of_a_process_that_is_gone_admits_no_other(connection: socket.socket) -> None:
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, ours:
        admission = Admission(ours)
        assert not admission.admits(connection)
        name_caller(theirs, os.getpid(), later_by=-1)
        admission.hear()
        assert not admission.admits(connection)
        name_caller(theirs, os.getpid())
        admission.hear()
        assert admission.admits(connection)


def test_a_flood_of_requests_is_one_line(
    connection: socket.socket, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, ours:
        admission = Admission(ours)
        for _ in range(1000):
            assert not admission.admits(connection)
    lines = capfd.readouterr().err.splitlines()
    assert [json.loads(line)["pid"] for line in lines] == [os.getpid()]


@pytest.mark.parametrize("has_report", [False, True])
def test_a_template_without_a_parent_ends(connection: socket.socket, has_report: bool) -> None:
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        admission = Admission(ours)
        if has_report:
            admission.admits(connection)
        theirs.close()
        with pytest.raises(SystemExit):
            admission.hear()
