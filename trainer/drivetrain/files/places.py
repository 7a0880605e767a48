"""Where the files of a job are on the machine of a pod, seen from the pod's directory.

A pod's directory is `<root>/<job>/<attempt>/<pod>`. The working directory belongs to the job, so
its path is the same in every attempt; what was laid out in it is recorded by attempt.
"""

from pathlib import Path

WORK = "work"


def work_directory(pod_directory: Path) -> Path:
    """The job's directory, which its ranks share and work in."""
    return pod_directory.parents[1] / WORK


def record_path(pod_directory: Path) -> Path:
    """What this attempt laid out; it exists when the working directory is complete."""
    return pod_directory.parent / "laid-out.json"


def saved_path(pod_directory: Path) -> Path:
    """What the program saved with its newest checkpoint, in the form of `record_path`."""
    return pod_directory / "saved.json"


def lock_path(pod_directory: Path) -> Path:
    """Held while the working directory is laid out: pods of a gang may share it."""
    return pod_directory.parent / "laid-out.lock"


def owner_path(pod_directory: Path) -> Path:
    """It exists when the program saves the files with its own checkpoints."""
    return pod_directory / "saved-with-checkpoints"


def spool_directory(pod_directory: Path, owner: str) -> Path:
    """Copies of changed files that are not uploaded yet."""
    return pod_directory / f"spool-{owner}"


def shares_directory(pod_directory: Path, first_pod: str) -> bool:
    """Whether a pod works in the directory of the run's first pod, whose files are saved."""
    return (pod_directory.parent / first_pod).exists()
