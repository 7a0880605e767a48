"""What the cost service deletes of its own tables, and when.

| table | a row is deleted |
|---|---|
| `allocations` | once shared out, after as long as an inbox row of its events and a margin |
| `run_facts` | with the run's allocation; without one, after the same time |
| `stored_checkpoints` | as long after its deletion, once its days are charged |
| `low_use` | a year after it began |
| `node_offers` | once ended, after three years |
| `pool_hours`, `job_hours` | after 37 days; the days are kept |

Until then a grant that is delivered again finds its release, and opens nothing. An open allocation
is never deleted. `charges` and the totals are kept.

Ages are compared with `statement_timestamp()`, which is the same for all rows, so that an index
finds what is old: with `clock_timestamp()` each pass would read all rows that stay. With `offset 0`
Postgres looks each row up, and never joins the whole table.
"""

from datetime import timedelta

from drivetrain_schemas.topics import EVENTS_CHECKPOINTS, EVENTS_JOBS
from services.cost.core.storage import StoragePrices
from services.runtime.retention import MARGIN, Rule, inbox_keep

KEPT_HOURS = timedelta(days=37)

_RULES = (
    Rule(
        "allocations",
        inbox_keep(EVENTS_JOBS) + MARGIN,
        """delete from allocations where ctid = any(array(
            select ctid from allocations
            where released_at < statement_timestamp() - $1::interval and is_shared
            order by released_at limit $2))""",
    ),
    Rule(
        "run_facts",
        inbox_keep(EVENTS_JOBS) + MARGIN,
        """delete from run_facts where ctid = any(array(
            select ctid from run_facts
            where noted_at < statement_timestamp() - $1::interval and not exists (
                select from allocations where allocations.run_id = run_facts.run_id offset 0)
            order by noted_at limit $2))""",
    ),
    Rule(
        "low_use",
        timedelta(days=365),
        """delete from low_use where ctid = any(array(
            select ctid from low_use
            where starts_at < statement_timestamp() - $1::interval order by starts_at limit $2))""",
    ),
    Rule(
        "node_offers",
        timedelta(days=3 * 365),
        """delete from node_offers where ctid = any(array(
            select ctid from node_offers
            where ends_at < statement_timestamp() - $1::interval order by ends_at limit $2))""",
    ),
    *(
        Rule(
            table,
            KEPT_HOURS,
            f"""delete from {table} where ctid = any(array(
                select ctid from {table}
                where hour < statement_timestamp() - $1::interval order by hour limit $2))""",
        )
        for table in ("pool_hours", "job_hours")
    ),
)


def rules(prices: StoragePrices) -> tuple[Rule, ...]:
    """With storage prices, checkpoints stay until each day on which they were stored is charged."""
    if not prices.prices:
        return (*_RULES, _stored_checkpoints("true"))
    first = prices.prices[0].valid_from.isoformat()
    is_charged = f"""
        not exists (select from storage_due where storage_due.job_id = stored_checkpoints.job_id)
        and not exists (
            select from generate_series(
                greatest((stored_at at time zone 'UTC')::date, date '{first}'),
                (deleted_at at time zone 'UTC')::date, interval '1 day') as due (day)
            where not exists (
                select from storage_days
                where storage_days.day = due.day::date and storage_days.is_charged))"""
    return (*_RULES, _stored_checkpoints(is_charged))


def _stored_checkpoints(condition: str) -> Rule:
    return Rule(
        "stored_checkpoints",
        inbox_keep(EVENTS_CHECKPOINTS) + MARGIN,
        f"""delete from stored_checkpoints where ctid = any(array(
            select ctid from stored_checkpoints
            where deleted_at < statement_timestamp() - $1::interval and {condition}
            order by deleted_at limit $2))""",
    )
