"""Safe by default: a submitted job runs code here, so only authenticated callers may submit."""

import asyncio
import hmac
import ipaddress
import json
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from pydantic import SecretStr

from drivetrain_schemas.envelope import parse
from services.runtime.run_tokens import RunTokens
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

INTRUDER = Path(__file__).parents[1] / "jobs" / "intruder.py"
GOLDEN = Path(__file__).parents[1] / "golden"
SPEC: dict[str, Any] = {"spec": {"name": "forged", "command": ["true"]}}


def login(kafka: dict[str, str]) -> dict[str, str]:
    return {
        "bootstrap_servers": kafka["bootstrap_servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": kafka["username"],
        "sasl_plain_password": kafka["password"],
    }


def listening_addresses(pid: int) -> set[str]:
    """The addresses of the TCP sockets on which a process listens."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(_address(fields[1].partition(":")[0]))
    return found


def _address(text: str) -> str:
    words = [bytes.fromhex(text[start : start + 8])[::-1] for start in range(0, len(text), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def test_every_part_listens_on_loopback_only(platform: StandalonePlatform) -> None:
    parts = {name: part["pid"] for name, part in platform.parts().items() if part.get("pid")}
    addresses = {name: listening_addresses(pid) for name, pid in parts.items()}
    assert addresses["kafka"]
    assert addresses["gateway"]
    for name, found in addresses.items():
        assert all(ipaddress.ip_address(address).is_loopback for address in found), (name, found)


@pytest.mark.parametrize("name", ["connection.json", "credentials.json"])
def test_only_the_owner_may_read_the_credentials(platform: StandalonePlatform, name: str) -> None:
    mode = stat.S_IMODE((platform.home / name).stat().st_mode)
    assert mode == 0o600


@pytest.mark.parametrize("password", ["wrong", ""])
def test_kafka_refuses_a_client_without_the_password(
    platform: StandalonePlatform, password: str
) -> None:
    async def produce() -> None:
        producer = AIOKafkaProducer(**login(platform.connection["kafka"] | {"password": password}))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(KafkaError):
        asyncio.run(produce())


def test_postgres_refuses_a_client_without_the_password(platform: StandalonePlatform) -> None:
    address = platform.connection["postgres_dsn"].rpartition("@")[2]

    async def connect() -> None:
        await asyncpg.connect(f"postgresql://drivetrain:wrong@{address}")

    with pytest.raises(asyncpg.InvalidPasswordError):
        asyncio.run(connect())


@pytest.fixture(scope="module")
def intrusion(
    platform: StandalonePlatform, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What a job can do with everything it is given."""
    report = tmp_path_factory.mktemp("intruder") / "report.json"
    job = TrainingJob.submit(
        platform,
        "intruder",
        INTRUDER.read_text(),
        resources={"devices": 1},
        environment={
            "REPORT": str(report),
            "POSTGRES_ADDRESS": platform.admin["postgres_dsn"].rpartition("@")[2],
            "TEMPLATE_SOCKET": str(platform.home / "template.sock"),
        },
    )
    assert job.wait_final()["state"] == "succeeded", job.timeline()
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_a_job_may_write_what_pods_write_and_read_nothing(intrusion: dict[str, Any]) -> None:
    assert set(intrusion["written"]) == {"metrics", "logs", "reports"}
    assert intrusion["read"] == []


def test_a_job_is_given_no_secret_but_that_of_pods(
    platform: StandalonePlatform, intrusion: dict[str, Any]
) -> None:
    secrets = json.loads((platform.home / "credentials.json").read_text())
    given = json.dumps([intrusion["environment"], intrusion["spec"]])
    of_pods = secrets["kafka_users"].pop("pod")
    others = [
        *(text for text in secrets.values() if isinstance(text, str) and text != "drivetrain"),
        *secrets["kafka_users"].values(),
        *secrets["postgres_roles"].values(),
    ]
    assert len(others) > 10
    assert of_pods in given
    assert [secret for secret in others if secret in given] == []


def test_a_job_cannot_log_in_to_postgres(intrusion: dict[str, Any]) -> None:
    assert intrusion["logged_in"] == []


def test_a_job_that_asks_the_template_for_a_pod_is_refused_and_seen(
    platform: StandalonePlatform, intrusion: dict[str, Any]
) -> None:
    asked = intrusion["template"]
    assert asked["answer"] == {"error": "only the scheduler may ask for a pod"}
    assert asked["files"] == ["spec.json"]  # no shim has taken it
    lines = (platform.home / "logs" / "template.log").read_text().splitlines()
    refused = [json.loads(line) for line in lines if line.startswith("{")]
    pod_id = intrusion["spec"]["pod_id"]
    of_pod = [line for line in refused if line["pod_marker"].startswith(pod_id)]
    assert [line["pid"] for line in of_pod] == [asked["pid"]]
    wait_until(
        lambda: (
            f"template: refused a request of process {asked['pid']}" in platform.output.read_text()
        ),
        "the terminal shows it",
    )


@pytest.mark.heavy
def test_the_scheduler_starts_pods_warm_again_once_either_was_killed(
    platform: StandalonePlatform,
) -> None:
    for number, part in enumerate((None, "scheduler", "template")):
        if part is not None:
            platform.kill(part)
        before = num_warm(platform)
        job = TrainingJob.submit(
            platform, f"warm-{number}", "print('here')", resources={"devices": 1}
        )
        assert job.wait_final()["state"] == "succeeded", job.timeline()
        assert num_warm(platform) == before + 1


@pytest.mark.parametrize("user", ["pod", "client"])
@pytest.mark.parametrize("name", ["charge.recorded", "job.succeeded", "node.registered"])
def test_a_forged_event_is_refused(platform: StandalonePlatform, user: str, name: str) -> None:
    """A valid event of a service, written with the credential of another one."""
    record = json.loads((GOLDEN / f"{name}.v1.json").read_text())
    headers = [(key, text.encode()) for key, text in record["headers"].items()]
    # The golden record's node is one of this platform's.
    value = json.dumps(record["value"]).replace("node-a", "node-forged").encode()
    topic = f"drivetrain.{parse(headers, value).payload.kind.topic.name}"
    users = json.loads((platform.home / "credentials.json").read_text())["kafka_users"]

    async def forge(user: str) -> None:
        kafka = platform.connection["kafka"] | {"username": user, "password": users[user]}
        async with AIOKafkaProducer(**login(kafka)) as producer:
            await producer.send_and_wait(topic, value, record["key"].encode(), headers=headers)

    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(forge(user))
    with platform.client() as client:
        assert "node-forged" not in client.get("/v1/nodes").text
        if job_id := record["value"].get("job_id"):
            timeline = client.get(f"/v1/jobs/{job_id}/timeline").text  # another test's job, or none
            assert record["headers"]["ce_id"] not in timeline


def test_the_connection_of_people_reads_tables_and_writes_none(
    platform: StandalonePlatform,
) -> None:
    async def spend() -> None:
        connection = await asyncpg.connect(platform.connection["postgres_dsn"])
        try:
            assert await connection.fetchval("select count(*) from cost.inbox") >= 0
            await connection.execute("delete from cost.inbox")
        finally:
            await connection.close()

    with pytest.raises(asyncpg.PostgresError, match="read-only"):
        asyncio.run(spend())


def test_the_api_refuses_a_client_without_the_token(platform: StandalonePlatform) -> None:
    url = platform.connection["gateway_url"]
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = httpx.post(f"{url}/v1/jobs", json=SPEC, headers=headers)
        assert answer.status_code == 401
        assert httpx.get(f"{url}/v1/jobs", headers=headers).status_code == 401


def derived(token: str, purpose: bytes) -> str:
    return hmac.digest(token.encode(), purpose, "sha256").hex()


def test_the_token_of_the_api_opens_no_read_port(platform: StandalonePlatform) -> None:
    secrets = json.loads((platform.home / "credentials.json").read_text())
    ports = json.loads((platform.home / "ports.json").read_text())
    token = secrets["api_token"]
    tokens = {
        200: [secrets["read_token"]],
        401: [token, derived(token, b"read ports"), secrets["run_token_key"]],
    }
    for status, given in tokens.items():
        for one in given:
            answer = httpx.get(
                f"http://127.0.0.1:{ports['cost.http']}/budgets/default",
                headers={"Authorization": f"Bearer {one}"},
            )
            assert answer.status_code == status


def test_the_token_of_the_api_signs_no_report(platform: StandalonePlatform) -> None:
    """A heartbeat in the name of a run, as the pods' user, signed with keys that it could give."""
    secrets = json.loads((platform.home / "credentials.json").read_text())
    record = json.loads((GOLDEN / "pod.heartbeat.v1.json").read_text())
    run, fence = record["value"]["run_id"], record["value"]["fence"]
    token = secrets["api_token"]
    keys = (token, derived(token, b"run tokens"), secrets["read_token"])
    forged = [RunTokens(SecretStr(key)).of(run, fence) for key in keys]

    async def send(tokens: Sequence[str | None]) -> None:
        users = secrets["kafka_users"]
        kafka = platform.connection["kafka"] | {"username": "pod", "password": users["pod"]}
        async with AIOKafkaProducer(**login(kafka)) as producer:
            for one in tokens:
                headers = record["headers"] | {"ce_runtoken": one}
                await producer.send_and_wait(
                    "drivetrain.reports",
                    json.dumps(record["value"]).encode(),
                    record["key"].encode(),
                    headers=[(name, text.encode()) for name, text in headers.items()],
                )

    before = num_forged(platform)
    own = RunTokens(SecretStr(secrets["run_token_key"])).of(run, fence)
    asyncio.run(send([own, *forged]))  # in order: once the forged ones are counted, `own` was read
    wait_until(lambda: num_forged(platform) - before == len(forged), "the forged ones are counted")


def num_forged(platform: StandalonePlatform) -> float:
    """Heartbeats that the scheduler has ignored."""
    return counted(platform, 'drivetrain_forged_reports_total{type="pod.heartbeat"}')


def num_warm(platform: StandalonePlatform) -> float:
    """Pods that the template has forked for the scheduler."""
    return counted(platform, 'drivetrain_scheduler_launches_total{way="warm"}')


def counted(platform: StandalonePlatform, series: str) -> float:
    """By the scheduler that runs now."""
    ports = json.loads((platform.home / "ports.json").read_text())
    metrics = httpx.get(f"http://127.0.0.1:{ports['scheduler.ops']}/metrics").text
    found = re.search(rf"^{re.escape(series)} (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0


@contextmanager
def browser_session(platform: StandalonePlatform) -> Iterator[tuple[str, httpx.Client]]:
    """A browser session from the one-time link."""
    with platform.client() as client:
        link = client.post("/v1/login-links").json()["url"]
    url = platform.connection["gateway_url"]
    with httpx.Client(base_url=url, follow_redirects=True) as browser:
        answer = browser.get(link)
        assert answer.status_code == 200, answer.text
        yield link, browser


def test_a_login_link_works_once(platform: StandalonePlatform) -> None:
    with browser_session(platform) as (link, browser):
        assert browser.get("/v1/jobs").status_code == 200
    with httpx.Client(follow_redirects=True) as other:
        other.get(link)
        assert other.get(f"{platform.connection['gateway_url']}/v1/jobs").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"Origin": "https://evil.example"}, id="a foreign origin"),
        pytest.param({"Origin": "null"}, id="a sandboxed frame"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, id="a cross-site fetch"),
    ],
)
def test_a_forged_browser_request_is_refused(
    platform: StandalonePlatform, headers: dict[str, str]
) -> None:
    """The browser sends the cookie, but the request comes from another site."""
    with browser_session(platform) as (_, browser):
        assert browser.post("/v1/jobs", json=SPEC, headers=headers).status_code == 403
        body = json.dumps(SPEC)
        as_form = {**headers, "Content-Type": "text/plain"}
        assert browser.post("/v1/jobs", content=body, headers=as_form).status_code == 403


def test_a_rebound_host_name_is_refused(platform: StandalonePlatform) -> None:
    """A name of the attacker that resolves to 127.0.0.1 reaches the port, not the API."""
    with platform.client() as client:
        for path in ("/v1/jobs", "/", "/openapi.json"):
            answer = client.get(path, headers={"Host": "rebound.example:8480"})
            assert answer.status_code in (403, 421), path
        assert client.post(
            "/v1/jobs", json=SPEC, headers={"Host": "rebound.example"}
        ).status_code in (403, 421)
