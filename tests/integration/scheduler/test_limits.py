"""Pods that take all memory and all processes they can get: each ends alone, and says why."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drivetrain_schemas.pods import FailureKind, PodSpec
from services.runtime import cgroups
from services.scheduler.core.pods import Sight
from services.scheduler.launchers import local
from services.scheduler.launchers.base import PodRef
from services.scheduler.launchers.local import SHIM, LocalLauncher
from tests.integration.scheduler.pods import (
    JOB,
    SLEEP,
    left_of,
    make_launcher,
    make_pod_spec,
    ref_of,
    seen,
)

MIB = 1024**2
MAX_TASKS = 64
MAX_FORKS = 200
# It gives up at three times its limit, should nothing hold it.
TAKES_MEMORY = "taken = [bytes([1]) * 2**20 for _ in range(600)]"
# Every process forks as long as fewer than `MAX_FORKS` are; the first ends, the others stay.
FORKS = f"""
import mmap, os, sys, time
count = mmap.mmap(-1, 8)
def add():
    count[:8] = (int.from_bytes(count[:8], "little") + 1).to_bytes(8, "little")
first = os.getpid()
until = time.monotonic() + 20
while int.from_bytes(count[:8], "little") < {MAX_FORKS} and time.monotonic() < until:
    try:
        if os.fork() == 0:
            add()
    except OSError as error:
        if os.getpid() == first:
            raise
if os.getpid() != first:
    time.sleep(60)
"""
needs_groups = pytest.mark.skipif(
    bool(cgroups.why_none()), reason=f"no group of processes can be limited: {cgroups.why_none()}"
)


@pytest.fixture
async def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalLauncher]:
    monkeypatch.setattr(local, "MAX_TASKS", MAX_TASKS)
    launcher = make_launcher(tmp_path, shim=SHIM)
    yield launcher
    pods = [PodRef(JOB, 1, pod.name) for pod in (tmp_path / JOB / "1").glob("pod_*")]
    assert await launcher.kill(pods) == {pod.pod_id for pod in pods}
    for child in launcher._children:
        child.wait(10)


def spec_of(program: list[str], index: int = 0, memory_bytes: int | None = None) -> PodSpec:
    spec = make_pod_spec(program, index=index)
    resources = spec.job.resources.model_copy(update={"memory_bytes": memory_bytes})
    return spec.model_copy(update={"job": spec.job.model_copy(update={"resources": resources})})


def groups_of(launcher: LocalLauncher, spec: PodSpec) -> list[Path]:
    written = json.loads((launcher._directory(ref_of(spec)).path / "spec.json").read_text())
    return [Path(group) for group in written["groups"]]


@needs_groups
@pytest.mark.parametrize(
    "program",
    [
        [sys.executable, "-c", TAKES_MEMORY],
        ["sh", "-c", f"{sys.executable} -c '{TAKES_MEMORY}'; exit $?"],
        [
            sys.executable,
            "-c",
            f"import subprocess, sys; a = [sys.executable, '-c', '{TAKES_MEMORY}'];"
            "subprocess.run(a, check=True)",
        ],
    ],
    ids=["itself", "below a shell", "below Python"],
)
async def test_a_pod_over_its_memory_is_killed_with_the_reason(
    launcher: LocalLauncher, program: list[str]
) -> None:
    other, greedy = spec_of(SLEEP, 1), spec_of(program, memory_bytes=200 * MIB)
    await launcher.launch(other)
    await seen(launcher, other, Sight.ALIVE)
    await launcher.launch(greedy)
    end = (await seen(launcher, greedy, Sight.ENDED)).exit

    assert end is not None
    assert end.failure is not None
    assert end.failure.kind is FailureKind.OUT_OF_MEMORY
    assert end.detail == (
        "rank 0 was killed because its pod used more than its 0.195 GiB (resources.memory_bytes)"
    )
    assert not any(group.exists() for group in groups_of(launcher, greedy))
    assert (await launcher.observe([ref_of(other)]))[other.pod_id].sight is Sight.ALIVE


@needs_groups
@pytest.mark.heavy
async def test_a_fork_bomb_ends_with_its_pod_and_alone(launcher: LocalLauncher) -> None:
    other, bomb = spec_of(SLEEP, 1), spec_of([sys.executable, "-c", FORKS])
    await launcher.launch(other)
    await seen(launcher, other, Sight.ALIVE)
    await launcher.launch(bomb)
    await seen(launcher, bomb, Sight.ALIVE)
    marker, counted, seen_now = launcher._directory(ref_of(bomb)).marker, [], None
    async with asyncio.timeout(60):
        while seen_now is None or seen_now.sight is not Sight.ENDED:
            counted.append(len(left_of(marker)))
            seen_now = (await launcher.observe([ref_of(bomb)]))[bomb.pod_id]
            await asyncio.sleep(0.02)
    end = seen_now.exit

    assert MAX_TASKS <= max(counted) <= MAX_TASKS + 1, "its shim is not in the group"
    assert end is not None
    assert "BlockingIOError" in end.detail
    assert not any(group.exists() for group in groups_of(launcher, bomb))
    assert (await launcher.observe([ref_of(other)]))[other.pod_id].sight is Sight.ALIVE


@needs_groups
async def test_a_pod_that_starts_no_rank_leaves_no_group(launcher: LocalLauncher) -> None:
    spec = spec_of(["torchrun", "--nproc-per-node", "3", "train.py"], memory_bytes=MIB * 500)
    await launcher.launch(spec)
    end = (await seen(launcher, spec, Sight.ENDED)).exit
    assert end is not None
    assert end.ranks == ()
    assert [group.exists() for group in groups_of(launcher, spec)] == [False, False]


MAKES_GROUPS = """
import os, sys, time
for line in open("/proc/self/cgroup"):
    _, names, path = line.strip().split(":", 2)
    first = [name for name in names.split(",") if name in ("memory", "pids")]
    if first or not names:
        below = os.path.join("/sys/fs/cgroup", *first) + path + "/below"
        if "pod_" in below:
            os.makedirs(below + "/further")
print("made", flush=True)
time.sleep(float(sys.argv[1]))
"""


@needs_groups
@pytest.mark.parametrize("is_killed", [False, True])
async def test_groups_that_a_program_makes_below_its_own_are_removed_with_it(
    launcher: LocalLauncher, is_killed: bool
) -> None:
    spec = spec_of([sys.executable, "-c", MAKES_GROUPS, "600" if is_killed else "0"])
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE, Sight.ENDED)
    output = launcher._directory(ref_of(spec)).path / "log"
    async with asyncio.timeout(30):
        while not output.exists() or "made" not in output.read_text():
            await asyncio.sleep(0.02)
    groups = groups_of(launcher, spec)
    if is_killed:
        assert all((group / "below" / "further").is_dir() for group in groups)
        async with asyncio.timeout(60):
            while not await launcher.kill([ref_of(spec)]):
                continue
    else:
        await seen(launcher, spec, Sight.ENDED)
    assert not any(group.exists() for group in groups)


@needs_groups
@pytest.mark.heavy
async def test_the_group_of_a_killed_pod_is_removed(launcher: LocalLauncher) -> None:
    spec = spec_of(SLEEP, memory_bytes=MIB * 500)
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ALIVE)
    groups = groups_of(launcher, spec)
    assert [group.exists() for group in groups] == [True, True]

    assert await launcher.kill([ref_of(spec)]) == {spec.pod_id}
    assert not any(group.exists() for group in groups)


@pytest.mark.heavy
async def test_the_kernel_takes_a_program_before_the_platform_and_dumps_no_memory(
    launcher: LocalLauncher,
) -> None:
    program = "cat /proc/self/oom_score_adj; ulimit -c"
    spec = spec_of(["sh", "-c", program])
    await launcher.launch(spec)
    await seen(launcher, spec, Sight.ENDED)
    assert (launcher._directory(ref_of(spec)).path / "log").read_text() == "500\n0\n"


async def test_where_no_group_can_be_made_it_is_said_once_and_pods_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path / "nothing mounted")
    launcher = make_launcher(tmp_path / "pods", shim=SHIM)
    (tmp_path / "pods").mkdir()
    for index in range(2):
        spec = spec_of(["true"], index, memory_bytes=200 * MIB)
        await launcher.launch(spec)
        end = (await seen(launcher, spec, Sight.ENDED)).exit
        assert end is not None
        assert end.outcome == "succeeded"
        assert groups_of(launcher, spec) == []
    assert capsys.readouterr().out.count("have no limit") == 1
    for child in launcher._children:
        child.wait(10)
