"""The order in which waiting jobs are considered: priority, then submission, then id.

A total order, so the same jobs always stand in the same places, whatever order they came in.
"""

from collections.abc import Iterable

from services.scheduler.core.model import QueuedJob


def queue_key(job: QueuedJob) -> tuple[int, int, str]:
    """Sorts higher priority first, then earlier submission; the id decides between equals."""
    return (-job.priority, job.submission, job.job_id)


def in_order(jobs: Iterable[QueuedJob]) -> tuple[QueuedJob, ...]:
    return tuple(sorted(jobs, key=queue_key))
