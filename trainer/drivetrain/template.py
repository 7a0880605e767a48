"""The warm template: a process that has imported torch and forks the shims of pods.

`python -m drivetrain.template --socket PATH --pods ROOT`. One line of JSON each way: the reply to
`{"directory": DIR}` is `{"pid": N}`, or `{"error": TEXT}` if nothing was started. It serves one
process, the scheduler (drivetrain.admission; standard input is the socket of the parent), and only
for a pod's directory below ROOT. A pod forked from here reaches its first step in a fifth of a
second instead of many seconds. The template has one thread, no CUDA context and no event loop,
because none of these survive a fork.
"""

import argparse
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from drivetrain import control, marker
from drivetrain.admission import Admission
from drivetrain.pod.shim import run_pod
from drivetrain_schemas.pods import MARKER, marker_of

_THREADS = "OMP_NUM_THREADS"  # OpenBLAS and MKL read it as well
_PRELOADED = (
    "torch",
    "torch._dynamo",  # imported by the first DistributedDataParallel; slower than torch itself
    "torch.distributed",
    "torch.nn.parallel",
    "torch.optim.lr_scheduler",
    "torch.utils.data",
    "torch.utils.data.distributed",
    "numpy",
    "aiokafka",
    "drivetrain.training",
    "drivetrain.pod.telemetry",
)
_NOT_ADMITTED: dict[str, int | str] = {"error": "only the scheduler may ask for a pod"}
_PRELOADED_WHERE_INSTALLED = ("sklearn.datasets",)  # its import takes half as long as torch's


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m drivetrain.template", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--pods", type=Path, required=True)
    options = parser.parse_args(arguments)
    if os.environ.get(MARKER) != marker.PADDING:
        _start_again_with_room_for_the_marker(arguments)
    for module in _PRELOADED:
        importlib.import_module(module)
    for module in _PRELOADED_WHERE_INSTALLED:
        with suppress(ImportError):
            importlib.import_module(module)
    num_threads = len(os.listdir("/proc/self/task"))
    if num_threads != 1:
        sys.exit(f"a template must have one thread to be forked, but it has {num_threads}")
    gc.collect()
    gc.freeze()  # otherwise each garbage collection in a child copies the pages of these modules
    admission = Admission(_taken_input())
    options.socket.unlink(missing_ok=True)
    serve(control.listen(options.socket), admission, options.pods)


def _taken_input() -> socket.socket:
    """The socket of the parent, moved away from standard input, which pods inherit."""
    parent = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return parent


def serve(listener: socket.socket, admission: Admission, pods: Path) -> None:
    while True:
        ready, _, _ = select.select([listener, admission.parent], [], [])
        if admission.hear():
            _refuse_waiting(listener)
            continue
        if listener not in ready:
            continue
        connection, _ = listener.accept()
        with connection:
            try:
                connection.settimeout(5)
                if admission.admits(connection):
                    answer = _answer(connection, pods, (listener, admission.parent))
                else:
                    answer = _NOT_ADMITTED
                if answer is not None:
                    _send(connection, answer)
            except OSError:
                continue  # the client has disconnected


def _refuse_waiting(listener: socket.socket) -> None:
    """Of a process that connected before the caller was named, the caller may have the pid now.

    The queue is served in order: those behind its first length have come later.
    """
    for _ in range(control.BACKLOG + 1):
        if not select.select([listener], [], [], 0)[0]:
            return
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.settimeout(5)
            _send(connection, _NOT_ADMITTED)


def _send(connection: socket.socket, answer: Mapping[str, int | str]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _answer(
    connection: socket.socket, pods: Path, ours: Sequence[socket.socket]
) -> dict[str, int | str] | None:
    line = b""
    while not line.endswith(b"\n"):
        data = connection.recv(4096)
        if not data:
            return None
        line += data
        if len(line) > 16384:
            return {"error": "a line of more than 16384 bytes"}
    try:
        directory = Path(json.loads(line)["directory"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"error": 'write {"directory": DIR}'}
    if not _is_of_pod(directory, pods):
        return {"error": f"{directory} is no directory of a pod below {pods}"}
    if not (directory / "spec.json").is_file():
        return {"error": f"{directory} contains no spec.json"}
    try:
        return {"pid": _fork_shim(directory, (connection, *ours))}
    except OSError as error:  # the first fork failed, so nothing was started
        return {"error": str(error)}


def _is_of_pod(directory: Path, pods: Path) -> bool:
    """One that a launcher makes, <pods>/<job>/<attempt>/<pod>, without a link below `pods`."""
    try:
        parts = directory.relative_to(pods).parts
        return len(parts) == 3 and directory.resolve() == pods.resolve().joinpath(*parts)
    except (ValueError, OSError, RuntimeError):  # elsewhere, or a link without an end
        return False


def _fork_shim(directory: Path, ours: Sequence[socket.socket]) -> int:
    """Fork twice, so that the shim is not our child and survives our exit."""
    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if child == 0:
        try:
            os.close(reader)
            shim = os.fork()
            if shim == 0:
                os.close(writer)
                for endpoint in ours:
                    endpoint.close()
                _become_shim(directory)
            os.write(writer, str(shim).encode())
        finally:
            os._exit(0)  # in every case, there must be no second template
    os.close(writer)
    with os.fdopen(reader) as pipe:
        pid = pipe.read()
    os.waitpid(child, 0)
    if not pid:
        raise OSError("the second fork failed")
    return int(pid)


def _become_shim(directory: Path) -> None:
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        output = os.open(directory / "launch.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        marker.overwrite(marker_of(directory))
        code = run_pod(directory, is_warm=True)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _start_again_with_room_for_the_marker(arguments: Sequence[str]) -> None:
    environment = {
        **os.environ,
        MARKER: marker.PADDING,
        _THREADS: "1",  # as ranks have it, unless their job says otherwise
    }
    os.execve(
        sys.executable,
        [sys.executable, "-m", "drivetrain.template", *arguments],
        environment,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
