"""Search: studies and trials, and the devices they hold."""

from deploy.dashboards.panels import GATEWAY, Link, board, line, quantile, rate

_STUDIES = Link("Studies", "/studies")
_HPO = 'service="hpo"'

SEARCH = board(
    "search",
    "How studies proceed: trials proposed, running and ended.",
    [GATEWAY],
    {
        "Studies": [
            line(
                "Studies that have not ended",
                "By state.",
                "short",
                ("max by (state) (drivetrain_hpo_studies)", "{{state}}"),
                link=_STUDIES,
            ),
            line(
                "Requests for studies",
                "By answer.",
                "ops",
                (rate("drivetrain_hpo_study_requests_total", "answer"), "{{answer}}"),
                link=_STUDIES,
            ),
            line(
                "Studies that ended",
                "Completed, ended early by an error, cancelled.",
                "ops",
                (rate("drivetrain_hpo_studies_completed_total"), "completed"),
                (rate("drivetrain_hpo_studies_failed_total"), "failed"),
                (rate("drivetrain_hpo_studies_cancelled_total"), "cancelled"),
                link=_STUDIES,
            ),
        ],
        "Trials": [
            line(
                "Trials that have not ended",
                "Running or waiting for devices, and paused with a checkpoint.",
                "short",
                ("max by (state) (drivetrain_hpo_trials)", "{{state}}"),
                link=_STUDIES,
            ),
            line(
                "Trials proposed",
                "Per second.",
                "ops",
                (rate("drivetrain_hpo_trials_proposed_total"), "proposed"),
                link=_STUDIES,
            ),
            line(
                "Trials that ended",
                "By state.",
                "ops",
                (rate("drivetrain_hpo_trials_ended_total", "state"), "{{state}}"),
                link=_STUDIES,
            ),
            line(
                "Devices that trials hold",
                "By pool.",
                "short",
                ('sum by (pool) (drivetrain_scheduler_devices{holder="trial"})', "{{pool}}"),
                link=_STUDIES,
            ),
        ],
        "Pruning": [
            line(
                "Trials judged at a rung",
                "By pruner and verdict.",
                "ops",
                (
                    rate("drivetrain_hpo_rungs_measured_total", "pruner, verdict"),
                    "{{pruner}} {{verdict}}",
                ),
                link=_STUDIES,
            ),
            line(
                "Trials ended early",
                "By the pruner, and why: its decision, the end of the study, or somebody else.",
                "ops",
                (rate("drivetrain_hpo_trials_stopped_total", "pruner, why"), "{{pruner}} {{why}}"),
                link=_STUDIES,
            ),
            line(
                "Device-seconds saved",
                "What trials that ended early would have needed to their end, in the last hour; "
                "counted when their study completes.",
                "s",
                ("sum(increase(drivetrain_hpo_saved_device_seconds_total[1h]))", "saved"),
                link=_STUDIES,
            ),
            line(
                "Paused trials that went on",
                "Promoted to their next rung.",
                "ops",
                (rate("drivetrain_hpo_trials_promoted_total"), "promoted"),
                link=_STUDIES,
            ),
        ],
        "Service": [
            line(
                "Stored events of searches",
                "Of studies that have not ended: all of them, and the longest log.",
                "short",
                ("max by (what) (drivetrain_hpo_log_events)", "{{what}}"),
            ),
            line(
                "Time of a decision (95 %)",
                "Proposals included, by sampler.",
                "s",
                (quantile(0.95, "drivetrain_hpo_decision_seconds", "sampler"), "{{sampler}}"),
            ),
            line(
                "Commands about studies",
                "Pause, resume, stop, change and others, by answer.",
                "ops",
                (
                    rate("drivetrain_hpo_study_commands_total", "command, answer"),
                    "{{command}} {{answer}}",
                ),
                link=_STUDIES,
            ),
            line(
                "Time to handle one event (95 %)",
                "Of the search service, by type; it includes the proposal of the next trial.",
                "s",
                (quantile(0.95, "drivetrain_event_handling_seconds", "type", _HPO), "{{type}}"),
            ),
            line(
                "Delay of its events (99 %)",
                "How long an ended trial waits for the next proposal.",
                "s",
                (quantile(0.99, "drivetrain_event_delay_seconds", "", _HPO), "delay"),
            ),
        ],
    },
)
