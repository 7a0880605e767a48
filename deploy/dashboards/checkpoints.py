"""Checkpoints: how often, how large, how long training stops for them, and which are bad."""

from deploy.dashboards.panels import GATEWAY, Link, board, line, number, quantile, rate

_JOBS = Link("Jobs", "/")
_PREFIX = "drivetrain_checkpoints"


def _both(metric: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (quantile(0.5, metric), "50 %"), (quantile(0.99, metric), "99 %")


CHECKPOINTS = board(
    "checkpoints",
    "Whether jobs could be resumed, and what saving costs them.",
    [GATEWAY],
    {
        "Saving": [
            number(
                "Runs without new checkpoints",
                "A failure would repeat all steps since their last one.",
                "short",
                f"sum({_PREFIX}_failing_runs)",
                link=_JOBS,
            ),
            line(
                "Checkpoints found good",
                "By how: their bytes were read, or only sizes compared.",
                "ops",
                (rate(f"{_PREFIX}_committed_total", "verified_by"), "{{verified_by}}"),
                link=_JOBS,
            ),
            line(
                "Checkpoints rejected",
                "By reason.",
                "ops",
                (rate(f"{_PREFIX}_rejected_total", "reason"), "{{reason}}"),
                link=_JOBS,
            ),
            line(
                "Time to save",
                "From the start of a save to its manifest.",
                "s",
                *_both(f"{_PREFIX}_save_seconds"),
            ),
            line(
                "Time that training stops",
                "Within each save.",
                "s",
                *_both(f"{_PREFIX}_blocked_seconds"),
            ),
            line("Size", "Of a checkpoint.", "bytes", *_both(f"{_PREFIX}_size_bytes")),
        ],
        "Resuming": [
            line(
                "Time to load",
                "The checkpoint that a run resumed from.",
                "s",
                *_both(f"{_PREFIX}_restore_seconds"),
                link=_JOBS,
            ),
            line(
                "Time to check",
                "A manifest and the sizes of its shards.",
                "s",
                *_both(f"{_PREFIX}_check_seconds"),
            ),
            line(
                "Bytes read to verify",
                "Per second.",
                "Bps",
                (rate(f"{_PREFIX}_read_bytes_total"), "read"),
            ),
        ],
        "Keeping": [
            line(
                "Checkpoints deleted",
                "By retention, per second.",
                "ops",
                (rate(f"{_PREFIX}_deleted_total"), "deleted"),
            ),
            line(
                "Failures at the object store",
                "By what was to be done.",
                "ops",
                (rate(f"{_PREFIX}_intent_failures_total", "kind"), "{{kind}}"),
            ),
            line(
                "Reports that name no checkpoint",
                "Pods sent them; they are ignored.",
                "ops",
                (rate(f"{_PREFIX}_refused_hints_total"), "refused"),
            ),
        ],
    },
)
