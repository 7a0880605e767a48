"""`python -m tests.kubernetes.kubelet CONFIG_FILE`: the kubelet of the nodes named there."""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes.kubelet.api import Api
from tests.kubernetes.kubelet.names import address_of, names_in
from tests.kubernetes.kubelet.node_agent import NodeAgent
from tests.kubernetes.kubelet.pod_worker import Node

Object = Mapping[str, Any]


async def run(config: Mapping[str, Any]) -> None:
    access = [Path(config[name]) for name in ("ca", "certificate", "key")]
    api = Api(config["server"], *access)
    pods: dict[str, Object] = {}
    services: dict[str, Object] = {}

    def names(namespace: str) -> list[str]:
        return names_in(namespace, pods.values(), services.values())

    agents = [
        NodeAgent(
            Node(
                api=api,
                name=name,
                address=address_of(name),
                directory=Path(config["directory"]) / name,
                session_fd=config["session_fd"],
                image_environment=config["image_environment"],
                image_paths=tuple(config["image_paths"]),
                names_in=names,
            ),
            config["labels"],
            config["resources"],
        )
        for name in config["nodes"]
    ]

    def on_pods(found: Mapping[str, Object]) -> None:
        nonlocal pods
        pods = dict(found)
        for agent in agents:
            agent.on_pods(pods)

    def on_services(found: Mapping[str, Object]) -> None:
        nonlocal services
        services = dict(found)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(api.watch("/api/v1/services", on_services))
        tasks.create_task(api.watch("/api/v1/pods", on_pods))
        for agent in agents:
            tasks.create_task(agent.be_a_node())


if __name__ == "__main__":
    asyncio.run(run(json.loads(Path(sys.argv[1]).read_text())))
