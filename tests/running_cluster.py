"""Three real brokers, each a supervised process, all ready when the block is entered."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from services.standalone import jars, kafka, kafka_cluster
from services.standalone.child import Child
from services.standalone.embedded import all_supervised
from services.standalone.ports import free_port


@dataclass(frozen=True, slots=True)
class RunningCluster:
    bootstrap_servers: str
    username: str
    password: str
    children: tuple[Child, ...]
    """One broker each, in the order of their node ids."""


@asynccontextmanager
async def running_kafka_cluster(
    directory: Path,
    advertised: Sequence[int] = (),
) -> AsyncIterator[RunningCluster]:
    """`advertised`: the port at which each is reached instead of its own, through a proxy."""
    ports: list[int] = []
    while len(ports) < 2 * kafka_cluster.CLUSTER_SIZE:
        ports.append(free_port(ports))
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    brokers = kafka_cluster.cluster(directory, pairs, "drivetrain", secrets.token_urlsafe(24), {})
    if advertised:
        pairs_of = zip(brokers.all, advertised, strict=True)
        brokers = kafka_cluster.Brokers(
            tuple(replace(broker, advertised_port=port) for broker, port in pairs_of)
        )
    locked = jars.locked_jars("kafka")
    paths = await asyncio.to_thread(jars.fetch_jars, locked, jars.default_cache())
    specs = [kafka.spec(it, paths, directory / f"{it.name}.log") for it in brokers.all]
    async with all_supervised(specs) as children:
        connection = brokers.connection
        yield RunningCluster(
            connection.bootstrap_servers, connection.username, connection.password, children
        )
