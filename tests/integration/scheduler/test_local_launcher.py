"""The local launcher with real processes: starting once, adopting, stopping, killing for sure."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from drivetrain_schemas.pods import MARKER, PodIdentity, StopNotice, marker_of
from drivetrain_schemas.runs import WaitCause
from services.runtime import cgroups, processes
from services.scheduler.core.pods import Sight
from services.scheduler.launchers import template
from services.scheduler.launchers.base import LaunchBlocked
from services.scheduler.launchers.directory import PodDirectory
from services.scheduler.launchers.local import SHIM as REAL_SHIM
from tests.integration.scheduler.pods import (
    SHIM as SMALL_SHIM,
)
from tests.integration.scheduler.pods import (
    SLEEP,
    left_of,
    make_launcher,
    make_pod_spec,
    ref_of,
    seen,
    short_directory,
)
from tests.mounts import mounted, remount

PYTHON = sys.executable
# A rank that leaves a grandchild behind, in a session of its own.
LEAVES_A_CHILD = [
    PYTHON,
    "-c",
    "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)",
]


@pytest.fixture
def launcher(tmp_path):
    launcher = make_launcher(tmp_path)
    yield launcher
    _leave_nothing(launcher, tmp_path)


@pytest.fixture(params=[SMALL_SHIM, REAL_SHIM], ids=["small shim", "real shim"])
def any_launcher(request, tmp_path):
    """Also with the shim that pods really run under, so that both keep one protocol."""
    launcher = make_launcher(tmp_path, shim=request.param)
    yield launcher
    _leave_nothing(launcher, tmp_path)


def _leave_nothing(launcher, tmp_path):
    leftovers = {marker_of(pod) for pod in tmp_path.glob("job_*/*/pod_*")}
    assert processes.kill_marked(frozenset(leftovers), 10) == leftovers
    for marker in leftovers:
        cgroups.remove(marker)
    for child in launcher._children:
        child.wait(10)


async def test_a_pod_runs_and_reports_how_it_ended(any_launcher):
    spec = make_pod_spec(
        [PYTHON, "-c", "import os; raise SystemExit(int(os.environ['RANK']))"], ranks=2
    )

    await any_launcher.launch(spec)
    ended = await seen(any_launcher, spec, Sight.ENDED)

    assert ended.exit.outcome == "failed"
    assert [rank.exit_code for rank in ended.exit.ranks] == [0, 1]
    assert ended.exit.first_failed_rank == 1


async def test_the_directory_is_its_owners_and_the_spec_too(launcher, tmp_path):
    spec = make_pod_spec(["true"])
    await launcher.launch(spec)
    path = PodDirectory(tmp_path, ref_of(spec)).path

    assert path.stat().st_mode & 0o777 == 0o700
    assert (path / "spec.json").stat().st_mode & 0o777 == 0o600
    await seen(launcher, spec, Sight.ENDED)


async def test_launching_twice_starts_once(launcher, tmp_path):
    spec = make_pod_spec(["sh", "-c", f"echo started >> {tmp_path}/starts; exec sleep 600"])

    await asyncio.gather(launcher.launch(spec), launcher.launch(spec))
    await seen(launcher, spec, Sight.ALIVE)
    await launcher.launch(spec)
    while len(launcher._children) > 1:
        await launcher.observe([ref_of(spec)])
        await asyncio.sleep(0.02)
    while not (tmp_path / "starts").exists():
        await asyncio.sleep(0.02)

    assert (tmp_path / "starts").read_text() == "started\n"


async def test_the_environment_of_the_scheduler_stays_with_it(launcher, tmp_path, monkeypatch):
    monkeypatch.setenv("DRIVETRAIN_POSTGRES_DSN", "secret")
    monkeypatch.setenv("AWS_REGION", "kept")
    spec = make_pod_spec(["sh", "-c", f"env > {tmp_path}/environment"])

    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ENDED)

    environment = (tmp_path / "environment").read_text()
    assert "secret" not in environment
    assert "AWS_REGION=kept" in environment
    assert f"{MARKER}={PodDirectory(tmp_path, ref_of(spec)).marker}" in environment


async def test_another_launcher_adopts_what_lives(launcher, tmp_path):
    spec = make_pod_spec(SLEEP)
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)

    other = make_launcher(tmp_path)
    await other.launch(spec)

    assert (await seen(other, spec, Sight.ALIVE)).exit is None
    assert other._children == []


async def test_the_end_of_the_scheduler_does_not_affect_pods(tmp_path):
    spec = make_pod_spec(SLEEP)
    code = (
        "import asyncio, sys, time; from pathlib import Path;"
        "from drivetrain_schemas.pods import PodSpec;"
        "from tests.integration.scheduler.pods import make_launcher;"
        "spec = PodSpec.model_validate_json(sys.argv[2]);"
        "asyncio.run(make_launcher(Path(sys.argv[1])).launch(spec)); time.sleep(600)"
    )
    scheduler = await asyncio.create_subprocess_exec(
        PYTHON, "-c", code, str(tmp_path), spec.model_dump_json(), start_new_session=True
    )
    launcher = make_launcher(tmp_path)
    await seen(launcher, spec, Sight.ALIVE)

    os.killpg(scheduler.pid, signal.SIGKILL)
    await scheduler.wait()

    assert (await seen(launcher, spec, Sight.ALIVE)).exit is None
    assert await launcher.kill([ref_of(spec)]) == {spec.pod_id}


async def test_a_pod_that_does_not_change_is_looked_at_without_reading_its_files(
    launcher, tmp_path, monkeypatch
):
    spec = make_pod_spec(SLEEP)
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)
    directory = PodDirectory(tmp_path, ref_of(spec)).path
    os.utime(directory, (1.0, 1.0))  # it changed long ago
    await seen(launcher, spec, Sight.ALIVE)
    looks = []
    real = launcher._look
    monkeypatch.setattr(launcher, "_look", lambda found: looks.append(found) or real(found))

    await seen(launcher, spec, Sight.ALIVE)
    assert looks == []

    (directory / ".new").touch()
    os.rename(directory / ".new", directory / "new")
    await seen(launcher, spec, Sight.ALIVE)
    assert len(looks) == 1


async def test_a_pod_that_changed_just_now_is_read_again(launcher, tmp_path):
    """Two changes within one tick of the file system's clock leave one time."""
    spec = make_pod_spec(SLEEP)
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)
    directory = PodDirectory(tmp_path, ref_of(spec)).path
    at = time.time()
    os.utime(directory, (at, at))
    await seen(launcher, spec, Sight.ALIVE)
    end = {"pod_id": spec.pod_id, "outcome": "succeeded", "ranks": []}
    text = json.dumps({**end, "ended_at": "2026-01-01T00:00:00Z"})
    (directory / "exit.json").write_text(text)
    os.utime(directory, (at, at))

    observed = (await launcher.observe([ref_of(spec)]))[spec.pod_id]

    assert observed.exit is not None


async def test_a_killed_shim_is_detected_though_its_directory_did_not_change(launcher, tmp_path):
    spec = make_pod_spec(SLEEP)
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)
    directory = PodDirectory(tmp_path, ref_of(spec))
    os.utime(directory.path, (1.0, 1.0))
    await seen(launcher, spec, Sight.ALIVE)

    os.kill(directory.identity().pid, signal.SIGKILL)

    await seen(launcher, spec, Sight.DEAD)


async def test_a_stop_notice_reaches_the_pod(any_launcher, tmp_path):
    ready = tmp_path / "ready"
    trap = f"trap 'exit 75' TERM; touch {ready}; while :; do sleep 0.05; done"
    spec = make_pod_spec(["sh", "-c", trap])
    await any_launcher.launch(spec)
    while not ready.exists():
        await asyncio.sleep(0.02)

    await any_launcher.notify(ref_of(spec), StopNotice(reason="cancel", deadline_seconds=7))
    ended = await seen(any_launcher, spec, Sight.ENDED)

    notice = json.loads((PodDirectory(tmp_path, ref_of(spec)).path / "stop.json").read_text())
    assert notice == {"reason": "cancel", "deadline_seconds": 7.0, "checkpoint": True}
    assert ended.exit.outcome == "interrupted"


async def test_a_killed_shim_is_detected_and_its_other_processes_are_killed(any_launcher, tmp_path):
    spec = make_pod_spec(SLEEP, ranks=2)
    await any_launcher.launch(spec)
    await seen(any_launcher, spec, Sight.ALIVE)
    directory = PodDirectory(tmp_path, ref_of(spec))
    identity, marker = directory.identity(), directory.marker
    while len(left_of(marker)) < 3:
        await asyncio.sleep(0.02)

    os.kill(identity.pid, signal.SIGKILL)
    await seen(any_launcher, spec, Sight.DEAD)
    assert len(left_of(marker)) == 2

    assert await any_launcher.kill([ref_of(spec)]) == {spec.pod_id}
    assert not left_of(PodDirectory(tmp_path, ref_of(spec)).marker)


async def test_a_pod_is_not_ended_while_a_process_of_it_is_left(launcher, tmp_path):
    spec = make_pod_spec(LEAVES_A_CHILD)
    marker = PodDirectory(tmp_path, ref_of(spec)).marker
    await launcher.launch(spec)

    ending = await seen(launcher, spec, Sight.ENDING, Sight.ENDED)
    while ending.sight is Sight.ENDING and len(left_of(marker)) > 1:
        ending = await seen(launcher, spec, Sight.ENDING, Sight.ENDED)

    assert ending.sight is Sight.ENDING
    assert await launcher.kill([ref_of(spec)]) == {spec.pod_id}
    assert (await seen(launcher, spec, Sight.ENDED)).exit.outcome == "succeeded"


async def test_a_start_that_was_cut_off_is_made_again(launcher, tmp_path):
    spec = make_pod_spec(["true"])
    directory = PodDirectory(tmp_path, ref_of(spec))
    assert directory.create()
    assert (await seen(launcher, spec, Sight.CREATED)).exit is None

    await launcher.launch(spec)

    assert (await seen(launcher, spec, Sight.ENDED)).exit.outcome == "succeeded"


async def test_a_pod_given_up_before_it_appeared_can_never_start(launcher, tmp_path):
    spec = make_pod_spec(["never"])
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.CREATED)

    assert await launcher.kill([ref_of(spec)]) == {spec.pod_id}
    await launcher.launch(spec)

    assert (await seen(launcher, spec, Sight.DEAD)).exit is None
    assert not (PodDirectory(tmp_path, ref_of(spec)).path / "spec.json").exists()
    assert not left_of(PodDirectory(tmp_path, ref_of(spec)).marker)


async def test_a_pod_whose_shim_was_stopped_for_long_ends(launcher, monkeypatch):
    spec = make_pod_spec(SLEEP)
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)
    os.kill(launcher._shims[spec.pod_id].pid, signal.SIGSTOP)
    assert (await seen(launcher, spec, Sight.ALIVE)).reason is None
    monkeypatch.setattr("services.scheduler.launchers.local._MAX_STOPPED_SECONDS", 0.0)
    end = await seen(launcher, spec, Sight.DEAD)
    assert "stopped its shim" in end.reason.detail
    assert await launcher.kill([ref_of(spec)]) == {spec.pod_id}
    assert launcher._stopped_at == {}, "nothing is kept of a pod that is gone"


async def test_a_look_reads_the_entry_of_a_live_pod_once(launcher, monkeypatch):
    spec = make_pod_spec(SLEEP)
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)
    read = []
    fields_of = processes._fields
    monkeypatch.setattr(processes, "_fields", lambda pid: read.append(pid) or fields_of(pid))
    await launcher.observe([ref_of(spec)])
    launcher._alive.clear()  # as when its directory has changed
    await launcher.observe([ref_of(spec)])
    assert read == [launcher._shims[spec.pod_id].pid] * 2


async def test_a_shim_that_is_stopped_and_goes_on_is_left_alone(launcher, monkeypatch):
    monkeypatch.setattr("services.scheduler.launchers.local._MAX_STOPPED_SECONDS", 600.0)
    spec = make_pod_spec(SLEEP)
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)
    shim = launcher._shims[spec.pod_id].pid
    os.kill(shim, signal.SIGSTOP)
    await seen(launcher, spec, Sight.ALIVE)
    os.kill(shim, signal.SIGCONT)
    monkeypatch.setattr("services.scheduler.launchers.local._MAX_STOPPED_SECONDS", 0.0)
    async with asyncio.timeout(30):
        while processes.state(launcher._shims[spec.pod_id]) == b"T":
            await asyncio.sleep(0.01)
    assert (await launcher.observe([ref_of(spec)]))[spec.pod_id].sight is Sight.ALIVE


@pytest.mark.parametrize(
    ("options", "why"),
    [("nr_inodes=2", "No space left on device"), ("ro", "Read-only file system")],
)
async def test_where_no_pod_can_be_started_this_machine_is_to_be_mended(tmp_path, options, why):
    """It is no fault of the job; a pod that is given up is proven never to have been."""
    pods = tmp_path / "pods"
    with mounted(pods, options):
        launcher = make_launcher(pods)
        spec = make_pod_spec(SLEEP)
        for _ in range(2):
            with pytest.raises(LaunchBlocked, match=f"started in {pods}: {why}") as blocked:
                await launcher.launch(spec)
            assert blocked.value.wait.cause is WaitCause.REFUSED
        given_up = make_pod_spec(SLEEP, index=1)
        with pytest.raises(LaunchBlocked):
            await launcher.launch(given_up)
        assert await launcher.kill([ref_of(given_up)]) == {given_up.pod_id}
        remount(pods, "rw,nr_inodes=100")
        await launcher.launch(spec)
        assert (await seen(launcher, spec, Sight.ALIVE)).sight is Sight.ALIVE
        _leave_nothing(launcher, pods)


async def test_a_full_disk_keeps_no_other_pod_from_being_killed(tmp_path):
    """The directory of the one is there, and cannot be closed: it is not proven gone."""
    pods = tmp_path / "pods"
    with mounted(pods, "nr_inodes=100"):
        launcher = make_launcher(pods)
        lives, half = make_pod_spec(SLEEP), make_pod_spec(SLEEP, index=1)
        await launcher.launch(lives)
        await seen(launcher, lives, Sight.ALIVE)
        PodDirectory(pods, ref_of(half)).create()
        used = len(list(pods.rglob("*"))) + 1
        remount(pods, f"rw,nr_inodes={used}")
        gone = await launcher.kill([ref_of(lives), ref_of(half)])
        assert gone == {lives.pod_id}
        remount(pods, "rw,nr_inodes=100")
        assert await launcher.kill([ref_of(half)]) == {half.pod_id}
        _leave_nothing(launcher, pods)


async def test_killing_hits_one_pod_only(launcher):
    first, tenth = make_pod_spec(SLEEP, index=1), make_pod_spec(SLEEP, index=10)
    await launcher.launch(first)
    await launcher.launch(tenth)
    await seen(launcher, first, Sight.ALIVE)
    await seen(launcher, tenth, Sight.ALIVE)

    assert await launcher.kill([ref_of(first)]) == {first.pod_id}

    assert (await seen(launcher, tenth, Sight.ALIVE)).exit is None


async def test_killing_leaves_another_platform_s_pod_of_the_same_name(tmp_path):
    ours, theirs = make_launcher(tmp_path / "ours"), make_launcher(tmp_path / "theirs")
    spec = make_pod_spec(SLEEP)
    for each in (ours, theirs):
        await each.launch(spec)
        await seen(each, spec, Sight.ALIVE)

    assert await ours.kill([ref_of(spec)]) == {spec.pod_id}

    assert (await seen(ours, spec, Sight.DEAD)).exit is None
    assert (await seen(theirs, spec, Sight.ALIVE)).exit is None
    _leave_nothing(theirs, tmp_path / "theirs")
    _leave_nothing(ours, tmp_path / "ours")


async def test_an_exit_of_another_pod_says_nothing(launcher, tmp_path):
    spec = make_pod_spec(SLEEP)
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)
    other = make_pod_spec(["true"], index=3)
    await launcher.launch(other)
    await seen(launcher, other, Sight.ENDED)
    end = PodDirectory(tmp_path, ref_of(other)).path / "exit.json"

    (PodDirectory(tmp_path, ref_of(spec)).path / "exit.json").write_bytes(end.read_bytes())

    assert (await seen(launcher, spec, Sight.ALIVE)).exit is None


async def test_a_reused_pid_is_not_the_shim():
    pid = os.getpid()
    identity = PodIdentity(
        boot_id=processes.boot_id(), pid=pid, start_ticks=processes.start_ticks(pid)
    )
    assert processes.state(identity)

    reused = identity.model_copy(update={"start_ticks": identity.start_ticks + 1})
    other_boot = identity.model_copy(update={"boot_id": "another"})

    assert not processes.state(reused)
    assert not processes.state(other_boot)
    assert not processes.send(reused, "any", signal.SIGKILL)


async def test_a_template_that_answers_starts_the_pod(tmp_path):
    asked = []

    async def serve(reader, writer):
        asked.append(json.loads(await reader.readline()))
        writer.write(b'{"pid": 1}\n')
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    with short_directory() as directory:
        socket = Path(directory) / "template.sock"
        async with await asyncio.start_unix_server(serve, socket):
            launcher = make_launcher(tmp_path, template_socket=socket)
            spec = make_pod_spec(["true"])
            await launcher.launch(spec)

    assert asked == [{"directory": str(PodDirectory(tmp_path, ref_of(spec)).path)}]
    assert launcher._children == []
    assert (await seen(launcher, spec, Sight.CREATED)).exit is None


@pytest.mark.parametrize("answer", [b'{"error": "no"}\n', None], ids=["refuses", "is not there"])
async def test_without_a_template_the_pod_starts_cold(tmp_path, answer):
    async def serve(reader, writer):
        await reader.readline()
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    with short_directory() as directory:
        socket = Path(directory) / "template.sock"
        launcher = make_launcher(tmp_path, template_socket=socket)
        spec = make_pod_spec(["true"])
        if answer is None:
            await launcher.launch(spec)
        else:
            async with await asyncio.start_unix_server(serve, socket):
                await launcher.launch(spec)

    assert (await seen(launcher, spec, Sight.ENDED)).exit.outcome == "succeeded"
    _leave_nothing(launcher, tmp_path)


async def test_where_the_queue_of_the_template_is_full_the_pod_starts_cold(tmp_path):
    """Any process of the user can fill it."""
    with short_directory() as directory, contextlib.ExitStack() as stack:
        path = str(Path(directory) / "template.sock")
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        waiting = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for connection in waiting:
            connection.setblocking(False)
        waiting[0].connect(path)
        with pytest.raises(BlockingIOError):
            waiting[1].connect(path)
        launcher = make_launcher(tmp_path, template_socket=path)
        spec = make_pod_spec(["true"])
        await launcher.launch(spec)

    assert (await seen(launcher, spec, Sight.ENDED)).exit.outcome == "succeeded"
    _leave_nothing(launcher, tmp_path)


async def test_a_template_that_says_nothing_may_have_started_it(tmp_path):
    async def serve(reader, writer):
        await reader.readline()
        writer.close()
        await writer.wait_closed()

    with short_directory() as directory:
        socket = Path(directory) / "template.sock"
        async with await asyncio.start_unix_server(serve, socket):
            launcher = make_launcher(tmp_path, template_socket=socket)
            await launcher.launch(make_pod_spec(["true"]))

    assert launcher._children == []


async def test_a_template_that_hangs_is_waited_for_once_and_not_for_each_pod(tmp_path, monkeypatch):
    monkeypatch.setattr(template, "ANSWER_SECONDS", 0.2)
    asked = []
    is_over = asyncio.Event()

    async def hang(reader, writer):
        asked.append(await reader.readline())
        await is_over.wait()
        writer.close()

    with short_directory() as directory:
        socket = Path(directory) / "template.sock"
        async with await asyncio.start_unix_server(hang, socket):
            launcher = make_launcher(tmp_path, template_socket=socket)
            pods = [make_pod_spec(["true"], attempt=attempt) for attempt in (1, 2, 3)]
            for spec in pods:
                await launcher.launch(spec)
            is_over.set()

    assert len(asked) == 1
    for spec in pods[1:]:
        assert (await seen(launcher, spec, Sight.ENDED)).exit.outcome == "succeeded"
    _leave_nothing(launcher, tmp_path)
