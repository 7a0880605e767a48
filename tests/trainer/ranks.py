"""Starts the ranks of a script as torchrun does, and waits for them."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True, slots=True)
class Ended:
    exit_codes: tuple[int, ...]
    output: str


def train(script: str, directory: Path, world_size: int = 1, **variables: object) -> Ended:
    """Run all ranks of a local run in `directory` to their end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ranks = []
    for rank in range(world_size):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            **{name: str(value) for name, value in variables.items()},
        }
        ranks.append(
            subprocess.Popen(
                [sys.executable, str(SCRIPTS / script)],
                cwd=directory,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    return Ended(tuple(rank.returncode for rank in ranks), "".join(outputs))
