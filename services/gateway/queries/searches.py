"""What the page of a study draws: rungs, the way of the best, recent trials, and lineage.

Each reads a bounded number of rows, whatever the study has.
"""

from services.gateway.queries.rows import Connection, Row, as_rows

RECENT_TRIALS = 1000
MAX_BESTS = 500
MAX_RUNGS = 200
MAX_CHILDREN = 300
MAX_LIVE = 40


async def rung_counts(connection: Connection, study_id: str) -> list[Row]:
    """What was decided at each rung, ascending."""
    rows = await connection.fetch(
        "select * from rung_counts where study_id = $1 order by step limit $2", study_id, MAX_RUNGS
    )
    return as_rows(rows)


async def bests(connection: Connection, study_id: str) -> list[Row]:
    """The trials that were the best when they ended, by number; the newest of them."""
    rows = await connection.fetch(
        """
        select * from (
            select number, value from trials where study_id = $1 and was_best
            order by number desc limit $2
        ) as newest order by number
        """,
        study_id,
        MAX_BESTS,
    )
    return as_rows(rows)


async def recent(connection: Connection, study_id: str) -> list[Row]:
    """The newest trials with their costs, by number."""
    rows = await connection.fetch(
        """
        select trials.*, coalesce(job_spend.charged_micro_usd, 0) as charged_micro_usd
        from (
            select number, job_id, state, hyperparameters, value, objectives, is_safe, ranked_value,
                parent, rung, measured
            from trials where study_id = $1 order by number desc limit $2
        ) as trials left join job_spend using (job_id) order by number
        """,
        study_id,
        RECENT_TRIALS,
    )
    return as_rows(rows)


async def live_rungs(connection: Connection, study_id: str) -> list[Row]:
    """What was measured of the trials that go on, by trial and step."""
    rows = await connection.fetch(
        """
        select number, trial_rungs.step, trial_rungs.value
        from (
            select study_id, number from trials
            where study_id = $1 and state in ('proposed', 'stopping', 'paused')
            order by number desc limit $2
        ) as live join trial_rungs using (study_id, number)
        where trial_rungs.value is not null order by number, step limit $3
        """,
        study_id,
        MAX_LIVE,
        MAX_LIVE * 64,
    )
    return as_rows(rows)


async def children(connection: Connection, study_id: str) -> list[Row]:
    """Trials that began from the checkpoint of another one, by number; the newest of them."""
    rows = await connection.fetch(
        """
        select number, parent, rung, coalesce(value, measured) as value from (
            select * from trials where study_id = $1 and parent is not null
            order by number desc limit $2
        ) as newest order by number
        """,
        study_id,
        MAX_CHILDREN,
    )
    return as_rows(rows)
