"""What somebody can do about each alert."""

from collections.abc import Mapping

HINTS: Mapping[str, str] = {
    "not_finite": (
        "Look at the series before this step. Lower the learning rate or clip gradients, check the "
        "data of this step, and start from an earlier checkpoint."
    ),
    "stalled": (
        "Read the end of the log of every rank: which one waits for data, for another rank or for "
        "a lock? Cancel the job if it does not go on; its checkpoints are kept."
    ),
    "samples_dropped": (
        "Log less often, or fewer names, pictures and tables. The log of the run names the samples "
        "that were refused."
    ),
    "log_dropped": (
        "Print less, or raise logs.kib_per_second in job.yaml: the operator allows 1024 if nothing "
        "else is set. The file log in the pod's directory has more of it."
    ),
    "diverging": (
        "Compare learning rate and gradient norm with a run that went well. Stop the job, and "
        "start again from a checkpoint before this step."
    ),
    "straggler": (
        "Compare the ranks under System: own work in a step, device, CPU and disk of the slow one. "
        "If it is always the same node, tell the operator."
    ),
    "low_utilisation": (
        "The devices wait, most often for data: use more loader workers, larger batches or fewer "
        "devices."
    ),
    "slower": (
        "Look under System at what changed when the pace fell: memory, disk and network of each "
        "pod, and who else uses its node."
    ),
    "rule": "A rule of the job's own: `alerts.rules` in its job.yaml.",
    "script": "The program has raised it, by `run.alert` or `drivetrain report --alert`.",
    "no_checkpoints": (
        "The timeline says why the last one failed: the object store, its space, or the size of "
        "the state. Until one is saved, a restart repeats the work."
    ),
}


def hint(alert: str) -> str:
    return HINTS[alert]
