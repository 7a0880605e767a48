"""What the metrics service deletes of its own tables, and when.

| table | a row is deleted |
|---|---|
| `batches` | when its topic has deleted the record for certain, plus a margin |
| `runs` | a day after the last heartbeat of a run that has ended or never started |
| `trials` | a day after the end of the job |
| `alerts` | with the batches, once their run is deleted: no batch can raise one again |
| `warnings` | with the reports, once their run is deleted: no report can repeat one |

`chunks`, `series`, `levels`, `run_times`, `log_chunks` and `log_heads` hold what people read, and
are kept.
"""

from datetime import timedelta

from drivetrain_schemas.runs import RunState
from drivetrain_schemas.topics import LOGS, METRICS, REPORTS
from services.runtime.retention import Rule, inbox_keep

KEEP_BATCHES = max(inbox_keep(METRICS), inbox_keep(LOGS))
KEEP_RUNS = timedelta(days=1)
KEEP_TRIALS = timedelta(days=1)
_ENDED = ", ".join(f"'{state}'" for state in RunState if state.is_final)

RULES = (
    Rule(
        "batches",
        KEEP_BATCHES,
        """delete from batches where ctid = any(array(
            select ctid from batches
            where received_at < clock_timestamp() - $1::interval order by received_at limit $2))""",
    ),
    Rule(
        "runs",
        KEEP_RUNS,
        f"""delete from runs where ctid = any(array(
            select ctid from runs
            where created_at < clock_timestamp() - $1::interval
                and (heard_at is null
                    or heard_at < extract(epoch from clock_timestamp() - $1::interval))
                and (state is null or state in ({_ENDED}))
            order by created_at limit $2))""",
    ),
    Rule(
        "trials",
        KEEP_TRIALS,
        """delete from trials where ctid = any(array(
            select ctid from trials
            where finished_at < clock_timestamp() - $1::interval order by finished_at limit $2))""",
    ),
    Rule(
        "alerts",
        KEEP_BATCHES,
        """delete from alerts where ctid = any(array(
            select ctid from alerts
            where raised_at < clock_timestamp() - $1::interval
                and not exists (select from runs where runs.run_id = alerts.run_id)
            order by raised_at limit $2))""",
    ),
    Rule(
        "warnings",
        inbox_keep(REPORTS),
        """delete from warnings where ctid = any(array(
            select ctid from warnings
            where created_at < clock_timestamp() - $1::interval
                and not exists (select from runs where runs.run_id = warnings.run_id)
            order by created_at limit $2))""",
    ),
)
