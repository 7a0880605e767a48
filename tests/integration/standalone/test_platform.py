"""The command itself, as a person or a script runs it, on real Kafka and Postgres."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from services.runtime.kafka_access import KafkaAccess
from services.standalone.home import Home, holder_of
from services.standalone.identity import ProcessIdentity, is_alive
from services.standalone.kafka import KafkaConnection, answers_metadata

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Platform:
    home: Path
    process: "subprocess.Popen[str]"

    def wait_up(self) -> list[str]:
        """The lines until the platform is up; fails with them if it ends before."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip())
            if "Ctrl-C" in line:
                return lines
        pytest.fail("the platform ended:\n" + "\n".join(lines))

    def parts(self) -> dict[str, dict[str, Any]]:
        """The recorded state of each part."""
        rows = json.loads((self.home / "state.json").read_text())["parts"]
        return {row["name"]: row for row in rows}

    def identity(self, name: str) -> ProcessIdentity:
        row = self.parts()[name]
        return ProcessIdentity(row["pid"], row["start_ticks"], row["boot_id"])


def command(home: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "services.standalone", *arguments, "--home", str(home)]


def run(home: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(home, *arguments),
        cwd=ROOT,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def started(home: Path, *arguments: str, **variables: str) -> Iterator[Platform]:
    """A platform without services, ended for certain when the block is left."""
    process = subprocess.Popen(
        command(home, "--only-infrastructure", *arguments),
        cwd=ROOT,
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield Platform(home, process)
    finally:
        process.terminate()
        process.communicate(timeout=60)


def environment(variables: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRIVETRAIN_")}
    return kept | variables


async def count_rows(home: Path) -> int:
    reader = json.loads((home / "connection.json").read_text())["postgres_dsn"]
    secrets = json.loads((home / "credentials.json").read_text())
    connection = await asyncpg.connect(
        f"postgresql://drivetrain:{secrets['postgres_password']}@{reader.rpartition('@')[2]}"
    )
    await connection.execute("CREATE TABLE IF NOT EXISTS starts (number int)")
    await connection.execute("INSERT INTO starts VALUES (1)")
    count = await connection.fetchval("SELECT count(*) FROM starts")
    await connection.close()
    return int(count)


@pytest.mark.heavy
async def test_one_data_directory_through_refusal_kill_9_and_an_orderly_stop(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    with started(home) as first:
        await asyncio.to_thread(first.wait_up)
        kafka = KafkaConnection(**json.loads((home / "connection.json").read_text())["kafka"])
        assert await answers_metadata(kafka)
        assert await count_rows(home) == 1

        refused = await asyncio.to_thread(run, home, "--only-infrastructure")
        assert refused.returncode == 3
        assert f"pid {first.process.pid}, running since" in refused.stdout

        shown = await asyncio.to_thread(run, home, "status", "--output", "json")
        states = {part["name"]: part["state"] for part in json.loads(shown.stdout)["parts"]}
        assert shown.returncode == 0
        assert states == {
            "kafka": "ready",
            "postgres": "ready",
            "topics": "done",
            "access": "done",
        }

        old = [first.identity(name) for name in ("kafka", "postgres")]
        # A stopped broker does not end with its supervisor: it must be found and ended.
        os.kill(old[0].pid, signal.SIGSTOP)
        first.process.kill()
        first.process.wait()
        assert is_alive(old[0])

        with started(home) as second:
            lines = await asyncio.to_thread(second.wait_up)
            assert any("left running: " in line and "kafka" in line for line in lines)
            assert not any(is_alive(identity) for identity in old)
            assert (
                KafkaConnection(**json.loads((home / "connection.json").read_text())["kafka"])
                == kafka
            )
            assert await count_rows(home) == 2

            new = [second.identity(name) for name in ("kafka", "postgres")]
            stopped = await asyncio.to_thread(run, home, "stop")
            assert stopped.returncode == 0
            assert second.process.wait(10) == 0
            assert not any(is_alive(identity) for identity in new)
    assert holder_of(Home(home)) is None
    assert (await asyncio.to_thread(run, home, "status")).returncode == 4


async def test_the_contents_of_the_directory_are_for_the_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with started(home, DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1") as platform:
        del platform
        while not (home / "connection.json").exists():
            await asyncio.sleep(0.05)
    assert home.stat().st_mode & 0o777 == 0o700
    for name in ("connection.json", "credentials.json", "state.json"):
        assert (home / name).stat().st_mode & 0o777 == 0o600, name


@pytest.mark.heavy
async def test_a_part_that_ends_five_times_stops_the_platform_with_the_end_of_its_log(
    tmp_path: Path,
) -> None:
    # An outside broker that is not there: creating the topics cannot succeed.
    done = await asyncio.to_thread(
        run,
        tmp_path / "home",
        "--only-infrastructure",
        DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:1",
    )
    assert done.returncode == 1
    assert "topics ended 5 times in a row before it was ready (last: exit code 1)" in done.stdout
    assert "Kafka cannot be used" in done.stdout
    assert "postgres     stopped" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "variables", "want"),
    [
        (("--nodes", "0"), {}, "must be from 1 to 1024"),
        (("--port", "nothing=1"), {}, "write NAME=PORT"),
        ((), {"DRIVETRAIN_KAFKA_SERVERS": "x"}, "DRIVETRAIN_KAFKA_SERVERS: no such setting"),
    ],
)
async def test_a_bad_option_is_refused_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], want: str
) -> None:
    refused = await asyncio.to_thread(run, tmp_path / "home", *arguments, **variables)
    assert refused.returncode == 2
    assert want in refused.stderr
    assert not (tmp_path / "home").exists()


async def test_a_fixed_port_in_use_is_named(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    refused = await asyncio.to_thread(run, tmp_path / "home", "--gateway-port", str(port))
    server.close()
    await server.wait_closed()
    assert refused.returncode == 5
    assert f"Port {port} on 127.0.0.1, for gateway.http, is in use by" in refused.stdout
    assert f"(pid {os.getpid()})" in refused.stdout
    assert "--gateway-port N" in refused.stdout
    assert len(refused.stdout.splitlines()) == 2


def working_platform(home: Path, work: str) -> list[str]:
    """A program that runs the platform's ground around `work`, lines of an async function."""
    script = (
        "import asyncio, os, sys\n"
        "from services.standalone.options import parse\n"
        "from services.standalone.up import up\n"
        "async def work(plan, reporter):\n"
        "    reporter.line(f'working at {plan.kafka_connection().bootstrap_servers}')\n"
        f"    {work}\n"
        f"options = parse(['--only-infrastructure', '--home', {str(home)!r}], os.environ)\n"
        "sys.exit(up(options, on_up=work))\n"
    )
    return [sys.executable, "-u", "-c", script]


def outside_broker(kafka: KafkaAccess) -> dict[str, str]:
    return {
        "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "DRIVETRAIN_KAFKA_SASL_USERNAME": kafka.username or "",
        "DRIVETRAIN_KAFKA_SASL_PASSWORD": kafka.password or "",
    }


@pytest.mark.parametrize("code", [0, 7])
async def test_work_given_to_the_platform_ends_it_with_its_exit_code(
    tmp_path: Path, kafka: KafkaAccess, code: int
) -> None:
    home = tmp_path / "home"
    done = await asyncio.to_thread(
        subprocess.run,
        working_platform(home, f"return {code}"),
        cwd=ROOT,
        env=environment(outside_broker(kafka)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert f"working at {kafka.bootstrap_servers}" in done.stdout
    assert "kafka  " not in done.stdout
    assert json.loads((home / "state.json").read_text())["parts"][-1] == {
        "name": "kafka",
        "state": "outside",
    }
    assert holder_of(Home(home)) is None


@pytest.mark.parametrize(
    ("work", "when", "code"),
    [
        pytest.param("await asyncio.Event().wait()", "working at", 130, id="during the work"),
        pytest.param("return 0", "all on this machine", 130, id="during the start"),
        pytest.param(
            "reporter.line('all is done')",
            "all is done",
            0,
            id="after the work",
            marks=pytest.mark.heavy,
        ),
    ],
)
async def test_a_stop_before_the_work_is_done_is_not_a_success(
    tmp_path: Path, kafka: KafkaAccess, work: str, when: str, code: int
) -> None:
    def stopped_when_it_says() -> tuple[int, list[str]]:
        with subprocess.Popen(
            working_platform(tmp_path / "home", work),
            cwd=ROOT,
            env=environment(outside_broker(kafka)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            printed = []
            for line in process.stdout:
                printed.append(line)
                if when in line:
                    process.terminate()
                    when_it_was_said.set()
            return process.wait(60), printed

    when_it_was_said = threading.Event()
    exit_code, printed = await asyncio.to_thread(stopped_when_it_says)
    assert when_it_was_said.is_set(), printed
    assert exit_code == code, printed
    assert holder_of(Home(tmp_path / "home")) is None
