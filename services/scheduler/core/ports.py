"""Which ports a run's gang may use for a rendezvous of its own (`MASTER_PORT`).

Below the range from which Linux gives ports to outgoing connections (32768 and up). The database
reserves one for each live run; runs use them in turn, so a port that was just released is not
reused immediately.
"""

FIRST_PORT = 20_000
NUM_PORTS = 10_000


def first_candidate(fence: int) -> int:
    """Where the search for a free port begins: each run has the next fence."""
    return FIRST_PORT + fence % NUM_PORTS
