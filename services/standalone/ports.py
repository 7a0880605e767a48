"""Ports: chosen once, stored in `ports.json`, reused at the next start if still free.

In: the names that need a port, those fixed by the caller, and the file of the last start. Out: one
port per name. Chosen below the range that the system uses for outgoing connections, so that a
stored port is rarely in use by chance.
"""

import json
import random
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from services.standalone.listeners import listener_on

FIRST, LAST = 20_000, 32_000
HIGHEST = 65_535
NUM_TRIES = 200


class PortTaken(RuntimeError):
    """A port that a part must have is in use by another program."""

    def __init__(self, name: str, port: int) -> None:
        holder = listener_on(port)
        by = f" by {holder.command} (pid {holder.pid})" if holder else ""
        option = "--gateway-port N" if name == "gateway.http" else f"--port {name}=N"
        super().__init__(
            f"Port {port} on 127.0.0.1, for {name}, is in use{by}. "
            f"End that program, or choose another port with {option}."
        )


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Without this, lingering connections of the last start would make it look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(taken: Iterable[int] = (), is_free: Callable[[int], bool] = is_free) -> int:
    used = set(taken)
    for _ in range(NUM_TRIES):
        port = random.randint(FIRST, LAST)
        if port not in used and is_free(port):
            return port
    raise RuntimeError(f"No free port between {FIRST} and {LAST} on 127.0.0.1")


def choose_ports(
    file: Path,
    names: Iterable[str],
    fixed: Mapping[str, int],
    preferred: Mapping[str, int] | None = None,
    is_free: Callable[[int], bool] = is_free,
) -> dict[str, int]:
    """Fixed ports first, then last time's, then preferred ones, then any that is free."""
    wanted = tuple(names)
    kept = _read(file)
    chosen: dict[str, int] = {}
    for name in wanted:
        if name in fixed:
            if not is_free(fixed[name]):
                raise PortTaken(name, fixed[name])
            chosen[name] = fixed[name]
    for name in wanted:
        for port in (kept.get(name), (preferred or {}).get(name)):
            if name not in chosen and port and port not in chosen.values() and is_free(port):
                chosen[name] = port
    for name in wanted:
        if name not in chosen:
            chosen[name] = free_port((*chosen.values(), *kept.values()), is_free)
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(json.dumps(chosen, indent=2, sort_keys=True) + "\n")
    partial.replace(file)
    return chosen


def _read(file: Path) -> dict[str, int]:
    """Those of the last start; one that is no port counts as unknown."""
    try:
        content = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    # A bool is an int, but no port.
    return {
        name: port for name, port in content.items() if type(port) is int and 1 <= port <= HIGHEST
    }
