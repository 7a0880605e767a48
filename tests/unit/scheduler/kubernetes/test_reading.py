"""A Pod object as an observation."""

from datetime import UTC, datetime

import pytest

from drivetrain_schemas.pod_ends import termination_message
from drivetrain_schemas.pods import PodExit
from services.scheduler.core.pods import EndKind, Sight
from services.scheduler.launchers.kubernetes.reading import read_pod
from tests.unit.scheduler.kubernetes.objects import (
    container,
    made,
    pod_spec,
    terminated,
    with_metadata,
)

SPEC = pod_spec()
END = PodExit(
    pod_id=SPEC.pod_id, outcome="interrupted", ranks=(), ended_at=datetime(2026, 1, 1, tzinfo=UTC)
)
MESSAGE = termination_message(END).decode()
TOLD = {"annotations": {"drivetrain.dev/stop": "{}"}}


def ended(code: int = 1, message: str = "", reason: str = "Error", **status) -> dict:
    statuses = [container(**terminated(code, message, reason))]
    return made(SPEC, phase="Failed", containerStatuses=statuses, **status)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        ({"phase": "Pending"}, Sight.CREATED),
        (
            {"phase": "Pending", "initContainerStatuses": [container("code", running={})]},
            Sight.CREATED,
        ),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [container("code", **terminated(0))],
                "containerStatuses": [container(waiting={"reason": "PodInitializing"})],
            },
            Sight.CREATED,
        ),
        ({"phase": "Running", "containerStatuses": [container(running={})]}, Sight.ALIVE),
        # As some kubelets report an eviction: first the phase, and later that nothing runs.
        (
            {
                "phase": "Failed",
                "reason": "Evicted",
                "containerStatuses": [container(running={})],
            },
            Sight.ALIVE,
        ),
        ({"phase": "Failed", "reason": "Evicted"}, Sight.DEAD),
    ],
)
def test_sight(status, want) -> None:
    assert read_pod(made(SPEC, **status)).sight is want


def test_the_termination_message_is_the_end() -> None:
    seen = read_pod(ended(75, MESSAGE))
    assert (seen.sight, seen.end, seen.reason, seen.is_whole) == (Sight.ENDED, END, None, True)


def test_the_init_step_may_end_the_pod() -> None:
    statuses = [container("code", **terminated(75, MESSAGE))]
    seen = read_pod(made(SPEC, phase="Failed", initContainerStatuses=statuses))
    assert (seen.sight, seen.end) == (Sight.ENDED, END)


def test_the_end_of_another_pod_is_no_end() -> None:
    other = END.model_copy(update={"pod_id": pod_spec(pod_index=1).pod_id})
    assert read_pod(ended(0, termination_message(other).decode())).sight is Sight.DEAD


@pytest.mark.parametrize(
    ("pod", "kind", "words"),
    [
        (ended(137, reason="OOMKilled"), EndKind.FAILED, "used more than its memory"),
        (ended(137), EndKind.FAILED, "was killed by signal 9"),
        (ended(137, reason="ContainerStatusUnknown"), EndKind.DISRUPTED, "was restarted"),
        (ended(1, "Traceback: broken"), EndKind.FAILED, "Traceback: broken"),
        (
            ended(1, "/usr/bin/python: No module named drivetrain"),
            EndKind.INVALID,
            "has no package drivetrain",
        ),
        (
            ended(128, 'exec: "python": not found', "StartError"),
            EndKind.INVALID,
            "cannot run python",
        ),
        (
            made(SPEC, phase="Failed", reason="OutOfnvidia.com/gpu", message="Node has none"),
            EndKind.DISRUPTED,
            "did not accept the pod (OutOfnvidia.com/gpu): Node has none",
        ),
        (
            made(SPEC, phase="Failed", reason="UnexpectedAdmissionError", message="device broken"),
            EndKind.DISRUPTED,
            "device broken",
        ),
        (
            made(SPEC, phase="Failed", reason="Evicted", message="The node was low on resource"),
            EndKind.DISRUPTED,
            "the node evicted the pod: The node was low",
        ),
        (
            made(
                SPEC,
                phase="Failed",
                reason="Evicted",
                message="Container pod was using 9Gi, has larger consumption of memory",
            ),
            EndKind.FAILED,
            "was using 9Gi",
        ),
        (made(SPEC, phase="Failed", reason="NodeShutdown"), EndKind.DISRUPTED, "NodeShutdown"),
        (
            ended(
                137,
                conditions=[
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "PreemptionByScheduler",
                        "message": "preempting to accommodate a higher priority pod",
                    }
                ],
            ),
            EndKind.DISRUPTED,
            "preempting to accommodate a higher priority pod",
        ),
        (with_metadata(ended(137), deletionTimestamp="now"), EndKind.DISRUPTED, "was deleted"),
    ],
)
def test_an_end_without_a_message_has_a_reason_in_words(pod, kind, words) -> None:
    seen = read_pod(pod)
    assert (seen.sight, seen.end) == (Sight.DEAD, None)
    assert seen.reason is not None
    assert seen.reason.kind is kind
    assert words in seen.reason.detail


def test_what_the_platform_ended_needs_no_reason() -> None:
    seen = read_pod(with_metadata(ended(137), deletionTimestamp="now", **TOLD))
    assert (seen.sight, seen.reason) == (Sight.DEAD, None)


def test_a_pod_that_only_the_cluster_stops_is_disrupted() -> None:
    seen = read_pod(with_metadata(ended(75, MESSAGE), deletionTimestamp="now"))
    assert seen.end == END
    assert seen.reason is not None
    assert seen.reason.kind is EndKind.DISRUPTED
    assert (
        read_pod(with_metadata(ended(75, MESSAGE), deletionTimestamp="now", **TOLD)).reason is None
    )


def test_what_a_container_printed_can_be_stored() -> None:
    """Postgres has no NUL: the scheduler would fail with it each time that it looks."""
    statuses = [container(**terminated(1, "a\0b\ud800c"))]
    reason = read_pod(made(pod_spec(), phase="Failed", containerStatuses=statuses)).reason
    assert reason.detail.endswith(": a\ufffdb\ufffdc")
