"""What the metrics service deletes of its own tables, and when.

| table | a row is deleted |
|---|---|
| `batches` | when its topic has deleted the record for certain, plus a margin |
| `runs` | a day after the last heartbeat of a run that has ended or never started |
| `trials` | a day after the end of the job |
| `media_heads` | when no record can name the job's media any more, if they are deleted or none |
| `deliveries` | after eight days, if its webhook is no longer configured |
| `lineage_jobs`, `lineage_runs` | a day after the end of the job, of the run |
| `lineage_checkpoints` | after a day, once their run is deleted |
| `silences` | a day after their end |
| `watched_jobs` | a day after the end of the job |
| `held_deliveries` | two days after their silence, if their webhook is no longer configured |
| `windows` | after a day: they are for what runs now |
| `run_health` | a day after its first window, once its run is deleted |
| `alerts` | with the batches, once their run is deleted: no batch can raise one again |
| `warnings`, `descriptions` | with the reports, once their run is deleted: none repeats one |

`chunks`, `series`, `levels`, `run_times`, `log_chunks`, `log_heads` and `media` hold what people
read, and are kept. `cold/tiering.py` moves and deletes samples, `media_retention.py` media;
`series` and `levels` go only where the setting `keep_charts_days` is given. Nothing here depends on
how much there is, so that who writes much deletes nothing of others.
"""

from datetime import timedelta

from drivetrain_schemas.runs import RunState
from drivetrain_schemas.topics import LOGS, METRICS, REPORTS
from services.metrics.settings import MetricsSettings
from services.runtime.retention import Rule, inbox_keep

KEEP_BATCHES = max(inbox_keep(METRICS), inbox_keep(LOGS))
KEEP_RUNS = timedelta(days=1)
KEEP_TRIALS = timedelta(days=1)
KEEP_WINDOWS = timedelta(days=1)
KEEP_SILENCES = timedelta(days=1)
# Longer than anything is tried again.
KEEP_DELIVERIES = timedelta(days=8)
KEEP_HELD = timedelta(days=2)
KEEP_LINEAGE = timedelta(days=1)
_ENDED = ", ".join(f"'{state}'" for state in RunState if state.is_final)


# Series whose samples were all moved and then deleted, the last ones of those that old.
_WITHOUT_SAMPLES = """
    series.cold_at < statement_timestamp() - $1::interval
    and not exists (
        select from chunks where chunks.job_id = series.job_id and chunks.rank = series.rank
            and chunks.series = series.name and chunks.run_id = series.run_id)
    and not exists (
        select from cold_chunks where cold_chunks.job_id = series.job_id
            and cold_chunks.rank = series.rank and cold_chunks.series = series.name
            and cold_chunks.run_id = series.run_id)
"""


def rules(settings: MetricsSettings) -> tuple[Rule, ...]:
    days = settings.keep_charts_days
    return RULES if days is None else (*RULES, *chart_rules(timedelta(days=days)))


def chart_rules(keep: timedelta) -> tuple[Rule, Rule]:
    """For series of which only a chart is left: first its levels, then the series."""
    return (
        Rule(
            "levels",
            keep,
            f"""delete from levels where ctid = any(array(
                select levels.ctid from series join levels on levels.run_id = series.run_id
                    and levels.rank = series.rank and levels.series = series.name
                where {_WITHOUT_SAMPLES} limit $2))""",
        ),
        Rule(
            "series",
            keep,
            f"""delete from series where ctid = any(array(
                select ctid from series
                where {_WITHOUT_SAMPLES} and not exists (
                    select from levels where levels.run_id = series.run_id
                        and levels.rank = series.rank and levels.series = series.name)
                order by cold_at limit $2))""",
        ),
    )


RULES = (
    Rule(
        "batches",
        KEEP_BATCHES,
        """delete from batches where ctid = any(array(
            select ctid from batches
            where received_at < statement_timestamp() - $1::interval
            order by received_at limit $2))""",
    ),
    Rule(
        "runs",
        KEEP_RUNS,
        f"""delete from runs where ctid = any(array(
            select ctid from runs
            where created_at < statement_timestamp() - $1::interval
                and (heard_at is null
                    or heard_at < extract(epoch from statement_timestamp() - $1::interval))
                and (state is null or state in ({_ENDED}))
            order by created_at limit $2))""",
    ),
    Rule(
        "trials",
        KEEP_TRIALS,
        """delete from trials where ctid = any(array(
            select ctid from trials
            where finished_at < statement_timestamp() - $1::interval
            order by finished_at limit $2))""",
    ),
    Rule(
        "media_heads",
        KEEP_BATCHES,
        """delete from media_heads where ctid = any(array(
            select ctid from media_heads
            where coalesce(deleted_at, ended_at) < statement_timestamp() - $1::interval
                and (num_items = 0 or deleted_at is not null)
            order by coalesce(deleted_at, ended_at) limit $2))""",
    ),
    Rule(
        "windows",
        KEEP_WINDOWS,
        """delete from windows where ctid = any(array(
            select ctid from windows
            where received_at < statement_timestamp() - $1::interval
            order by received_at limit $2))""",
    ),
    Rule(
        "run_health",
        KEEP_WINDOWS,
        """delete from run_health where ctid = any(array(
            select ctid from run_health
            where created_at < statement_timestamp() - $1::interval
                and not exists (select from runs where runs.run_id = run_health.run_id)
            order by created_at limit $2))""",
    ),
    Rule(
        "deliveries",
        KEEP_DELIVERIES,
        """delete from deliveries where ctid = any(array(
            select ctid from deliveries
            where created_at < statement_timestamp() - $1::interval
            order by created_at limit $2))""",
    ),
    Rule(
        "silences",
        KEEP_SILENCES,
        """delete from silences where ctid = any(array(
            select ctid from silences
            where ends_at < statement_timestamp() - $1::interval order by ends_at limit $2))""",
    ),
    Rule(
        "watched_jobs",
        KEEP_SILENCES,
        """delete from watched_jobs where ctid = any(array(
            select ctid from watched_jobs
            where finished_at < statement_timestamp() - $1::interval
            order by finished_at limit $2))""",
    ),
    Rule(
        "held_deliveries",
        KEEP_HELD,
        """delete from held_deliveries where ctid = any(array(
            select ctid from held_deliveries
            where held_until < statement_timestamp() - $1::interval
            order by held_until limit $2))""",
    ),
    Rule(
        "lineage_jobs",
        KEEP_LINEAGE,
        """delete from lineage_jobs where ctid = any(array(
            select ctid from lineage_jobs
            where finished_at < statement_timestamp() - $1::interval
            order by finished_at limit $2))""",
    ),
    Rule(
        "lineage_runs",
        KEEP_LINEAGE,
        """delete from lineage_runs where ctid = any(array(
            select ctid from lineage_runs
            where ended_at < statement_timestamp() - $1::interval order by ended_at limit $2))""",
    ),
    Rule(
        "lineage_checkpoints",
        KEEP_LINEAGE,
        """delete from lineage_checkpoints where ctid = any(array(
            select ctid from lineage_checkpoints
            where created_at < statement_timestamp() - $1::interval
                and not exists (
                    select from lineage_runs
                    where lineage_runs.run_id = lineage_checkpoints.run_id)
            order by created_at limit $2))""",
    ),
    Rule(
        "alerts",
        KEEP_BATCHES,
        """delete from alerts where ctid = any(array(
            select ctid from alerts
            where raised_at < statement_timestamp() - $1::interval
                and not exists (select from runs where runs.run_id = alerts.run_id)
            order by raised_at limit $2))""",
    ),
    Rule(
        "warnings",
        inbox_keep(REPORTS),
        """delete from warnings where ctid = any(array(
            select ctid from warnings
            where created_at < statement_timestamp() - $1::interval
                and not exists (select from runs where runs.run_id = warnings.run_id)
            order by created_at limit $2))""",
    ),
    Rule(
        "descriptions",
        inbox_keep(REPORTS),
        """delete from descriptions where ctid = any(array(
            select ctid from descriptions
            where created_at < statement_timestamp() - $1::interval
                and not exists (select from runs where runs.run_id = descriptions.run_id)
            order by created_at limit $2))""",
    ),
)
