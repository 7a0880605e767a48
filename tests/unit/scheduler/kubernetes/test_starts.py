"""Why a pod has not started, and for how long that may be."""

import pytest

from drivetrain_schemas.runs import WaitCause
from services.scheduler.core.pods import EndKind
from services.scheduler.core.waits import Wait
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


def on_node(pod: dict) -> dict:
    return {**pod, "spec": {**pod["spec"], "nodeName": "n1"}}


def gated(pod: dict) -> dict:
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "team/budget"}]
    return {**pod, "spec": {**pod["spec"], "schedulingGates": gates}}


@pytest.mark.parametrize(
    ("pod", "cause", "by", "is_silent"),
    [
        (made(SPEC), WaitCause.NOT_SCHEDULED, "default-scheduler", True),
        (
            gated(made(SPEC)),
            WaitCause.GATED,
            "kueue.x-k8s.io/admission, team/budget",
            False,
        ),
        (on_node(waiting("ContainerCreating")), WaitCause.PULLING, "n1", True),
        (on_node(made(SPEC)), WaitCause.PULLING, "n1", True),
        (
            on_node(made(SPEC, initContainerStatuses=[container("code", running={})])),
            WaitCause.INITIALISING,
            "n1",
            True,
        ),
        (
            waiting("ImagePullBackOff", "connection reset"),
            WaitCause.PULL_FAILED,
            "drivetrain/training:1",
            False,
        ),
        (waiting("CreateContainerError"), WaitCause.NOT_CREATED, "CreateContainerError", False),
    ],
)
def test_what_a_pod_waits_for_is_told_with_who_says_so(pod, cause, by, is_silent) -> None:
    """What no one says anything about is told after some seconds: each start takes that long."""
    stuck = why_stuck(pod)
    assert (stuck.wait.cause, stuck.wait.by) == (cause, by)
    assert bool(stuck.silent_seconds) is is_silent
    assert by.split(",")[0] in stuck.wait.detail or stuck.reason is not None


def test_one_that_runs_waits_for_nothing() -> None:
    assert why_stuck(on_node(made(SPEC, containerStatuses=[container(running={})]))) is None


def test_a_place_is_waited_for_only_while_the_cluster_ends_others_for_it() -> None:
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
    stuck = why_stuck(made(SPEC, conditions=conditions))
    preempting = why_stuck(made(SPEC, conditions=conditions, nominatedNodeName="n1"))
    assert (stuck.patience_seconds, preempting.patience_seconds) == (10, 60)


@pytest.mark.parametrize(
    ("code", "message", "want"),
    [
        (403, 'pods "a" is forbidden: exceeded quota: few', EndKind.DISRUPTED),
        (403, 'admission webhook "policy" denied the request: no', EndKind.INVALID),
        (409, 'admission webhook "policy" denied the request: no', EndKind.INVALID),
        (404, 'admission webhook "policy" denied the request: must specify', EndKind.INVALID),
        (403, 'pods "a" is forbidden: violates PodSecurity "restricted"', EndKind.INVALID),
        (422, "spec.containers[0].image: Invalid value", EndKind.INVALID),
        (403, 'User "x" cannot create resource "pods" in API group', "access rules (RBAC)"),
        (
            403,
            "namespace train because it is being terminated",
            "admission plugin NamespaceLifecycle",
        ),
        (
            403,
            'pods "a" is forbidden: no PriorityClass with name high was found',
            "admission plugin Priority",
        ),
        (
            403,
            'pods "a" is forbidden: failed quota: few: must specify limits.cpu for: pod',
            "quota few",
        ),
        (
            403,
            'error looking up service account train/x: serviceaccount "x" not found',
            "admission plugin ServiceAccount",
        ),
        (
            500,
            'Internal error occurred: failed calling webhook "policy.example": failed to call '
            "webhook: Post: connection refused",
            "webhook policy.example",
        ),
        (404, 'namespaces "train" not found', "API server"),
        (401, "Unauthorized", "API server"),
        (409, "Operation cannot be fulfilled on resourcequotas: has been modified", None),
    ],
)
def test_a_refusal_is_the_jobs_or_somebodys_to_mend(code, message, want) -> None:
    """Or passes. Whatever is to be mended is told with who refuses, and in the cluster's words."""
    why = why_refused(code, {"message": message})
    if isinstance(why, Wait):
        assert (why.cause, why.by) == (WaitCause.REFUSED, want)
        assert message in why.detail
    else:
        assert (None if why is None else why.kind) is want
