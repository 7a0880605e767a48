"""The systemd units: valid, confined, and what they say starts."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from drivetrain_schemas.topics import SERVICES
from tests.integration.hosts.starting import ROOT, Servers, Started

UNITS = ROOT / "deploy" / "systemd"
FILES = sorted(UNITS.glob("*.service"))
# Of 10; the scheduler's pods see devices, and torch compiles to memory.
EXPOSURE = {"drivetrain@.service": 15, "drivetrain-setup.service": 15}
OF_PODS = 25


def unit_of(service: str) -> Path:
    return UNITS / (
        "drivetrain-scheduler.service" if service == "scheduler" else "drivetrain@.service"
    )


def commands(unit: Path, instance: str = "") -> list[list[str]]:
    found = re.findall(r"(?m)^ExecStart=(.*)$", unit.read_text())
    return [shlex.split(text.replace("%i", instance)) for text in found]


def environment(unit: Path, instance: str = "") -> dict[str, str]:
    """Of the example files that the unit names; one with a minus may be missing."""
    variables: dict[str, str] = {}
    for optional, path in re.findall(r"(?m)^EnvironmentFile=(-?)(.*)$", unit.read_text()):
        file = UNITS / Path(path.replace("%i", instance)).name
        if optional and not file.exists():
            continue
        for line in file.read_text().splitlines():
            if line and not line.startswith("#"):
                name, _, text = line.partition("=")
                variables[name] = text.strip("'")
    return variables


def _installed(unit: Path, folder: Path) -> Path:
    """The unit as on a host, with an interpreter that is there."""
    name = unit.name.replace("@.", "@gateway.")
    text = unit.read_text().replace("/opt/drivetrain/.venv/bin/python", "/usr/bin/env python3")
    (folder / name).write_text(text)
    return folder / name


def systemd_analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    command = ["systemd-analyze", "--no-pager", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("unit", FILES, ids=lambda path: path.name)
def test_a_unit_is_valid_and_confined(unit: Path, tmp_path: Path) -> None:
    path = _installed(unit, tmp_path)
    done = systemd_analyze("verify", "--man=no", str(path))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    limit = EXPOSURE.get(unit.name, OF_PODS)
    done = systemd_analyze("security", "--offline=true", f"--threshold={limit}", str(path))
    assert done.returncode == 0, done.stdout[-600:]


def test_pods_outlive_a_restart_of_the_scheduler() -> None:
    text = unit_of("scheduler").read_text()
    assert "KillMode=process" in text
    # A /tmp of its own would be removed under them.
    assert "PrivateTmp" not in text


def test_each_service_has_ports_of_its_own_on_one_host() -> None:
    ports = [
        port
        for service in SERVICES
        for name, port in environment(unit_of(service), service).items()
        if name in ("DRIVETRAIN_OPS_PORT", "DRIVETRAIN_HTTP_PORT")
    ]
    assert len(ports) == len(set(ports))


@pytest.mark.heavy
async def test_every_unit_starts_what_it_says(servers: Servers) -> None:
    setup = UNITS / "drivetrain-setup.service"
    for command in commands(setup):
        await servers.run(command, environment(setup))
    started = []
    for service in SERVICES:
        unit = unit_of(service)
        (command,) = commands(unit, service)
        started.append(Started(service, command, environment(unit, service)))
    await servers.see_all_ready(started)
