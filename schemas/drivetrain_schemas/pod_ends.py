"""How the end of a pod leaves a container: a termination message, and `exit.json` in the store.

Kubernetes keeps 4,096 bytes of what a container writes at its end. What does not fit is left out,
the least important first; the whole `exit.json` is in the object store under `exit_key`.
"""

from collections.abc import Iterator

from drivetrain_schemas.base import Value
from drivetrain_schemas.jobs import Result
from drivetrain_schemas.pods import PodExit

MAX_MESSAGE_BYTES = 4096
MAX_EXIT_BYTES = 1024**2
_MAX_RANKS = 8


class ReportedEnd(Value):
    """The termination message. `is_whole`: nothing of `exit.json` was left out."""

    end: PodExit
    is_whole: bool = True


def exits_of(job_id: str) -> str:
    """The prefix of all ends of a job's pods in the object store."""
    return f"exits/{job_id}/"


def exit_key(job_id: str, attempt: int, pod_id: str) -> str:
    """Where a pod's `exit.json` is in the object store."""
    return f"{exits_of(job_id)}{attempt}/{pod_id}.json"


def termination_message(end: PodExit, metric: str | None = None) -> bytes:
    """At most `MAX_MESSAGE_BYTES`. `metric`: the job's, whose value is left out last."""
    message = _encoded(end, is_whole=True)
    for smaller in _smaller(end, metric):
        if len(message) <= MAX_MESSAGE_BYTES:
            break
        message = _encoded(smaller, is_whole=False)
    assert len(message) <= MAX_MESSAGE_BYTES
    return message


def _smaller(end: PodExit, metric: str | None) -> Iterator[PodExit]:
    """Each without more than the one before."""
    last_log = end.last_log
    for num_characters in (2048, 1024, 512, 0):
        last_log = last_log[len(last_log) - min(num_characters, len(last_log)) :]
        yield (end := end.model_copy(update={"last_log": last_log}))
    if end.result is not None:
        kept = {name: value for name, value in end.result.metrics.items() if name == metric}
        result = Result(step=end.result.step, metrics=kept, best=end.result.best)
        yield (end := end.model_copy(update={"result": result}))
    failed = [rank for rank in end.ranks if rank.exit_code != 0]
    yield (end := end.model_copy(update={"ranks": tuple(failed[:_MAX_RANKS])}))
    for num_characters in (1024, 256, 64):
        yield (end := end.model_copy(update={"detail": end.detail[:num_characters]}))


def _encoded(end: PodExit, *, is_whole: bool) -> bytes:
    return ReportedEnd(end=end, is_whole=is_whole).model_dump_json(exclude_none=True).encode()
