"""The fleet: devices, who holds them, who waits, and what the scheduler does about it."""

from deploy.dashboards.panels import GATEWAY, POOL, Link, board, line, number, quantile, rate

_OF = 'pool=~"$pool"'
_NODES = Link("Nodes", "/nodes")
_JOBS = Link("Jobs", "/")
_DEVICES = f"drivetrain_scheduler_devices{{{_OF}}}"
_HELD = f'drivetrain_scheduler_devices{{{_OF},state=~"held|unreachable"}}'

FLEET = board(
    "fleet",
    "Which devices there are, what holds them, and which jobs wait for them.",
    [GATEWAY, POOL],
    {
        "Devices": [
            number(
                "Devices in use",
                "Share of all devices that a job or a trial holds.",
                "percentunit",
                f"(sum({_HELD}) or vector(0)) / sum({_DEVICES})",
                link=_NODES,
            ),
            line(
                "Devices by state",
                "no_room: free, but other pods use what it needs. "
                "closed: free, on a node that accepts nothing. unreachable: held, "
                "on a node that does not answer.",
                "short",
                (
                    f"sum by (pool, device_type, state) ({_DEVICES})",
                    "{{pool}} {{device_type}} {{state}}",
                ),
                link=_NODES,
                stacked=True,
            ),
            line(
                "Devices by holder",
                "Jobs of people, or trials of studies.",
                "short",
                (f"sum by (holder) ({_HELD})", "{{holder}}"),
                link=_JOBS,
                stacked=True,
            ),
            line(
                "Nodes",
                "By whether they accept runs.",
                "short",
                ("max by (state) (drivetrain_scheduler_nodes)", "{{state}}"),
                link=_NODES,
            ),
            line(
                "Runs that hold devices",
                "Started, starting or stopping.",
                "short",
                ("max(drivetrain_scheduler_live_runs)", "runs"),
                link=_JOBS,
            ),
        ],
        "Queue": [
            line(
                "Jobs that wait",
                "By pool and reason; pool unknown: no node has the pool that the job names.",
                "short",
                (
                    "sum by (pool, reason) (drivetrain_scheduler_waiting_jobs)",
                    "{{pool}} {{reason}}",
                ),
                link=_JOBS,
                stacked=True,
            ),
            line(
                "Wait until the grant (90 %)",
                "Of jobs that were granted devices, by pool and the last reason that was told.",
                "s",
                (
                    quantile(0.9, "drivetrain_scheduler_wait_seconds", "pool, reason", _OF),
                    "{{pool}} {{reason}}",
                ),
            ),
            line(
                "Grants",
                "Allocations granted, per second.",
                "ops",
                (rate("drivetrain_scheduler_grants_total"), "grants"),
            ),
        ],
        "Runs": [
            line(
                "Runs that ended",
                "By outcome. interrupted: stopped to be resumed, evicted; lost: its "
                "pods ended without saying how.",
                "ops",
                (rate("drivetrain_scheduler_runs_total", "outcome"), "{{outcome}}"),
                link=_JOBS,
            ),
            line(
                "Device time by outcome",
                "Devices whose time went to runs that ended so. What "
                "interruptions and failures cost is at most this.",
                "short",
                (rate("drivetrain_scheduler_slot_seconds_total", "outcome", _OF), "{{outcome}}"),
                stacked=True,
            ),
            line(
                "Suspected and killed",
                "Leases that lapsed, and pods that were killed.",
                "ops",
                (rate("drivetrain_scheduler_suspected_total"), "suspected"),
                (rate("drivetrain_scheduler_kills_total"), "killed"),
            ),
        ],
        "Scheduler": [
            line(
                "Time of a round (95 %)",
                "Of the reconcile loop.",
                "s",
                (quantile(0.95, "drivetrain_scheduler_round_seconds"), "round"),
            ),
            line(
                "Launches",
                "Pods started, by way; and launches that failed.",
                "ops",
                (rate("drivetrain_scheduler_launches_total", "way"), "{{way}}"),
                (rate("drivetrain_scheduler_launch_failures_total"), "failed"),
            ),
            line(
                "Launcher unavailable",
                "1 while what starts pods does not answer, or refuses all of them.",
                "short",
                ("max(drivetrain_scheduler_launcher_away)", "unavailable"),
            ),
            line(
                "Runs whose pods do not run yet",
                "By what they wait for; refused and no_answer are to be mended.",
                "short",
                ("sum by (cause) (drivetrain_scheduler_waiting_runs) > 0", "{{cause}}"),
            ),
            line(
                "Calls of the Kubernetes API",
                "By verb, resource and status; none on one machine.",
                "ops",
                (
                    rate("drivetrain_scheduler_kubernetes_calls_total", "verb, resource, code"),
                    "{{verb}} {{resource}} {{code}}",
                ),
            ),
        ],
    },
)
