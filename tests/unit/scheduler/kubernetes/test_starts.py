"""Why a pod has not started, and for how long that may be."""

import pytest

from services.scheduler.core.pods import EndKind
from services.scheduler.launchers.kubernetes.refusals import why_refused
from services.scheduler.launchers.kubernetes.starts import why_stuck
from tests.unit.scheduler.kubernetes.objects import container, made, pod_spec

SPEC = pod_spec()


def waiting(reason: str, message: str = "", key: str = "containerStatuses") -> dict:
    return made(SPEC, **{key: [container(waiting={"reason": reason, "message": message})]})


@pytest.mark.parametrize(
    ("pod", "kind", "words"),
    [
        (waiting("InvalidImageName", "couldn't parse"), EndKind.INVALID, "couldn't parse"),
        (waiting("ErrImagePull", "manifest unknown"), EndKind.INVALID, "cannot be pulled"),
        (waiting("ImagePullBackOff", "connection reset"), EndKind.FAILED, "connection reset"),
        (
            waiting("ErrImagePull", "pull access denied", "initContainerStatuses"),
            EndKind.FAILED,
            "pull access denied",
        ),
        (
            waiting("CreateContainerConfigError", 'secret "aws" not found'),
            EndKind.FAILED,
            'secret "aws" not found',
        ),
        (
            made(
                SPEC,
                conditions=[
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 1 Insufficient nvidia.com/gpu",
                    }
                ],
            ),
            EndKind.DISRUPTED,
            "Insufficient nvidia.com/gpu",
        ),
    ],
)
def test_a_pod_that_cannot_start_says_why(pod, kind, words) -> None:
    stuck = why_stuck(pod)
    assert stuck is not None
    assert stuck.reason.kind is kind
    assert words in stuck.reason.detail


@pytest.mark.parametrize(
    "pod", [waiting("ContainerCreating"), waiting("PodInitializing"), made(SPEC)]
)
def test_a_pod_that_is_being_started_is_not_stuck(pod) -> None:
    assert why_stuck(pod) is None


@pytest.mark.parametrize(
    ("code", "message", "want"),
    [
        (403, 'pods "a" is forbidden: exceeded quota: few', EndKind.DISRUPTED),
        (403, 'admission webhook "policy" denied the request: no', EndKind.INVALID),
        (409, 'admission webhook "policy" denied the request: no', EndKind.INVALID),
        (404, 'admission webhook "policy" denied the request: must specify', EndKind.INVALID),
        (403, 'pods "a" is forbidden: violates PodSecurity "restricted"', EndKind.INVALID),
        (422, "spec.containers[0].image: Invalid value", EndKind.INVALID),
        (403, 'User "x" cannot create resource "pods" in API group', None),
        (403, "namespace train because it is being terminated", None),
        (403, 'pods "a" is forbidden: no PriorityClass with name high was found', None),
        (403, 'pods "a" is forbidden: failed quota: few: must specify limits.cpu for: pod', None),
        (404, 'namespaces "train" not found', None),
        (401, "Unauthorized", None),
    ],
)
def test_a_refusal_is_the_jobs_or_the_operators(code, message, want) -> None:
    why = why_refused(code, {"message": message})
    assert (None if why is None else why.kind) is want
