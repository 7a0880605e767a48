"""The platform needs no root: if the tests run as root, it is started once as another user."""

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import drivetrain
import drivetrain_schemas
from services.standalone.jars import default_cache
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
# Other users may not be able to read root's interpreter; any of the same version can be used.
INTERPRETERS = (
    os.path.realpath(sys.executable),
    f"/usr/bin/{VERSION}",
    f"/usr/local/bin/{VERSION}",
)
# Starting it proves nothing: setpriv still has root's rights when it executes the program.
NEEDED = """
import aiokafka, asyncpg, drivetrain, drivetrain_schemas, pydantic, services, subprocess, sys, torch
subprocess.run([sys.executable, "-c", ""], check=True)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory of the user nobody with the Java archives, outside of root's directories."""
    made = Path(tempfile.mkdtemp(prefix="drivetrain-user-"))
    try:
        if default_cache().is_dir():
            shutil.copytree(default_cache(), made / "drivetrain/jars")
        nobody = pwd.getpwnam("nobody")
        for path in (made, *made.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        yield made
    finally:
        shutil.rmtree(made)


def interpreter_of(user: pwd.struct_passwd, environment: dict[str, str]) -> tuple[str, ...]:
    """A command that runs our packages as this user; skips if there is none."""
    said = "setpriv is missing"
    become = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--")
    for path in INTERPRETERS if shutil.which("setpriv") else ():
        command = ("setpriv", *become, path)
        done = subprocess.run(
            [*command, "-c", NEEDED], cwd="/", env={**os.environ, **environment},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return command
        said = f"{path}: {done.stderr.strip().rpartition(chr(10))[2]}"
    pytest.skip(f"{user.pw_name} cannot run our packages here ({said})")


@pytest.mark.heavy
@pytest.mark.skipif(os.geteuid() != 0, reason="all other tests run as a normal user already")
def test_the_whole_platform_runs_as_a_normal_user(folder: Path) -> None:
    user = pwd.getpwnam("nobody")
    packages = [
        ROOT,
        *(Path(str(one.__file__)).parents[1] for one in (drivetrain, drivetrain_schemas)),
    ]
    environment = {
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder),
        "PYTHONPATH": ":".join([*map(str, packages), sysconfig.get_paths()["platlib"]]),
    }
    platform = StandalonePlatform(
        folder / "home", nodes=1, slots=1, outside=environment,
        interpreter=interpreter_of(user, environment),
    )  # fmt: skip
    platform.start()
    try:
        pids = [part["pid"] for part in platform.parts().values() if part.get("pid")]
        assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids} == {user.pw_uid}
        spec = {"name": "who", "command": ["id", "-u"], "resources": {"devices": 1}}
        with platform.client() as client:
            answer = client.post("/v1/jobs", json={"spec": spec})
        job = TrainingJob(platform, answer.json()["job_id"])
        assert job.wait_final()["state"] == "succeeded"
        path = f"/v1/jobs/{job.job_id}/logs"
        lines = wait_until(lambda: platform.get(path)["lines"], "the job's output is there")
        assert [line["line"] for line in lines] == [str(user.pw_uid)]
    finally:
        platform.stop()
