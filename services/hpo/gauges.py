"""The gauges of searches: what has not ended, from the rows of these studies alone."""

from dataclasses import dataclass

import asyncpg

from services.hpo import instruments


@dataclass(frozen=True, slots=True)
class Now:
    """Of all studies in this state that have not ended: their open trials, and their logs."""

    state: str
    num_studies: int
    num_paused: int
    num_running: int
    num_events: int
    longest_log: int


async def not_ended(connection: asyncpg.Connection) -> list[Now]:
    rows = await connection.fetch(
        """
        select state, count(*) as num_studies, sum(num_paused) as num_paused,
               sum(num_proposed - num_completed - num_failed - num_stopped - num_paused)
                   as num_running,
               sum(revision)::bigint as num_events, max(revision) as longest_log
        from studies where finished_at is null group by state
        """
    )
    return [Now(**row) for row in rows]


def show(now: list[Now]) -> None:
    """Every gauge, also those that are 0 now."""
    by_state = {one.state: one.num_studies for one in now}
    for state in ("running", "paused", "ending"):
        instruments.STUDIES.labels(state).set(by_state.get(state, 0))
    instruments.TRIALS.labels("running").set(sum(one.num_running for one in now))
    instruments.TRIALS.labels("paused").set(sum(one.num_paused for one in now))
    instruments.LOG_EVENTS.labels("all").set(sum(one.num_events for one in now))
    longest = max((one.longest_log for one in now), default=0)
    instruments.LOG_EVENTS.labels("longest").set(longest)
