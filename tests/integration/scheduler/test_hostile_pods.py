"""What a job's programs write into their pod's directory decides their own end, and nothing else.

Real launchers and real shims; the forging is done from inside the job.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain.storage import create_storage
from drivetrain_schemas.pods import PodIdentity, PodSpec, StopNotice, marker_of
from services.runtime import cgroups, processes
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.directory import PodDirectory
from services.scheduler.launchers.local import SHIM, LocalLauncher
from tests.integration.scheduler.pods import (
    SLEEP,
    left_of,
    make_launcher,
    make_pod_spec,
    ref_of,
    seen,
)

FORGED_EXIT = """
import json, os, subprocess, time
pod = os.environ["DRIVETRAIN_POD_DIRECTORY"]
child = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
end = {"pod_id": os.environ["DRIVETRAIN_POD_ID"], "outcome": "succeeded", "ranks": [],
       "ended_at": "2020-01-01T00:00:00Z"}
with open(pod + "/forged", "w") as file:
    json.dump(end, file)
with open(pod + "/child", "w") as file:
    file.write(str(child.pid))
os.rename(pod + "/forged", pod + "/exit.json")
# From here on nothing carries the marker but the shim.
os.execve("/bin/sleep", ["sleep", "600"], {})
"""
FORGED_FILES = """
import os, shutil, stat, sys, time
kind, pod = sys.argv[1], os.environ["DRIVETRAIN_POD_DIRECTORY"]
while not os.path.exists(pod + "/go"):
    time.sleep(0.01)
names = ["spec.json", "spec.closed.json", "identity.json", "lock", "stop.json", "exit.json",
         "launch.log", "log", "control.sock", "result.json"]
for name in names:
    path = pod + "/" + name
    if os.path.lexists(path):
        os.unlink(path)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        os.mkdir(path)
        open(path + "/full", "w").close()
    elif kind == "endless":
        os.symlink("/dev/zero", path)
    elif kind == "link":
        os.symlink(sys.argv[2] + "/" + name, path)
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 40)
time.sleep(600)
"""


@pytest.fixture
def launcher(tmp_path: Path):
    launcher = make_launcher(tmp_path / "pods", shim=SHIM)
    yield launcher
    leftovers = frozenset(marker_of(pod) for pod in tmp_path.glob("pods/job_*/*/pod_*"))
    assert processes.kill_marked(leftovers, 10) == leftovers
    for marker in leftovers:
        cgroups.remove(marker)
    for child in launcher._children:
        child.wait(10)


async def start(launcher: LocalLauncher, spec: PodSpec) -> Path:
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)
    return PodDirectory(launcher._root, ref_of(spec)).path


async def appears(path: Path) -> None:
    async with asyncio.timeout(30):
        while path.name not in {entry.name for entry in path.parent.iterdir()}:
            await asyncio.sleep(0.02)


@pytest.fixture
def bystander():
    """A process that belongs to no pod."""
    process = subprocess.Popen(SLEEP)
    yield process
    process.kill()
    process.wait()


async def test_a_forged_exit_ends_nothing_while_a_process_is_left(launcher: LocalLauncher):
    """Not even of processes that have wiped their environment."""
    spec = make_pod_spec([sys.executable, "-c", FORGED_EXIT])
    await launcher.launch(spec)
    directory = PodDirectory(launcher._root, ref_of(spec)).path
    await appears(directory / "exit.json")
    async with asyncio.timeout(30):
        while (await launcher.observe([ref_of(spec)]))[spec.pod_id].sight is Sight.ALIVE:
            await asyncio.sleep(0.02)
    child = int((directory / "child").read_text())
    assert processes.start_ticks(child) is not None

    assert (await launcher.observe([ref_of(spec)]))[spec.pod_id].sight is Sight.ENDING
    assert await launcher.kill([ref_of(spec)]) == {spec.pod_id}

    assert processes.start_ticks(child) is None
    assert (await seen(launcher, spec, Sight.ENDED)).exit.outcome == "succeeded"


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same launcher", "restarted"])
async def test_a_forged_identity_harms_no_other_process(
    launcher: LocalLauncher, tmp_path: Path, bystander, is_restarted: bool
):
    spec = make_pod_spec(SLEEP)
    directory = await start(launcher, spec)
    ticks = processes.start_ticks(bystander.pid)
    assert ticks is not None
    forged = PodIdentity(
        boot_id=processes.boot_id(), pid=bystander.pid, start_ticks=ticks
    ).model_dump_json()
    (directory / "identity.json").write_text(forged)
    used = make_launcher(tmp_path / "pods", shim=SHIM) if is_restarted else launcher

    sight = (await used.observe([ref_of(spec)]))[spec.pod_id].sight
    assert sight is (Sight.DEAD if is_restarted else Sight.ALIVE)
    await used.notify(ref_of(spec), StopNotice(reason="cancel", deadline_seconds=600))
    assert await used.kill([ref_of(spec)]) == {spec.pod_id}

    assert left_of(marker_of(directory)) == frozenset()
    assert bystander.poll() is None


@pytest.mark.parametrize("kind", ["pipe", "directory", "endless", "sparse", "link"])
async def test_no_file_holds_the_scheduler_up_or_leads_it_elsewhere(
    launcher: LocalLauncher, tmp_path: Path, kind: str
):
    victim = tmp_path / "victim"
    victim.mkdir()
    hostile = make_pod_spec([sys.executable, "-c", FORGED_FILES, kind, str(victim)])
    honest = make_pod_spec(SLEEP, index=1)
    await start(launcher, honest)
    directory = await start(launcher, hostile)
    (directory / "go").touch()  # seen alive before
    await appears(directory / "result.json")

    async with asyncio.timeout(30):
        both = await launcher.observe([ref_of(hostile), ref_of(honest)])
        assert both[honest.pod_id].sight is Sight.ALIVE
        assert both[hostile.pod_id].exit is None
        await launcher.notify(ref_of(hostile), StopNotice(reason="cancel", deadline_seconds=600))
        assert await launcher.kill([ref_of(hostile)]) == {hostile.pod_id}
        await launcher.launch(hostile)
        restarted = make_launcher(tmp_path / "pods", shim=SHIM)
        again = (await restarted.observe([ref_of(hostile)]))[hostile.pod_id]
        assert again.sight in (Sight.DEAD, Sight.ENDED)
        assert again.exit is None or again.exit.outcome == "failed"

    assert left_of(marker_of(directory)) == frozenset()
    assert list(victim.iterdir()) == []


async def test_a_link_in_place_of_the_directory_leads_into_no_other_pod(launcher: LocalLauncher):
    hostile, victim = make_pod_spec(SLEEP), make_pod_spec(SLEEP, index=1)
    mine, other = await start(launcher, hostile), await start(launcher, victim)
    mine.rename(mine.with_name("moved"))
    mine.symlink_to(other)

    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        await launcher.notify(ref_of(hostile), StopNotice(reason="cancel", deadline_seconds=1))

    assert not (other / "stop.json").exists()
    assert (await seen(launcher, victim, Sight.ALIVE)).exit is None
    assert await launcher.kill([ref_of(hostile)]) == {hostile.pod_id}
    assert (await seen(launcher, victim, Sight.ALIVE)).exit is None


async def test_a_stopped_shim_and_its_notice_do_not_outlast_the_kill(launcher: LocalLauncher):
    spec = make_pod_spec(["sh", "-c", "kill -STOP $PPID; exec sleep 600"])
    directory = await start(launcher, spec)
    notice = StopNotice(reason="cancel", deadline_seconds=1)
    await launcher.notify(ref_of(spec), notice)

    assert await launcher.kill([ref_of(spec)]) == {spec.pod_id}
    assert left_of(marker_of(directory)) == frozenset()


async def test_unreadable_directories_are_removed_too(launcher: LocalLauncher, tmp_path: Path):
    lock_out = "mkdir -p a/b; touch a/b/c; chmod 0 a/b a; ln -s / root; exit 0"
    store = tmp_path / "objects"
    create_storage(store)  # the job's files are saved there at its end
    spec = make_pod_spec(["sh", "-c", lock_out])
    spec = spec.model_copy(update={"object_store_url": store.as_uri()})
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ENDED)

    await launcher.remove(spec.job_id)

    assert not (launcher._root / spec.job_id).exists()
    # Without Kafka its shim stays, to send its telemetry.
    marker = marker_of(PodDirectory(launcher._root, ref_of(spec)).path)
    processes.kill_marked(frozenset({marker}), 10)
