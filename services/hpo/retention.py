"""What the search service deletes of its own tables, and when.

| table | a row is deleted |
|---|---|
| `search_events` | 90 days after its study has ended: until then the search can be replayed |

`studies`, `trials`, `spending` and `job_ends` hold what people and later searches read, and are
kept, as are `device_prices`, one per kind of device; a row of `trial_allocations` goes when its
devices are released.
"""

from datetime import timedelta

from services.runtime.retention import Rule

KEEP_EVENTS = timedelta(days=90)

RULES = (
    Rule(
        "search_events",
        KEEP_EVENTS,
        """delete from search_events where ctid = any(array(
            select e.ctid from search_events as e join studies as s using (study_id)
            where e.at < statement_timestamp() - $1::interval
                and s.finished_at < statement_timestamp() - $1::interval
            order by e.at limit $2))""",
    ),
)
