"""Brokers of a cluster of three fail while a job trains and fifty jobs are submitted."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from services.standalone.ports import free_port
from tests.faults.broker_checks import (
    BROKERS,
    active_controller,
    check_everything,
    submissions,
)
from tests.running_cluster import RunningCluster, running_kafka_cluster
from tests.standalone_platform import StandalonePlatform
from tests.tcp_proxy import Proxy
from tests.training_job import TrainingJob
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(1200)
SLOW = {"hyperparameters": {"pause_seconds": 0.3}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandalonePlatform]:
    platform = StandalonePlatform(tmp_path_factory.mktemp("cluster") / "home", brokers=3)
    platform.start()
    try:
        yield platform
    finally:
        platform.stop()


def strike(platform: StandalonePlatform, *brokers: str, number: int = signal.SIGKILL) -> None:
    """A signal to these brokers at once, then wait until each is ready again."""
    old = {name: platform.pid(name) for name in brokers}
    for pid in old.values():
        os.kill(pid, number)
    for name, pid in old.items():
        platform.wait_ready(name, other_than=pid)


def test_each_broker_is_killed_in_turn(cluster: StandalonePlatform) -> None:
    job = TrainingJob.submit(cluster, "each-in-turn", **SLOW)
    job.wait_for_strike()
    with submissions(cluster) as others:
        for name in BROKERS:
            strike(cluster, name)
    check_everything(cluster, job, others)


def test_the_active_controller_is_killed(cluster: StandalonePlatform) -> None:
    job = TrainingJob.submit(cluster, "controller", **SLOW)
    job.wait_for_strike()
    with submissions(cluster) as others:
        for _ in range(2):
            strike(cluster, active_controller(cluster))
    check_everything(cluster, job, others)


def test_two_brokers_are_killed_at_once(cluster: StandalonePlatform) -> None:
    """Nothing can be written for a while: everybody waits, and training continues."""
    job = TrainingJob.submit(cluster, "two-at-once", **SLOW)
    job.wait_for_strike()
    ranks, step = job.ranks(), job.step()
    with submissions(cluster) as others:
        strike(cluster, *BROKERS[:2])
        strike(cluster, *BROKERS[1:])
    job.wait_step(step + 5)
    assert job.ranks() == ranks
    check_everything(cluster, job, others)


def test_a_rolling_restart(cluster: StandalonePlatform) -> None:
    job = TrainingJob.submit(cluster, "rolling", **SLOW)
    job.wait_for_strike()
    with submissions(cluster) as others:
        for name in BROKERS:
            strike(cluster, name, number=signal.SIGTERM)
    check_everything(cluster, job, others)


@pytest.fixture
def cluster_with_a_small_disk(tmp_path: Path) -> Iterator[StandalonePlatform]:
    """The third broker's directory is a file system of its own, of 200 MB."""
    platform = StandalonePlatform(tmp_path / "home", brokers=3)
    platform.start()
    platform.stop()
    directory = platform.home / "kafka" / "broker-3"
    shutil.copytree(directory, tmp_path / "kept")
    mount = ["mount", "-t", "tmpfs", "-o", "size=200m,mode=700", "none", str(directory)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted: this needs root and the right to mount")
    try:
        shutil.copytree(tmp_path / "kept", directory, dirs_exist_ok=True)
        platform.start()
        try:
            yield platform
        finally:
            platform.stop()
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_the_disk_of_one_broker_is_full(cluster_with_a_small_disk: StandalonePlatform) -> None:
    platform = cluster_with_a_small_disk
    job = TrainingJob.submit(platform, "full-disk", **SLOW)
    job.wait_for_strike()
    filler = platform.home / "kafka" / "broker-3" / "filler"
    with submissions(platform) as others:
        with filler.open("wb") as file, contextlib.suppress(OSError):
            while file.write(b"x" * 65536):
                pass
        wait_until(
            lambda: platform.parts()["kafka-3"]["restarts"] >= 2,
            "the broker has ended and cannot start",
            seconds=180,
        )
    filler.unlink()
    platform.wait_ready("kafka-3", other_than=-1)
    check_everything(platform, job, others)


@contextlib.contextmanager
def cluster_of_its_own(directory: Path, advertised: list[int]) -> Iterator[RunningCluster]:
    """Brokers beside the platform, in a thread of their own."""
    started: Future[RunningCluster] = Future()
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def run() -> None:
        async with running_kafka_cluster(directory, advertised=advertised) as running:
            started.set_result(running)
            await stopping.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        yield started.result(timeout=120)
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()
        loop.close()


@pytest.fixture
def proxies(tmp_path: Path) -> Iterator[tuple[StandalonePlatform, list[Proxy]]]:
    """A platform that reaches each of three brokers through a proxy, as they reach each other."""
    ports: list[int] = []
    while len(ports) < len(BROKERS):
        ports.append(free_port(ports))
    with cluster_of_its_own(tmp_path / "kafka", ports) as running, contextlib.ExitStack() as stack:
        between = []
        for port, child in zip(ports, running.children, strict=True):
            assert child.spec.port is not None
            proxy = Proxy(port, child.spec.port)
            proxy.start()
            stack.callback(proxy.stop)
            between.append(proxy)
        variables = {
            "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": running.bootstrap_servers,
            "DRIVETRAIN_KAFKA_SASL_USERNAME": running.username,
            "DRIVETRAIN_KAFKA_SASL_PASSWORD": running.password,
            "DRIVETRAIN_TOPIC_REPLICATION_FACTOR": "3",
        }
        platform = StandalonePlatform(tmp_path / "home", outside=variables)
        platform.start()
        try:
            yield platform, between
        finally:
            platform.stop()


def test_the_network_to_brokers_is_cut(
    proxies: tuple[StandalonePlatform, list[Proxy]],
) -> None:
    """To one for longer than a member's session, then to all: connections stay and are silent."""
    platform, between = proxies
    job = TrainingJob.submit(platform, "cut", **SLOW)
    job.wait_for_strike()
    with submissions(platform) as others:
        for cut, seconds in ((between[:1], 40), (between, 20)):
            for proxy in cut:
                proxy.cut()
            time.sleep(seconds)  # the failure itself lasts this long
            for proxy in cut:
                proxy.heal()
    check_everything(platform, job, others)
