"""Starting the ranks of a pod: their environment, their command, their process.

A command that starts its own ranks (torchrun) is started once per pod, any other once per device.
`python script.py ...` runs in the forked process itself when the shim was forked from the warm
template (drivetrain.pod.interpreter), so nothing is imported again; any other command is exec'ed.
A rank's output goes into a pipe of its own.
"""

import os
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from drivetrain.files.places import work_directory
from drivetrain.pod import memory
from drivetrain.pod.interpreter import run_python, runs_in_process
from drivetrain.pod.title import set_title
from drivetrain_schemas import launching, placeholders
from drivetrain_schemas.checkpoint_names import job_directory
from drivetrain_schemas.pods import MARKER, PodSpec, marker_of

# Read by CUDA, and by HIP as well, when a process first touches a device.
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_THIS_MACHINE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Rank:
    """A started rank, and the read end of its output."""

    rank: int
    pid: int
    output: int


def rank_environment(spec: PodSpec, index: int, directory: Path) -> dict[str, str]:
    """The variables that the platform adds to those of the job's spec."""
    store_url = spec.object_store_url.rstrip("/")
    variables = {
        **spec.job.environment,
        **_place(spec, index),
        MARKER: marker_of(directory),
        "DRIVETRAIN_TENANT_ID": spec.tenant_id,
        "DRIVETRAIN_JOB_ID": spec.job_id,
        "DRIVETRAIN_RUN_ID": spec.run_id,
        "DRIVETRAIN_ATTEMPT": str(spec.attempt),
        "DRIVETRAIN_FENCE": str(spec.fence),
        "DRIVETRAIN_POD_ID": spec.pod_id,
        "DRIVETRAIN_POD_DIRECTORY": str(directory),
        "DRIVETRAIN_JOB_DIRECTORY": str(work_directory(directory)),
        "DRIVETRAIN_CONTROL_SOCKET": str(directory / "control.sock"),
        # Without its environment, which is set already: one variable holds 128 KiB at most.
        "DRIVETRAIN_JOB_SPEC": spec.job.model_dump_json(
            exclude_unset=True, exclude={"environment"}
        ),
        **placeholders.variables(spec.job.hyperparameters),
        "DRIVETRAIN_DEVICE_TYPE": spec.device_type,
        "DRIVETRAIN_OBJECT_STORE_URL": store_url,
        "DRIVETRAIN_CHECKPOINT_URL": f"{store_url}/{job_directory(spec.tenant_id, spec.job_id)}",
        "OMP_NUM_THREADS": spec.job.environment.get("OMP_NUM_THREADS", "1"),
        "PATH": spec.job.environment.get("PATH") or _path(),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
    }
    if spec.object_store_endpoint_url is not None:
        variables["DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL"] = spec.object_store_endpoint_url
    if spec.object_store_id is not None:
        variables["DRIVETRAIN_OBJECT_STORE_ID"] = spec.object_store_id
    if _address(spec) == _THIS_MACHINE:
        variables["GLOO_SOCKET_IFNAME"] = "lo"
    if spec.devices and spec.device_type != "cpu":
        variables[VISIBLE_DEVICES] = ",".join(as_seen_outside(spec.devices))
    return variables


def _address(spec: PodSpec) -> str:
    return spec.rendezvous_address or _THIS_MACHINE


def _init_method(spec: PodSpec) -> str:
    if spec.rendezvous_file is not None:
        return f"file://{spec.rendezvous_file}"
    return f"tcp://{_address(spec)}:{spec.master_port}"


def num_processes(spec: PodSpec) -> int:
    """How many processes of the command the pod starts."""
    return spec.num_ranks if launching.find(spec.job.command) is None else 1


def flaw_of_command(spec: PodSpec) -> str:
    """Why the command cannot run on the devices of the job; empty where it can."""
    flaw = launching.mismatch(spec.job.command, spec.world_size)
    launcher = launching.find(spec.job.command)
    if flaw or launcher is None or spec.num_pods == 1 or launcher.name == launching.TORCHRUN:
        return flaw
    return f"{launcher.name} cannot start ranks on {spec.num_pods} machines here: use torchrun"


def _place(spec: PodSpec, index: int) -> dict[str, str]:
    """Which rank this is, and where all of them meet; for a launcher of ranks, which machine.

    The program of one device finds nothing that libraries would take for a distributed run.
    """
    meeting = {"MASTER_ADDR": _address(spec), "MASTER_PORT": str(spec.master_port)}
    if launching.find(spec.job.command) is not None:
        return {
            **meeting,
            "DRIVETRAIN_INIT_METHOD": "env://",
            "PET_NNODES": str(spec.num_pods),
            "PET_NODE_RANK": str(spec.pod_index),
            "PET_NPROC_PER_NODE": str(spec.num_ranks),
            "PET_MASTER_ADDR": _address(spec),
            "PET_MASTER_PORT": str(spec.master_port),
        }
    if spec.world_size == 1:
        return {"DRIVETRAIN_INIT_METHOD": _init_method(spec)}
    return {
        **meeting,
        "DRIVETRAIN_INIT_METHOD": _init_method(spec),
        "RANK": str(spec.first_rank + index),
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_RANK": str(index),
        "LOCAL_WORLD_SIZE": str(spec.num_ranks),
    }


def _path() -> str:
    """First the programs of this interpreter's environment: python, torchrun, drivetrain."""
    return os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))


def as_seen_outside(devices: Sequence[int]) -> Iterator[str]:
    """The platform numbers the devices visible to it, which may be some of those of the machine."""
    shown = os.environ.get(VISIBLE_DEVICES, "").split(",")
    for device in devices:
        yield str(device) if shown == [""] else shown[device].strip()


def start_rank(
    spec: PodSpec, index: int, directory: Path, is_warm: bool, not_for_ranks: Sequence[int]
) -> Rank:
    """Fork one rank. `not_for_ranks`: descriptors of the shim that a rank must not hold open."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 127
        try:
            _connect_output(writer)
            for descriptor in (reader, writer, *not_for_ranks):
                os.close(descriptor)
            memory.enter(spec.groups)
            code = _run(spec, index, directory, is_warm)
        except BaseException:
            traceback.print_exc()
        finally:
            _flush()
            os._exit(code)
    os.close(writer)
    os.set_blocking(reader, False)
    return Rank(spec.first_rank + index, pid, reader)


def _connect_output(writer: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(writer, 1)
    os.dup2(writer, 2)


def _run(spec: PodSpec, index: int, directory: Path, is_warm: bool) -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    place = work_directory(directory)
    os.chdir(place)
    inherited = {n: v for n, v in os.environ.items() if not n.startswith("DRIVETRAIN_")}
    variables = rank_environment(spec, index, directory)
    os.environ.clear()
    os.environ.update(inherited | variables)
    filled = placeholders.fill(spec.job.command, spec.job.hyperparameters)
    command = launching.without_place(filled)
    if is_warm and runs_in_process(command, spec.job.environment, place):
        set_title(f"{spec.job.name} rank {spec.first_rank + index}: {shlex.join(command)}")
        return run_python(command[1:])
    if command[0] in ("python", "python3"):
        command[0] = sys.executable
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
    return 127


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
