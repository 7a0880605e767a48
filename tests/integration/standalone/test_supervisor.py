"""Supervision of real, small processes: restart, giving up, order of the stop, what is left."""

import asyncio
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from drivetrain_schemas.pods import MARKER, marker_of
from services.runtime import disk as disk_module
from services.runtime import processes
from services.runtime.disk import Disk, Space, fullest
from services.standalone import files
from services.standalone import supervisor as supervisor_module
from services.standalone.child import Child, ChildGaveUp, ChildSpec, ChildState, Launch
from services.standalone.core.restarts import RestartPolicy
from services.standalone.identity import ProcessIdentity, identify, is_alive, wait_gone
from services.standalone.logs import rotate_log
from services.standalone.parts import Layer
from services.standalone.pods import kill_pod, live_pods, stop_pods
from services.standalone.ports import PortTaken, free_port
from services.standalone.supervisor import Member, Supervisor, end_leftovers
from tests.mounts import mounted

QUICK = RestartPolicy(first_delay_s=0.01, longest_delay_s=0.05)

SLEEPER = "import signal; open({ready!r}, 'w').close(); signal.pause()"


def python_child(
    directory: Path, name: str, code: str, *, one_shot: bool = False, stop_timeout_s: float = 5.0
) -> ChildSpec:
    """A child that runs Python code; ready once it has made the file `<name>.ready`."""
    ready = directory / f"{name}.ready"

    async def probe() -> bool:
        return ready.exists()

    code = textwrap.dedent(code).replace("{ready!r}", repr(str(ready)))
    launch = Launch(
        (sys.executable, "-c", code), dict(os.environ), directory, stop_timeout_s=stop_timeout_s
    )
    return ChildSpec(
        name, launch, directory / f"{name}.log", None if one_shot else probe, policy=QUICK
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_killed_child_starts_again_and_the_others_stay(tmp_path: Path) -> None:
    members = [
        Member(python_child(tmp_path, "infrastructure", SLEEPER), Layer.INFRASTRUCTURE),
        Member(python_child(tmp_path, "service", SLEEPER), Layer.SERVICE, ("infrastructure",)),
    ]
    supervisor = Supervisor(members, tmp_path / "state.json")
    await supervisor.start()
    pids = {name: child.pid for name, child in supervisor.children.items()}
    await supervisor.children["service"].kill_and_wait_ready()
    assert supervisor.children["service"].pid != pids["service"]
    assert supervisor.children["service"].num_restarts == 1
    assert supervisor.children["infrastructure"].pid == pids["infrastructure"]
    await supervisor.stop()


async def test_a_child_that_ends_five_times_before_readiness_ends_the_platform(
    tmp_path: Path,
) -> None:
    broken = python_child(tmp_path, "broken", "import sys; sys.exit('no such setting: NOODLES')")
    members = [
        Member(python_child(tmp_path, "infrastructure", SLEEPER), Layer.INFRASTRUCTURE),
        Member(broken, Layer.SERVICE, ("infrastructure",)),
    ]
    supervisor = Supervisor(members, tmp_path / "state.json")
    with pytest.raises(ChildGaveUp, match="broken ended 5 times in a row") as error:
        await supervisor.start()
    assert error.value.log_end.splitlines() == ["no such setting: NOODLES"] * 5
    await supervisor.stop()
    assert supervisor.children["infrastructure"].state is ChildState.STOPPED
    assert {part["name"]: part["state"] for part in read_state(tmp_path)} == {
        "infrastructure": "stopped",
        "broken": "failed",
    }


async def test_a_child_that_was_ready_once_is_started_again_until_it_is_ready_again(
    tmp_path: Path,
) -> None:
    code = """
        import pathlib, signal, sys
        starts = pathlib.Path('starts')
        starts.write_text(starts.read_text() + '.' if starts.exists() else '.')
        if 1 < len(starts.read_text()) < 9: sys.exit('not yet')
        pathlib.Path({ready!r}).touch(); signal.pause()
    """
    supervisor = Supervisor(
        [Member(python_child(tmp_path, "once", code), Layer.SERVICE)], tmp_path / "state.json"
    )
    await supervisor.start()
    (tmp_path / "once.ready").unlink()
    await supervisor.children["once"].kill_and_wait_ready()
    assert supervisor.children["once"].num_restarts == 8
    await supervisor.stop()


async def test_a_child_is_told_which_process_may_call_it_whichever_of_them_starts_again(
    tmp_path: Path,
) -> None:
    code = """
        import os, pathlib, socket
        parent = socket.socket(fileno=0)
        parent.send(b'a warning')
        pathlib.Path({ready!r}).touch()
        while message := parent.recv(4096):
            with open('told', 'a') as file:
                print(os.getpid(), message.decode(), file=file)
    """
    told, warnings = tmp_path / "told", []
    called = replace(python_child(tmp_path, "called", code), caller="caller")
    members = [
        Member(called, Layer.TEMPLATE),
        Member(python_child(tmp_path, "caller", SLEEPER), Layer.SERVICE),
    ]
    supervisor = Supervisor(members, tmp_path / "state.json", warn=warnings.append)

    async def until_told() -> None:
        """That the child that runs knows the caller that runs."""
        who = supervisor.children["caller"].identity
        assert who is not None
        message = json.dumps({"pid": who.pid, "start_ticks": who.start_ticks})
        line = f"{supervisor.children['called'].pid} {message}"
        await until(lambda: told.exists() and told.read_text().splitlines()[-1:] == [line])

    await supervisor.start()
    await until_told()
    await supervisor.children["caller"].kill_and_wait_ready()
    await until_told()
    await supervisor.children["called"].kill_and_wait_ready()
    await until_told()
    await until(lambda: warnings == ["called: a warning"] * 2)
    assert len(told.read_text().splitlines()) == 3
    await supervisor.stop()


async def test_a_wrong_setting_is_reported_at_its_first_exit(tmp_path: Path) -> None:
    wrong = python_child(tmp_path, "wrong", "import sys; print('NOODLES: wrong'); sys.exit(2)")
    wrong = replace(wrong, policy=replace(QUICK, knows_exit_codes=True))
    supervisor = Supervisor([Member(wrong, Layer.SERVICE)], tmp_path / "state.json")
    with pytest.raises(ChildGaveUp, match="wrong ended once before it was ready") as error:
        await supervisor.start()
    assert error.value.log_end == "NOODLES: wrong"
    await supervisor.stop()


async def test_a_part_that_ends_at_records_before_it_is_ready_stops_nothing(tmp_path: Path) -> None:
    """Six records, each ending the process as often as it takes to park it."""
    code = """
        import pathlib, signal, sys
        starts = pathlib.Path('starts')
        starts.write_text(starts.read_text() + '.' if starts.exists() else '.')
        if len(starts.read_text()) <= 18: sys.exit(71)
        pathlib.Path({ready!r}).touch(); signal.pause()
    """
    spec = python_child(tmp_path, "metrics", code)
    spec = replace(spec, policy=replace(QUICK, knows_exit_codes=True))
    supervisor = Supervisor([Member(spec, Layer.SERVICE)], tmp_path / "state.json")
    await supervisor.start()
    assert supervisor.children["metrics"].num_restarts == 18
    await supervisor.stop()


async def test_a_port_that_another_program_has_is_reported_at_once(tmp_path: Path) -> None:
    code = "import socket, sys; socket.create_server(('127.0.0.1', int(sys.argv[1])))"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        spec = python_child(tmp_path, "gateway", code)
        launch = replace(spec.launch, argv=(*spec.launch.argv, str(port)))
        spec = replace(spec, launch=launch, ports={"gateway.http": port})
        supervisor = Supervisor([Member(spec, Layer.SERVICE)], tmp_path / "state.json")
        with pytest.raises(PortTaken, match=f"Port {port} .* gateway.http, is in use by"):
            await supervisor.start()
        await supervisor.stop()
    assert supervisor.children["gateway"].num_restarts == 0


class FullDisk:
    """Every write of small files fails while `is_full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self._write = files.write_private
        monkeypatch.setattr(supervisor_module, "write_private", self.write)
        monkeypatch.setattr(supervisor_module, "CARE_S", 0.01)

    def write(self, path: Path, text: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._write(path, text)


async def test_a_state_file_that_cannot_be_written_is_written_once_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, warnings = FullDisk(monkeypatch), list[str]()
    supervisor = Supervisor(
        [Member(python_child(tmp_path, "service", SLEEPER), Layer.SERVICE)],
        tmp_path / "state.json",
        warn=warnings.append,
    )
    await supervisor.start()
    disk.is_full = True
    await supervisor.children["service"].kill_and_wait_ready()
    pid = supervisor.children["service"].pid
    assert read_state(tmp_path)[0]["pid"] != pid
    assert len(warnings) == 1
    assert "No space left on device; trying again" in warnings[0]
    disk.is_full = False
    await until(lambda: read_state(tmp_path)[0].get("pid") == pid)
    await supervisor.stop()


async def test_a_full_disk_is_reported_before_and_while_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [10 * 1024**3]
    warnings: list[str] = []
    monkeypatch.setattr(supervisor_module, "CARE_S", 0.01)
    monkeypatch.setattr(disk_module, "read_disk", lambda path: Disk(free[0], 100 * 1024**3))
    supervisor = Supervisor([], tmp_path / "state.json", warn=warnings.append)
    await supervisor.start()
    for free[0], said in (
        (10**9, "almost full"),
        (10**6, "is full"),
        (10**10, "enough free space"),
    ):
        await until(lambda said=said: bool(warnings) and said in warnings[-1])
    assert len(warnings) == 3
    await supervisor.stop()


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_directory_on_a_disk_of_its_own_is_watched_too_and_so_are_its_files(
    tmp_path: Path, is_linked: bool
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    pods = home / "pods"
    if is_linked:
        pods.symlink_to(tmp_path / "elsewhere")
    with mounted(tmp_path / "elsewhere" if is_linked else pods, "size=1g,nr_inodes=2000"):
        assert fullest(home)[1].space is Space.ENOUGH
        for number in range(1950):
            (pods / str(number)).touch()
        path, disk = fullest(home)
        assert (path, disk.space) == (pods, Space.FULL)
        assert disk_module.warning(disk, path).startswith(f"The disk of {pods} is full")


async def test_exits_for_lack_of_space_are_not_counted_but_tried_again(tmp_path: Path) -> None:
    code = """
        import errno, os, pathlib, signal
        starts = pathlib.Path('starts')
        starts.write_text(starts.read_text() + '.' if starts.exists() else '.')
        if len(starts.read_text()) < 8: raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        pathlib.Path({ready!r}).touch(); signal.pause()
    """
    supervisor = Supervisor(
        [Member(python_child(tmp_path, "service", code), Layer.SERVICE)], tmp_path / "state.json"
    )
    await supervisor.start()
    assert supervisor.children["service"].num_restarts == 7
    await supervisor.stop()


async def test_a_service_waits_for_what_it_needs_to_come_back(tmp_path: Path) -> None:
    members = [
        Member(python_child(tmp_path, "infrastructure", SLEEPER), Layer.INFRASTRUCTURE),
        Member(python_child(tmp_path, "service", SLEEPER), Layer.SERVICE, ("infrastructure",)),
    ]
    supervisor = Supervisor(members, tmp_path / "state.json")
    await supervisor.start()
    (tmp_path / "infrastructure.ready").rename(tmp_path / "hidden")
    infrastructure, service = supervisor.children["infrastructure"], supervisor.children["service"]
    os.kill(infrastructure.pid or 0, signal.SIGSTOP)
    infrastructure.kill()
    await until(lambda: not infrastructure.is_ready)
    service.kill()
    await until(lambda: service.state is ChildState.RESTARTING)
    await asyncio.gather(infrastructure.wait_ready(), service.wait_ready())
    assert service.started_at is not None
    assert infrastructure.started_at is not None
    assert service.started_at > infrastructure.started_at
    await supervisor.stop()


async def test_a_one_shot_runs_before_what_needs_it(tmp_path: Path) -> None:
    look = "import os; assert os.path.exists('made'); " + SLEEPER
    members = [
        Member(
            python_child(tmp_path, "make", "open('made', 'w')", one_shot=True), Layer.INFRASTRUCTURE
        ),
        Member(python_child(tmp_path, "look", look), Layer.SERVICE, ("make",)),
    ]
    supervisor = Supervisor(members, tmp_path / "state.json")
    await supervisor.start()
    assert supervisor.children["make"].state is ChildState.DONE
    assert supervisor.children["look"].num_restarts == 0
    await supervisor.stop()


async def test_the_stop_goes_from_services_over_pods_to_the_infrastructure(tmp_path: Path) -> None:
    on_term = """
        import signal, sys
        def end(*_):
            open('order', 'a').write(NAME + ' ')
            sys.exit()
        signal.signal(signal.SIGTERM, end)
        open({ready!r}, 'w').close()
        while True: signal.pause()
    """
    members = [
        Member(python_child(tmp_path, name, on_term.replace("NAME", repr(name))), layer)
        for name, layer in (
            ("infrastructure", Layer.INFRASTRUCTURE),
            ("warm", Layer.TEMPLATE),
            ("s", Layer.SERVICE),
        )
    ]

    async def pods() -> None:
        with (tmp_path / "order").open("a") as file:
            file.write("pods ")

    supervisor = Supervisor(members, tmp_path / "state.json", stop_pods=pods)
    await supervisor.start()
    await supervisor.stop()
    assert (tmp_path / "order").read_text().split() == ["s", "pods", "warm", "infrastructure"]


async def test_a_child_that_ignores_the_stop_is_killed(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
    child = Child(python_child(tmp_path, "stubborn", stubborn, stop_timeout_s=0.1))
    supervision = asyncio.create_task(child.supervise())
    await child.wait_ready()
    identity = child.identity
    assert identity is not None
    await child.stop()
    await supervision
    assert not is_alive(identity)


async def test_a_second_ctrl_c_kills_everything_and_nothing_is_restarted(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEPER
    members = [
        Member(python_child(tmp_path, "infrastructure", SLEEPER), Layer.INFRASTRUCTURE),
        Member(python_child(tmp_path, "stubborn", stubborn, stop_timeout_s=600.0), Layer.SERVICE),
    ]
    supervisor = Supervisor(members, tmp_path / "state.json")
    await supervisor.start()
    pids = [child.pid for child in supervisor.children.values()]
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0)
    supervisor.kill()
    async with asyncio.timeout(20):
        await stopping
    assert [identify(pid or 0) for pid in pids] == [None, None]
    assert {child.num_restarts for child in supervisor.children.values()} == {0}
    assert {child.state for child in supervisor.children.values()} == {ChildState.STOPPED}


async def test_children_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    spec = python_child(tmp_path, "leashed", SLEEPER)
    leash = Path(sys.modules[Child.__module__].__file__ or "").with_name("leash.py")
    parent_code = (
        "import subprocess, sys, os, signal\n"
        f"argv = [sys.executable, '-I', '-S', {str(leash)!r}, str(os.getpid()), '15', '-']\n"
        f"child = subprocess.Popen(argv + {list(spec.launch.argv)!r})\n"
        "print(child.pid, flush=True); signal.pause()\n"
    )
    parent = start_python(parent_code)
    assert parent.stdout is not None
    identity = identify(int(await asyncio.to_thread(parent.stdout.readline)))
    assert identity is not None
    await until((tmp_path / "leashed.ready").exists)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert await wait_gone(identity, 10)


async def test_the_next_start_ends_what_is_left_and_nothing_else(tmp_path: Path) -> None:
    left, stopped, other = (start_python("import signal; signal.pause()") for _ in range(3))
    identities = [identify(process.pid) for process in (left, stopped, other)]
    assert None not in identities
    left_id, stopped_id, other_id = (who for who in identities if who is not None)
    stopped.send_signal(signal.SIGSTOP)
    rows = [
        {"name": "cost", **asdict(left_id)},
        {"name": "kafka", **asdict(stopped_id)},
        # The same pid, but another start: a process that got the number later.
        {"name": "hpo", **asdict(replace(other_id, start_ticks=other_id.start_ticks - 1))},
        {"name": "topics", "state": "done"},
    ]
    home, copy, moved = (tmp_path / name for name in ("home", "copy", "moved"))
    home.mkdir()
    write_record(home, rows)
    shutil.copytree(home, copy)
    assert await end_leftovers(copy / "state.json") == ()
    assert is_alive(left_id)
    home.rename(moved)
    assert sorted(await end_leftovers(moved / "state.json")) == ["cost", "kafka"]
    assert left.wait(1) == stopped.wait(1) == -signal.SIGTERM
    assert is_alive(other_id)
    other.kill()
    for process in (left, stopped, other):
        process.communicate()


async def test_a_killed_platform_is_ended_by_its_own_record(tmp_path: Path) -> None:
    member = Member(python_child(tmp_path, "part", SLEEPER), Layer.SERVICE)
    supervisor = Supervisor([member], tmp_path / "state.json")
    await supervisor.start()
    assert await end_leftovers(tmp_path / "state.json") == ("part",)
    await supervisor.stop()


async def test_an_answer_of_another_program_is_not_taken_for_the_childs(tmp_path: Path) -> None:
    port = free_port()
    server = "import socket, time; it = socket.create_server(('127.0.0.1', {}))"
    other = start_python(server.format(port) + "; print('listens', flush=True); time.sleep(600)")
    assert other.stdout is not None
    other.stdout.readline()
    spec = python_child(tmp_path, "part", SLEEPER)
    spec = replace(spec, ports={"part": port}, probe=partial(accepts, port))
    supervisor = Supervisor([Member(spec, Layer.SERVICE)], tmp_path / "state.json")
    starting = asyncio.create_task(supervisor.start())
    await until((tmp_path / "part.ready").exists)
    part = supervisor.children["part"]
    assert await accepts(port)
    assert not await asyncio.to_thread(part._has_its_ports)
    assert not part.is_ready
    other.kill()
    other.communicate()
    starting.cancel()
    await supervisor.stop()


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def test_a_part_that_stops_to_answer_is_not_called_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.standalone.child.WATCH_S", 0.02)
    member = Member(python_child(tmp_path, "part", SLEEPER), Layer.SERVICE)
    supervisor = Supervisor([member], tmp_path / "state.json")
    await supervisor.start()
    part = supervisor.children["part"]
    (tmp_path / "part.ready").unlink()
    await until(lambda: part.state is ChildState.NOT_READY)
    (row,) = read_state(tmp_path)
    assert row["state"] == "not ready"
    assert row["since"]
    (tmp_path / "part.ready").touch()
    await until(lambda: part.state is ChildState.READY)
    assert part.num_restarts == 0
    await supervisor.stop()


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"\xff", b"[]", b"null", b"1", b'{"parts": []}', b"[" * 100_000]
)
async def test_without_a_record_nothing_is_ended(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "state.json").write_bytes(content)
    assert await end_leftovers(tmp_path / "state.json") == ()


@pytest.mark.parametrize("parts", [1, None, "kafka", {"name": "kafka"}])
async def test_a_record_without_a_list_of_parts_ends_nothing(tmp_path: Path, parts: object) -> None:
    write_record(tmp_path, parts)
    assert await end_leftovers(tmp_path / "state.json") == ()


async def test_a_damaged_row_keeps_no_other_part_from_being_ended(tmp_path: Path) -> None:
    left = start_python("import signal; signal.pause()")
    identity = identify(left.pid)
    assert identity is not None
    whole = asdict(identity)
    damaged = [
        *(None, 1, [], {}, {"pid": left.pid}),
        {"name": "cost", "pid": left.pid},
        *({"name": "cost", **whole, "pid": pid} for pid in (str(left.pid), True, -1, 0, 10**300)),
        {"name": "hpo", **whole, "start_ticks": None},
    ]
    write_record(tmp_path, [*damaged, {"name": "metrics", "since": 5, "port": [], **whole}])
    assert await end_leftovers(tmp_path / "state.json") == ("metrics",)
    assert left.wait(1) == -signal.SIGTERM
    left.communicate()


async def test_a_log_over_its_limit_is_truncated_while_the_child_writes(tmp_path: Path) -> None:
    chatter = """
        import time
        open({ready!r}, 'w').close()
        for number in range(10**9):
            print(number, 'x' * 100, flush=True); time.sleep(0.001)
    """
    spec = python_child(tmp_path, "chatter", chatter)
    child = Child(spec)
    supervision = asyncio.create_task(child.supervise())
    await until(lambda: spec.log_path.exists() and spec.log_path.stat().st_size > 10_000)
    assert rotate_log(spec.log_path, limit_bytes=10_000)
    await until(lambda: spec.log_path.stat().st_size > 1_000)
    await child.stop()
    await supervision
    assert b"\0" not in spec.log_path.read_bytes()
    assert (tmp_path / "chatter.log.1").stat().st_size > 10_000


async def test_live_pods_get_a_stop_notice_and_are_killed_after_the_deadline(
    tmp_path: Path,
) -> None:
    good = start_pod(tmp_path, pod_named("good"), stops=True)
    # Its ranks are over, but its shim still sends what Kafka has not taken yet.
    sending = start_pod(tmp_path, pod_named("sending"), stops=True)
    (tmp_path / "job" / "1" / pod_named("sending") / "exit.json").write_text("{}")
    stubborn = start_pod(tmp_path, pod_named("stubborn"), stops=False)
    over = tmp_path / "job" / "1" / pod_named("over")
    over.mkdir()
    # The pid of somebody else by now: the same number, another start.
    (over / "identity.json").write_text(json.dumps(asdict(reused_identity(good.pid))))
    await until(lambda: len(live_pods(tmp_path)) == 3)
    reaping = [
        asyncio.create_task(asyncio.to_thread(pod.wait)) for pod in (good, sending, stubborn)
    ]
    assert await stop_pods(tmp_path, deadline_s=0.5, grace_s=0.5) == 3
    assert await asyncio.gather(*reaping) == [75, 75, -signal.SIGKILL]
    notice = json.loads((tmp_path / "job" / "1" / pod_named("good") / "seen.json").read_text())
    assert notice == {"reason": "shutdown", "deadline_seconds": 0.5, "checkpoint": True}
    assert not (over / "stop.json").exists()
    assert not processes.of_pod(
        processes.census(), marker_of(tmp_path / "job" / "1" / pod_named("stubborn"))
    )


async def test_killing_a_pod_leaves_that_of_the_same_name_elsewhere(tmp_path: Path) -> None:
    ours = start_pod(tmp_path / "ours", pod_named("same"), stops=True)
    theirs = start_pod(tmp_path / "theirs", pod_named("same"), stops=True)
    await until(lambda: len(live_pods(tmp_path / "ours") + live_pods(tmp_path / "theirs")) == 2)
    (pod,) = live_pods(tmp_path / "ours")
    kill_pod(pod)
    assert await asyncio.to_thread(ours.wait) == -signal.SIGKILL
    assert len(live_pods(tmp_path / "theirs")) == 1
    theirs.kill()
    await asyncio.to_thread(theirs.wait)


async def test_a_pod_s_file_cannot_have_another_process_stopped(tmp_path: Path) -> None:
    """`identity.json` is in the pod's own directory: its programs may name any process in it."""
    pod = start_pod(tmp_path, pod_named("forger"), stops=True)
    victim = start_python("import signal\nwhile True: signal.pause()")
    await until(lambda: len(live_pods(tmp_path)) == 1)
    file = tmp_path / "job" / "1" / pod_named("forger") / "identity.json"
    true = file.read_text()
    identity = identify(victim.pid)
    assert identity is not None
    file.write_text(json.dumps(asdict(identity)))
    assert live_pods(tmp_path) == ()
    assert await stop_pods(tmp_path, deadline_s=0.1, grace_s=0.1) == 0
    assert victim.poll() is None
    victim.kill()
    await asyncio.to_thread(victim.communicate)
    file.write_text(true)
    reaping = asyncio.create_task(asyncio.to_thread(pod.wait))
    assert await stop_pods(tmp_path) == 1
    assert await reaping == 75


async def test_a_pipe_in_place_of_a_pod_s_file_blocks_no_stop(tmp_path: Path) -> None:
    directory = tmp_path / "job" / "1" / "pod_pipe"
    directory.mkdir(parents=True)
    os.mkfifo(directory / "identity.json")
    assert live_pods(tmp_path) == ()


def reused_identity(pid: int) -> ProcessIdentity:
    identity = identify(pid)
    assert identity is not None
    return replace(identity, start_ticks=identity.start_ticks - 1)


def start_python(code: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


def pod_named(name: str) -> str:
    return f"pod_{name:a<26}_1_0"


def start_pod(pods: Path, pod_id: str, *, stops: bool) -> "subprocess.Popen[bytes]":
    directory = pods / "job" / "1" / pod_id
    directory.mkdir(parents=True)
    code = textwrap.dedent(f"""
        import json, os, pathlib, signal, sys
        from services.standalone.identity import identify
        from dataclasses import asdict
        def stop(*_):
            pathlib.Path('seen.json').write_text(pathlib.Path('stop.json').read_text())
            sys.exit(75)
        signal.signal(signal.SIGTERM, stop if {stops} else signal.SIG_IGN)
        pathlib.Path('identity.new').write_text(json.dumps(asdict(identify(os.getpid()))))
        os.replace('identity.new', 'identity.json')
        while True: signal.pause()
    """)
    root = Path(__file__).parents[3]
    environment = os.environ | {MARKER: marker_of(directory), "PYTHONPATH": str(root)}
    return subprocess.Popen([sys.executable, "-c", code], cwd=directory, env=environment)


def write_record(directory: Path, parts: object) -> None:
    """As a platform in this directory would have recorded it."""
    place = {"device": directory.stat().st_dev, "inode": directory.stat().st_ino}
    (directory / "state.json").write_text(json.dumps({"home": place, "parts": parts}))


def read_state(directory: Path) -> list[dict[str, object]]:
    parts = json.loads((directory / "state.json").read_text())["parts"]
    assert isinstance(parts, list)
    return parts


async def test_what_connects_people_is_written_again_where_it_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "CARE_S", 0.01)
    connection = tmp_path / "connection.json"
    member = Member(python_child(tmp_path, "part", SLEEPER), Layer.SERVICE)
    supervisor = Supervisor([member], tmp_path / "state.json", keep_connection=connection.touch)
    await supervisor.start()
    await until(connection.exists)
    connection.unlink()
    await until(connection.exists)
    await supervisor.stop()
