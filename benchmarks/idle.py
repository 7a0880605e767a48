"""CPU of the whole platform while nothing happens, and while one job trains, part by part.

The peer is an older checkout of this repository (`--peer DIRECTORY`, made by `git worktree add`),
measured by the same program in the same run. Read from `/proc` over one interval, without what the
job's own processes use.
"""

import contextlib
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.report import Row, arguments, options_of, publish
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

TITLE = "CPU while nothing happens"
MEASURES = (
    "services/metrics/windows",
    "services/runtime",
    "services/scheduler/loop.py",
    "services/standalone",
    "trainer/drivetrain/pod",
)
NOTES = """
All processes of a standalone platform without the job's own: those that a part starts count with
it (the process of windows with metrics). `--peer DIRECTORY` compares with another checkout, in
the same run. An idle consumer sends a fetch every five seconds, and new records still return at
once. The rest is the broker without clients, these fetches, and group heartbeats. With a job,
four services read a heartbeat each second.
"""

TARGET = 0.5
# Parts whose work is done by processes of their own, too: windows are a process of metrics.
TREES = ("kafka", "metrics", "postgres")
TICKS = os.sysconf("SC_CLK_TCK")
SCRIPT = """
import time, drivetrain
with drivetrain.run(max_steps=1_000_000) as run:
    for step in run.steps():
        time.sleep(0.1)
        run.log(loss=1 / step)
"""
Shares = dict[str, float]
"""CPU of each part, as a fraction of one core."""


def main() -> None:
    parser = arguments("CPU of an idle platform, and with one job")
    parser.add_argument("--peer", type=Path, help="a checkout of another commit to compare with")
    wanted = parser.parse_args()
    given = options_of("idle", wanted)
    settle, seconds = (3.0, 3.0) if given.quick else (20.0, 30.0)
    ours = measure(Path.cwd(), settle, seconds)
    peer = measure(wanted.peer.resolve(), settle, seconds) if wanted.peer else None
    publish(rows(ours, peer), given)


def measure(checkout: Path, settle: float, seconds: float) -> dict[str, Shares]:
    """The shares of an idle platform of this checkout, and of one with a job."""
    with tempfile.TemporaryDirectory() as folder, running(checkout, Path(folder)) as platform:
        time.sleep(settle)
        idle = shares(platform, seconds)
        job = TrainingJob.submit(
            platform, f"idle-{uuid.uuid4().hex[:8]}", SCRIPT, max_steps=None,
            resources={"devices": 1},
        )  # fmt: skip
        time.sleep(settle)
        assert job.state()["state"] == "running"
        return {"idle": idle, "one job": shares(platform, seconds)}


@contextlib.contextmanager
def running(checkout: Path, folder: Path) -> Iterator[StandalonePlatform]:
    # The checkout's own packages, before those of this environment.
    sources = os.pathsep.join(str(checkout / name) for name in ("schemas", "trainer"))
    interpreter = ("env", f"--chdir={checkout}", f"PYTHONPATH={sources}", sys.executable)
    platform = StandalonePlatform(folder / "home", interpreter=interpreter)
    platform.start()
    try:
        yield platform
    finally:
        platform.stop()


def shares(platform: StandalonePlatform, seconds: float) -> Shares:
    before, began = used(platform), time.monotonic()
    time.sleep(seconds)
    after, passed = used(platform), time.monotonic() - began
    return {name: (after[name] - before[name]) / passed for name in before}


def used(platform: StandalonePlatform) -> Mapping[str, float]:
    """Seconds of CPU that each part has used so far."""
    children: dict[int, list[int]] = {}
    times: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
                own, of_ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
                times[int(entry.name)] = own, own + of_ended

    def of_tree(pid: int) -> int:
        return times[pid][1] + sum(of_tree(child) for child in children.get(pid, ()))

    parts = {name: part["pid"] for name, part in platform.parts().items() if part.get("pid")}
    found = {
        name: (of_tree(pid) if name in TREES else times[pid][0]) / TICKS
        for name, pid in parts.items()
    }
    supervisor = platform.supervisor_pid
    return found | {"supervisor": times[supervisor][0] / TICKS}


def rows(ours: Mapping[str, Shares], peer: Mapping[str, Shares] | None) -> list[Row]:
    found = []
    for state, parts in ours.items():
        theirs = peer[state] if peer else {}
        everything = sum(parts.values()), sum(theirs.values())
        found.append(_row(state, "the whole platform", *everything, is_whole=True))
        for name, share in sorted(parts.items(), key=lambda item: -item[1]):
            found.append(_row(state, name, share, theirs.get(name, 0.0), is_whole=False))
    return found


def _row(state: str, name: str, ours: float, peer: float, *, is_whole: bool) -> Row:
    ratio = ours / peer if peer else 0.0
    return Row(
        id=f"idle.{state.replace(' ', '_')}.{name.replace(' ', '_')}",
        what=f"{state}: {name}",
        ours=f"{100 * ours:.1f} % of a core",
        peer=f"{100 * peer:.1f} %" if peer else "",
        ratio=ratio,
        target=f"at most {TARGET} x" if is_whole and peer else "",
        met=ratio <= TARGET if is_whole and peer else True,
    )


if __name__ == "__main__":
    main()
