"""Which ports a run's gang may use for a rendezvous of its own (`MASTER_PORT`).

Below the range from which Linux gives ports to outgoing connections (32768 and up). The database
reserves one for each live run; runs use them in turn, so a port that was just released is not
reused immediately. Ports at which nothing listened a moment ago are preferred.
"""

from collections.abc import Collection, Iterator
from itertools import islice

FIRST_PORT = 20_000
NUM_PORTS = 10_000
NUM_SPARE = 8


def next_port(port: int) -> int:
    return FIRST_PORT + (port + 1 - FIRST_PORT) % NUM_PORTS


def first_port(num_runs: int) -> int:
    """The port that is next after so many runs."""
    return FIRST_PORT + num_runs % NUM_PORTS


def candidates(start: int, held: Collection[int], number: int) -> list[int]:
    """The ports to look at before `number` runs get one: some more than that, from `start` on."""
    return list(islice(_in_turn(start, held), number + NUM_SPARE))


def choose(start: int, held: Collection[int], silent: Collection[int], number: int) -> list[int]:
    """Ports that no live run holds, as many as there are up to `number`."""
    found = candidates(start, held, number)
    return sorted(found, key=lambda port: port not in silent)[:number]


def _in_turn(start: int, held: Collection[int]) -> Iterator[int]:
    port = start
    for _ in range(NUM_PORTS):
        if port not in held:
            yield port
        port = next_port(port)
