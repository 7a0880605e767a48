"""The life of jobs, from the submission to the end; one job has a page on the platform itself."""

from deploy.dashboards.panels import GATEWAY, Link, Variable, board, line, number, quantile, rate

_JOB = Variable("job", "Job (id, for the links)")
_PAGE = Link("This job's page", "/jobs/${job}")
_JOBS = Link("Jobs", "/")
_RUNS = "drivetrain_scheduler_runs_total"
_FAILED = 'outcome=~"failed|lost"'
_RECOVERY = "drivetrain_scheduler_recovery_seconds"

JOB = board(
    "job",
    "How jobs are submitted, started, restarted and ended. No metric names a job, so jobs cost "
    "nothing here; enter an id to go to its page.",
    [GATEWAY, _JOB],
    {
        "Submission": [
            line(
                "Commands",
                "Sent by the gateway, by answer. unknown: not decided within 2 s.",
                "ops",
                (rate("drivetrain_gateway_commands_total", "type, answer"), "{{type}} {{answer}}"),
                link=_JOBS,
            ),
            line(
                "Time to the answer",
                "Of POST /v1/jobs.",
                "s",
                (
                    quantile(0.5, "drivetrain_gateway_request_seconds", "", 'route="/v1/jobs"'),
                    "50 %",
                ),
                (
                    quantile(0.99, "drivetrain_gateway_request_seconds", "", 'route="/v1/jobs"'),
                    "99 %",
                ),
            ),
            line(
                "Requests",
                "As the scheduler answered them, by whatever way they came.",
                "ops",
                (rate("drivetrain_scheduler_requests_total", "answer"), "{{answer}}"),
                link=_JOBS,
            ),
        ],
        "Start and restart": [
            line(
                "Jobs that wait",
                "By reason.",
                "short",
                ("sum by (reason) (drivetrain_scheduler_waiting_jobs)", "{{reason}}"),
                link=_JOBS,
            ),
            line(
                "Recovery (90 %), by phase",
                "After the end of a run: wait until the next grant, start "
                "until all pods are alive, restart is both.",
                "s",
                (quantile(0.9, _RECOVERY, "phase"), "{{phase}}"),
                link=_PAGE,
            ),
            line(
                "Restarts",
                "Runs that followed another run of their job.",
                "ops",
                (rate(f"{_RECOVERY}_count", "", 'phase="restart"'), "restarts"),
                link=_PAGE,
            ),
        ],
        "Training": [
            line(
                "Runs",
                "That hold devices now.",
                "short",
                ("max(drivetrain_scheduler_live_runs)", "runs"),
                link=_JOBS,
            ),
            line(
                "Samples",
                "Stored per second, and left out: of too many series, beyond a quota.",
                "ops",
                (rate("drivetrain_metrics_samples_total"), "stored"),
                (
                    rate("drivetrain_metrics_samples_left_out_total", "reason"),
                    "left out: {{reason}}",
                ),
                link=_PAGE,
            ),
            line(
                "Pictures, tables and files",
                "Stored per second, left out as too many or too fast, and deleted as too old.",
                "ops",
                (rate("drivetrain_metrics_media_total"), "stored"),
                (rate("drivetrain_metrics_media_left_out_total"), "left out"),
                (rate("drivetrain_metrics_media_deleted_total"), "deleted"),
                (rate("drivetrain_metrics_media_failures_total"), "passes that failed"),
                link=_PAGE,
            ),
            line(
                "Calls of webhooks",
                "By outcome; those that failed are made again, those of silenced alerts are held.",
                "ops",
                (rate("drivetrain_metrics_deliveries_total", "outcome"), "{{outcome}}"),
                link=_PAGE,
            ),
            line(
                "Lineage that waits",
                "Age of the oldest event that an endpoint has not taken.",
                "s",
                ("max by (endpoint) (drivetrain_metrics_lineage_age_seconds)", "{{endpoint}}"),
                link=_PAGE,
            ),
            line(
                "Commands about silences",
                "By answer: set, ended, or why it was refused.",
                "ops",
                (rate("drivetrain_metrics_silence_requests_total", "answer"), "{{answer}}"),
                link=_PAGE,
            ),
            line(
                "Live windows",
                "Changes stored per second, and ends of the process that folds them.",
                "ops",
                (rate("drivetrain_metrics_windows_stored_total"), "stored"),
                (rate("drivetrain_metrics_windows_ends_total"), "ends"),
                link=_PAGE,
            ),
            line(
                "Old samples",
                "Moved to the object store per second, and deleted there because of their age.",
                "ops",
                (rate("drivetrain_metrics_cold_samples_total"), "moved"),
                (rate("drivetrain_metrics_cold_samples_deleted_total"), "deleted"),
                link=_PAGE,
            ),
            line(
                "Old samples that wait",
                "For how long the oldest should have been in the object store.",
                "s",
                ("max(drivetrain_metrics_cold_overdue_seconds)", "overdue"),
                link=_PAGE,
            ),
            line(
                "Lines that wait",
                "For how long the lines of an ended job should have been in the object store.",
                "s",
                ("max(drivetrain_metrics_log_overdue_seconds)", "overdue"),
                link=_PAGE,
            ),
            line(
                "Lines in the object store",
                "Bytes moved there per second, packed; lines deleted there, by reason.",
                "short",
                (rate("drivetrain_metrics_log_moved_bytes_total"), "bytes moved"),
                (rate("drivetrain_metrics_log_lines_deleted_total", "reason"), "{{reason}}"),
                (rate("drivetrain_metrics_log_failures_total"), "passes that failed"),
                link=_PAGE,
            ),
            line(
                "Log lines",
                "Stored per second.",
                "ops",
                (rate("drivetrain_metrics_log_lines_total"), "lines"),
                link=_PAGE,
            ),
            line(
                "Output left out",
                "Bytes per second beyond a pod's limit.",
                "Bps",
                (rate("drivetrain_metrics_log_dropped_bytes_total"), "left out"),
                link=_PAGE,
            ),
            line(
                "Alerts about runs",
                "Not finite, stalled, samples dropped.",
                "ops",
                (rate("drivetrain_metrics_alerts_total", "alert"), "{{alert}}"),
                link=_PAGE,
            ),
        ],
        "End": [
            line(
                "Jobs that ended",
                "By final state.",
                "ops",
                (rate("drivetrain_scheduler_jobs_total", "state"), "{{state}}"),
                link=_PAGE,
            ),
            line(
                "Runs that ended",
                "By outcome; a job may have several runs.",
                "ops",
                (rate("drivetrain_scheduler_runs_total", "outcome"), "{{outcome}}"),
                link=_PAGE,
            ),
            number(
                "Runs that failed",
                "Share of the runs that ended within an hour.",
                "percentunit",
                f"(sum(increase({_RUNS}{{{_FAILED}}}[1h])) or vector(0))"
                f" / sum(increase({_RUNS}[1h]))",
                link=_JOBS,
            ),
        ],
    },
)
