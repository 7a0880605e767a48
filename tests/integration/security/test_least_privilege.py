"""Every service on a broker and a Postgres that give each only what the table of access grants.

Kafka with an authorizer, over TLS: the services log in with SCRAM, the administrator with a
certificate. Postgres over verified TLS, with a role for each service, made by an administrator who
is no superuser. The rights come from the operators' own commands.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest
import pytest_asyncio

from drivetrain_schemas.access import ACCESS, POD
from drivetrain_schemas.topics import SERVICES, TOPICS
from services.standalone.embedded import running_postgres
from services.standalone.ports import free_port
from tests.access_rights import may_use_group, may_write, readable
from tests.secured_kafka import SecuredKafka
from tests.secured_postgres import SecuredPostgres, new_database, secured_proxy
from tests.training_job import packed_code

ROOT = Path(__file__).parents[3]
PREFIX = "least."
PASSWORDS = {name: f"secret-of-role-{name}" for name in SERVICES}
TOKENS = {
    "READ_TOKEN": "a-read-token-of-the-tests",
    "RUN_TOKEN_KEY": "a-key-that-only-services-have",
}
API_TOKEN = "a-token-of-the-api-of-tests"
SCRIPT = """
import torch

import drivetrain

with drivetrain.run(max_steps=20) as run:
    run.resume(model=torch.nn.Linear(2, 1))
    for _ in run.steps():
        run.log(loss=1 / run.step if run.step else 1.0)
        print("step", run.step, flush=True)
"""

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True, slots=True)
class Platform:
    gateway: httpx.AsyncClient
    kafka: SecuredKafka
    postgres: SecuredPostgres
    directory: Path


def own_environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("DRIVETRAIN_")}
    return kept | {f"DRIVETRAIN_{name}": text for name, text in variables.items()}


async def run_command(*command: str, **variables: str) -> str:
    """An operator's command; what it writes."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *command),
        env=own_environment(variables),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


def as_administrator(kafka: SecuredKafka) -> dict[str, str]:
    access = kafka.mtls("drivetrain")
    return {
        "KAFKA_BOOTSTRAP_SERVERS": access.bootstrap_servers,
        "KAFKA_SECURITY_PROTOCOL": "SSL",
        "KAFKA_CA_PATH": str(access.tls.ca),
        "KAFKA_CERTIFICATE_PATH": str(access.tls.certificate),
        "KAFKA_KEY_PATH": str(access.tls.key),
        "TOPIC_PREFIX": PREFIX,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def granted(
    secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SecuredPostgres]:
    """Topics, access lists and roles, made by the commands of operators; the second time: none."""
    directory = tmp_path_factory.mktemp("granted")
    administrator = as_administrator(secured)
    await run_command("services.runtime.topics", **administrator)
    done = await run_command("services.runtime.access", "kafka", **administrator)
    assert '"deleted": 0' in done
    again = await run_command("services.runtime.access", "kafka", **administrator)
    assert '"created": 0' in again
    passwords = directory / "passwords.json"
    passwords.write_text(json.dumps(PASSWORDS))
    async with running_postgres(directory) as server:
        dsn = await new_database(server.dsn)
        async with secured_proxy(directory, dsn) as postgres:
            command = ("services.runtime.access", "postgres", "--passwords", str(passwords))
            for _ in range(2):
                await run_command(*command, POSTGRES_DSN=postgres.verified)
            yield postgres


def environment_of(
    name: str, kafka: SecuredKafka, postgres: SecuredPostgres, directory: Path
) -> dict[str, str]:
    access = kafka.scram(name)
    return {
        "KAFKA_BOOTSTRAP_SERVERS": access.bootstrap_servers,
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA_SASL_USERNAME": name,
        "KAFKA_SASL_PASSWORD": kafka.passwords[name],
        "KAFKA_CA_PATH": str(access.tls.ca),
        "TOPIC_PREFIX": PREFIX,
        "POSTGRES_DSN": as_role(postgres, name),
        "OBJECT_STORE_URL": (directory / "objects").as_uri(),
        **TOKENS,
    }


def as_role(postgres: SecuredPostgres, name: str) -> str:
    parts = urlsplit(postgres.verified)
    return parts._replace(netloc=f"{name}:{PASSWORDS[name]}@localhost:{parts.port}").geturl()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def platform(
    secured: SecuredKafka,
    granted: SecuredPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Platform]:
    directory = tmp_path_factory.mktemp("platform")
    ports = {name: free_port() for name in SERVICES}
    own: dict[str, dict[str, str]] = {name: {} for name in SERVICES}
    own["scheduler"] = {
        "NODES": json.dumps([{"node_id": "n1", "slots": 2}]),
        "PODS_DIRECTORY": str(directory / "pods"),
        "PODS_KAFKA_USERNAME": POD,
        "PODS_KAFKA_PASSWORD": secured.passwords[POD],
    }
    own["gateway"] = {
        "API_TOKEN": API_TOKEN,
        "COOKIE_SECRET": "a-cookie-secret-of-the-tests",
        **{
            f"{name.upper()}_URL": f"http://127.0.0.1:{ports[name]}"
            for name in ("metrics", "cost", "scheduler")
        },
    }
    await run_command("services.runtime.stores", OBJECT_STORE_URL=(directory / "objects").as_uri())
    environments = {
        name: environment_of(name, secured, granted, directory)
        | own[name]
        | {"HTTP_PORT": str(ports[name])}
        for name in SERVICES
    }
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(environments, directory))
        headers = {"Authorization": f"Bearer {API_TOKEN}"}
        client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{ports['gateway']}", headers=headers, trust_env=False
        )
        yield Platform(await stack.enter_async_context(client), secured, granted, directory)


@asynccontextmanager
async def running(
    environments: Mapping[str, Mapping[str, str]], directory: Path
) -> AsyncIterator[None]:
    """Each service as a process, ready."""
    processes: dict[str, asyncio.subprocess.Process] = {}
    try:
        async with asyncio.timeout(120), asyncio.TaskGroup() as starting:
            for name, variables in environments.items():
                ops_port = free_port()
                with (directory / f"{name}.log").open("wb") as log:
                    processes[name] = await asyncio.create_subprocess_exec(
                        *(sys.executable, "-m", f"services.{name}"),
                        env=own_environment({**variables, "OPS_PORT": str(ops_port)}),
                        cwd=ROOT,
                        stdout=log,
                        stderr=log,
                    )
                starting.create_task(ready(processes[name], ops_port, directory / f"{name}.log"))
        yield
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.terminate()
        for process in processes.values():
            assert await asyncio.wait_for(process.wait(), 60) == 0


async def ready(process: asyncio.subprocess.Process, ops_port: int, log: Path) -> None:
    """`log` says why it ended, if it did."""
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            assert process.returncode is None, f"it ended: {log}"
            with suppress(httpx.TransportError):
                answer = await client.get(f"http://127.0.0.1:{ops_port}/readyz")
                if answer.status_code == 200:
                    return
            await asyncio.sleep(0.1)


async def until(gateway: httpx.AsyncClient, path: str, has: str, seconds: float = 120) -> str:
    deadline = time.monotonic() + seconds
    while has not in (text := (await gateway.get(path)).text):
        assert time.monotonic() < deadline, f"{path}: {text}"
        await asyncio.sleep(0.2)
    return text


@pytest.mark.heavy
async def test_a_job_trains_where_everyone_has_the_least_rights(platform: Platform) -> None:
    """Its metrics, logs and reports arrive by the pods' account; every service does its part."""
    gateway = platform.gateway
    code = await gateway.post(
        "/v1/code", content=packed_code(SCRIPT), headers={"content-type": "application/gzip"}
    )
    code.raise_for_status()
    spec = {
        "name": "least",
        "command": ["python", "train.py"],
        "code": {key: code.json()[key] for key in ("uri", "sha256")},
        "checkpoint": {"every_steps": 10},
    }
    taken = await gateway.post("/v1/jobs", json={"request_id": "least", "spec": spec})
    assert taken.is_success, taken.text
    job = f"/v1/jobs/{taken.json()['job_id']}"
    await until(gateway, job, '"state":"succeeded"')
    for path, has in (
        (f"{job}/metrics", '"loss"'),
        (f"{job}/logs", "step 20"),
        (f"{job}/timeline", "charge.recorded"),
        (f"{job}/timeline", "checkpoint.committed"),
    ):
        await until(gateway, path, has)
    for name in SERVICES:
        log = (platform.directory / f"{name}.log").read_text()
        assert "uthorizationFailed" not in log
        assert "permission denied" not in log


@pytest.mark.parametrize("name", sorted(ACCESS))
async def test_what_the_table_does_not_grant_is_refused(
    secured: SecuredKafka, granted: SecuredPostgres, name: str
) -> None:
    """Pods: anything but writing metrics, logs and reports."""
    access = secured.scram(name)
    written = {topic.name for topic in TOPICS if await may_write(access, PREFIX, topic.name)}
    assert written == {topic.name for topic in ACCESS[name].writes}
    assert await readable(access, PREFIX) == {topic.name for topic in ACCESS[name].reads}
    if name not in SERVICES:
        return
    foreign = next(service for service in SERVICES if service != name)
    topic = PREFIX + ACCESS[name].reads[0].name
    assert await may_use_group(access, f"{PREFIX}{name}.tests", topic)
    assert not await may_use_group(access, PREFIX + foreign, topic)
    connection = await asyncpg.connect(as_role(granted, name))
    try:
        for other in (other for other in SERVICES if other != name):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f'create table "{other}".intruder (number integer)')
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("create role another")
    finally:
        await connection.close()
