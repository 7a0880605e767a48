"""How a pod ended fits into what Kubernetes keeps, whatever its programs printed."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from drivetrain_schemas.ids import job_id_for, pod_id_for
from drivetrain_schemas.jobs import BestValue, Goal, Result
from drivetrain_schemas.pod_ends import MAX_MESSAGE_BYTES, ReportedEnd, termination_message
from drivetrain_schemas.pods import Failure, FailureKind, PodExit, RankExit

POD = pod_id_for(job_id_for("default", "a"), 1, 0)
TEXTS = st.text(st.sampled_from('a"\\\n\x01é\N{GRINNING FACE}'), max_size=8192)


def an_end(**changes) -> PodExit:
    given = {
        "pod_id": POD,
        "outcome": "failed",
        "ranks": tuple(RankExit(rank=n, exit_code=n % 2) for n in range(8)),
        "first_failed_rank": 1,
        "failure": Failure(kind=FailureKind.EXCEPTION, step=3),
        "ended_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return PodExit.model_validate({**given, **changes})


def test_an_end_that_fits_is_whole() -> None:
    end = an_end(detail="it failed", last_log="the last line")
    assert ReportedEnd.model_validate_json(termination_message(end)) == ReportedEnd(end=end)


@given(last_log=TEXTS, detail=TEXTS.map(lambda text: text[:4096]), num_metrics=st.integers(0, 255))
def test_a_larger_one_keeps_what_decides(last_log, detail, num_metrics) -> None:
    metrics = {f"{number:03} {'m' * 120}": float(number) for number in range(num_metrics)}
    best = BestValue(name="accuracy", goal=Goal.MAXIMIZE, value=0.5, step=7)
    result = Result(step=9, metrics=metrics | {"accuracy": 0.25}, best=best) if metrics else None
    end = an_end(
        last_log=last_log,
        detail=detail,
        result=result,
        ranks=tuple(RankExit(rank=n, exit_code=1) for n in range(1024)),
    )
    message = termination_message(end, "accuracy")
    assert len(message) <= MAX_MESSAGE_BYTES
    kept = ReportedEnd.model_validate_json(message.decode())
    assert not kept.is_whole
    assert (kept.end.outcome, kept.end.failure, kept.end.first_failed_rank) == (
        end.outcome, end.failure, end.first_failed_rank,
    )  # fmt: skip
    assert end.last_log.endswith(kept.end.last_log)
    if result is not None:
        assert kept.end.result is not None
        assert kept.end.result.metrics["accuracy"] == 0.25
        assert kept.end.result.best == best
