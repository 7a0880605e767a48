"""What the cost service deletes of its own tables, and when.

| table | a row is deleted |
|---|---|
| `allocations` | once released, after as long as an inbox row of its events and a margin |

Until then a grant that is delivered again finds its release, and opens nothing. An open allocation
is never deleted. `charges` and the totals are kept.
"""

from drivetrain_schemas.topics import EVENTS_JOBS
from services.runtime.retention import MARGIN, Rule, inbox_keep

RULES = (
    Rule(
        "allocations",
        inbox_keep(EVENTS_JOBS) + MARGIN,
        """delete from allocations where ctid = any(array(
            select ctid from allocations
            where released_at < clock_timestamp() - $1::interval order by released_at limit $2))""",
    ),
)
