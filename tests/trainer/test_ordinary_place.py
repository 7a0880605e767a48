"""A pod is an ordinary place: warm and cold, a script finds what plain `python` gives it."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.pods import Pod, wait_for
from tests.trainer.ranks import SCRIPTS
from tests.trainer.scripts.ordinary.habits import HABITS

ORDINARY = SCRIPTS / "ordinary"
COMMANDS = {
    "a script": ["habits.py", "--fast", "two words"],
    "a directory": [".", "--fast"],
    "a module": ["-m", "pkg", "--fast"],
    "a module that is not there": ["-m", "not_there"],
    "a script that is not there": ["not_there.py"],
    "a raising script": ["raising.py"],
    "a syntax error": ["invalid.py"],
    "an interrupt": ["interrupted.py"],
    "a segmentation fault": ["faulty.py"],
}
REASONS = {
    "a module that is not there": "No module named not_there",
    "a script that is not there": "can't open file",
    "a raising script": "ValueError: the loss is not finite",
    "a syntax error": "SyntaxError: '(' was never closed",
    "an interrupt": "was killed by signal 2 (SIGINT)",
    "a segmentation fault": "was killed by signal 11 (SIGSEGV) in crash (faulty.py:5)",
}
PLACES = ("cold", "warm")


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    output: str
    seen: Mapping[str, Any]
    detail: str = ""


def variables_of(directory: Path) -> dict[str, str]:
    (directory / "temporary").mkdir(parents=True)
    return {
        "TMPDIR": str(directory / "temporary"),
        "TZ": "America/St_Johns",
        "SEEN": str(directory / "seen"),
    }


def copied(directory: Path) -> Path:
    shutil.copytree(ORDINARY, directory, ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "invalid.py").write_text('print("never"')
    return directory


def run_plainly(arguments: list[str], files: Path, directory: Path) -> Ran:
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    added = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "PATH": path}
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=files,
        env={**os.environ, **variables_of(directory), **added},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        # A shell that runs the tests in the background ignores SIGINT, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    return Ran(ended.returncode, ended.stdout.decode(), seen_in(directory / "seen"))


def packed(files: Path, path: Path) -> dict[str, str]:
    path.parent.mkdir(parents=True)
    with tarfile.open(path, mode="w:gz") as archive:
        archive.add(files, ".")
    return {"uri": path.as_uri(), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def comparable(output: str) -> str:
    """The job's files are in another directory; faulthandler shows addresses, and our frames."""
    if "Fatal Python error" in output:
        output = output.partition("\n\n")[0]
    return re.sub(r"(?:/[\w.-]+)*/(?=\w+\.py|pkg)", "<code>/", output)


def seen_in(path: Path) -> Mapping[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


@pytest.fixture(scope="module")
def runs(
    template: Path, pods_root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Ran]]:
    """Each command once in each place, all at the same time."""
    root = tmp_path_factory.mktemp("ordinary")
    files = copied(root / "files")
    pods = {}
    for place in PLACES:
        for number, (name, arguments) in enumerate(COMMANDS.items()):
            directory = root / f"{place}-{number}"
            pod = Pod(
                directory,
                pods=pods_root,
                command=["python", *arguments],
                code=packed(files, directory / "objects" / "code.tar.gz"),
                environment=variables_of(directory),
            )
            pods[place, name] = (pod, directory)
            if place == "cold":
                pod.start_cold()
            else:
                pod.start_warm(template)
    try:
        found = {
            ("plain", name): run_plainly(arguments, files, root / f"plain-{number}")
            for number, (name, arguments) in enumerate(COMMANDS.items())
        }
        for key, (pod, directory) in pods.items():
            end = pod.wait_for_exit()
            (rank,) = end.ranks
            status = -rank.signal if rank.signal else rank.exit_code
            found[key] = Ran(status, pod.log, seen_in(directory / "seen"), end.detail)
        yield found
    finally:
        for pod, _ in pods.values():
            pod.kill_all()
            if hasattr(pod, "process"):
                pod.process.wait()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_and_prints_as_with_plain_python(
    runs: dict[tuple[str, str], Ran], name: str, place: str
) -> None:
    plain, ran = runs["plain", name], runs[place, name]
    assert ran.status == plain.status
    assert comparable(ran.output) == comparable(plain.output)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", REASONS)
def test_the_cause_of_a_failure_is_the_pods_reason(
    runs: dict[tuple[str, str], Ran], name: str, place: str
) -> None:
    assert REASONS[name] in runs[place, name].detail


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_does_what_it_does_with_plain_python(
    runs: dict[tuple[str, str], Ran], habit: str, place: str
) -> None:
    want = runs["plain", "a script"].seen[habit]
    if "directory for temporary" in habit:
        assert runs[place, "a script"].seen[habit].endswith("/temporary")
        assert want.endswith("/temporary")
    else:
        assert runs[place, "a script"].seen[habit] == want
    assert "Traceback" not in str(want)


@pytest.mark.heavy
def test_ranks_and_jobs_that_set_no_seed_draw_different_numbers(
    template: Path, pods_root: Path, tmp_path: Path
) -> None:
    drawn = []
    pods = []
    for name in ("one", "two"):
        environment = variables_of(tmp_path / name) | {"ALSO_RANDOM": "numpy torch"}
        pods.append(
            Pod(
                tmp_path / name,
                pods=pods_root,
                num_ranks=2,
                command=["python", str(ORDINARY / "habits.py")],
                environment=environment,
            )
        )
        pods[-1].start_warm(template)
    for pod, name in zip(pods, ("one", "two"), strict=True):
        assert pod.wait_for_exit().outcome == "succeeded", pod.log
        pod.kill_all()
        drawn += [seen_in(tmp_path / name / f"seen{rank}") for rank in (0, 1)]
    for generator in ("random", "numpy", "torch"):
        assert len({seen[generator] for seen in drawn}) == 4, generator


def test_a_warm_rank_is_named_by_its_job(
    template: Path, make_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    script = tmp_path / "wait.py"
    script.write_text("import time; print('up', flush=True); time.sleep(600)")
    pod = make_pod(command=["python", str(script)], num_ranks=2)
    shim = pod.start_warm(template)
    wait_for(lambda: pod.log.count("up") == 2, "both ranks")
    titles = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in pod.processes()}
    assert titles.pop(shim).startswith("drivetrain pod of test, attempt 1")
    assert sorted(title[:20] for title in titles.values()) == [
        "test rank 0: python ",
        "test rank 1: python ",
    ]


@pytest.mark.parametrize("place", PLACES)
def test_hyperparameters_reach_any_program(
    template: Path, make_pod: Callable[..., Pod], tmp_path: Path, place: str
) -> None:
    script = tmp_path / "says.py"
    script.write_text(
        "import os, sys, drivetrain\n"
        "with drivetrain.run(max_steps=1) as run:\n"
        "    for _ in run.steps():\n"
        "        lr = run.hyperparameters['lr']\n"
        "print(sys.argv[1:], os.environ['DRIVETRAIN_HP_LR'], lr)\n"
    )
    pod = make_pod(
        command=["python", str(script), "--lr={lr}", "{{lr}}"], hyperparameters={"lr": 0.1}
    )
    if place == "cold":
        pod.start_cold()
    else:
        pod.start_warm(template)
    pod.wait_for_exit()
    assert "['--lr=0.1', '{lr}'] 0.1 0.1\n" in pod.log
