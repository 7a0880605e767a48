"""With a collector: one trace for each attempt of a job, from the request to the pod."""

from pathlib import Path

import pytest

from tests.faults import strikes
from tests.otlp_receiver import Receiver, Span, receiving
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]


def test_the_spans_of_gateway_scheduler_and_pod_are_one_trace(tmp_path: Path) -> None:
    with receiving() as receiver:
        platform = StandalonePlatform(
            tmp_path / "home",
            nodes=1,
            slots=1,
            outside={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint},
        )
        platform.start()
        try:
            job = TrainingJob.submit(
                platform,
                "traced",
                max_steps=60,
                resources={"devices": 1},
                checkpoint={"every_steps": 20, "keep_last": 2},
                hyperparameters={"pause_seconds": 0.1},
            )
            job.wait_for_strike()
            strikes.kill_rank(job)
            assert job.wait_final()["state"] == "succeeded"
            wait_until(
                lambda: (
                    receiver.named("scheduler", "attempt 2") and receiver.named("pod", "restore")
                ),
                "the spans of the second attempt",
            )
        finally:
            platform.stop()  # what waits in the services is sent
    check_first_attempt(receiver)
    check_second_attempt(receiver)


def check_first_attempt(receiver: Receiver) -> None:
    """Request -> command -> its handler, and attempt -> pod -> its phases: one trace."""
    (request,) = receiver.named("gateway", "POST /v1/jobs")
    (sent,) = receiver.named("gateway", "send job.submit")
    (handled,) = receiver.named("scheduler", "handle job.submit")
    (attempt,) = receiver.named("scheduler", "attempt 1")
    pod = in_trace(receiver.named("pod", "pod"), request)
    training = in_trace(receiver.named("pod", "training"), request)
    assert request.parent_id == ""
    assert sent.parent_id == request.span_id
    assert handled.parent_id == sent.span_id
    assert attempt.parent_id == sent.span_id
    assert pod.parent_id == attempt.span_id
    assert training.parent_id == pod.span_id
    assert in_trace(receiver.named("pod", "rendezvous"), request).parent_id == pod.span_id
    saved = [it for it in receiver.named("pod", "checkpoint") if it.trace_id == request.trace_id]
    assert saved
    assert {it.parent_id for it in saved} == {training.span_id}
    assert attempt.start_ns <= pod.start_ns <= training.start_ns <= training.end_ns <= pod.end_ns
    # An event of the run, and how another service handles it.
    queued = in_trace(receiver.named("scheduler", "send job.queued"), request)
    assert queued.parent_id == handled.span_id
    started = in_trace(receiver.named("scheduler", "send run.started"), request)
    assert started.parent_id == attempt.span_id
    assert started.span_id in {
        it.parent_id for it in receiver.named("gateway", "handle run.started")
    }


def check_second_attempt(receiver: Receiver) -> None:
    """It has a trace of its own, in which it restores."""
    (first,) = receiver.named("scheduler", "attempt 1")
    (second,) = receiver.named("scheduler", "attempt 2")
    assert (second.parent_id, second.trace_id == first.trace_id) == ("", False)
    pod = in_trace(receiver.named("pod", "pod"), second)
    assert pod.parent_id == second.span_id
    assert in_trace(receiver.named("pod", "restore"), second).parent_id == pod.span_id


def in_trace(spans: list[Span], other: Span) -> Span:
    (found,) = [span for span in spans if span.trace_id == other.trace_id]
    return found
