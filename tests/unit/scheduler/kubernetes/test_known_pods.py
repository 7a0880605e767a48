"""What is remembered of a pod, from its changes."""

from datetime import UTC, datetime

import pytest

from drivetrain_schemas.pods import PodExit
from services.scheduler.core.pods import EndKind, Sight
from services.scheduler.launchers.kubernetes.api import Object
from services.scheduler.launchers.kubernetes.known_pods import KnownPods
from tests.unit.scheduler.kubernetes.objects import (
    container,
    made,
    pod_spec,
    terminated,
    with_metadata,
)

SPEC = pod_spec()
RUNS = made(SPEC, phase="Running", containerStatuses=[container(running={})])
NO_IMAGE = made(
    SPEC,
    phase="Pending",
    containerStatuses=[container(waiting={"reason": "InvalidImageName", "message": "bad"})],
)
TOLD = {"annotations": {"drivetrain.dev/stop": "{}"}}
DRAINED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "a drain",
}


def make_known(why_unreachable: str = "") -> KnownPods:
    return KnownPods(lambda name: why_unreachable)


def of_gang(is_told: bool, *conditions: dict, **state: dict) -> Object:
    """The pod as it runs, or as it ended, with these conditions."""
    statuses = [container(**(state or {"running": {}}))]
    pod = made(SPEC, phase="Running", containerStatuses=statuses, conditions=list(conditions))
    on_node = {**pod, "spec": {**pod["spec"], "nodeName": "n1"}}
    return with_metadata(on_node, **TOLD) if is_told else on_node


def test_a_pod_that_is_gone_without_a_word_was_taken_by_the_cluster() -> None:
    known = make_known()
    assert known.note(RUNS, False)
    assert known.note(RUNS, True)
    seen = known.get(SPEC.pod_id)
    assert seen.is_proven
    assert seen.reading.sight is Sight.DEAD
    assert seen.reading.reason.kind is EndKind.DISRUPTED


def test_one_that_the_platform_ended_was_not() -> None:
    known = make_known()
    known.note(RUNS, False)
    known.note(with_metadata(RUNS, **TOLD), True)
    assert known.get(SPEC.pod_id).reading.reason is None


def test_why_it_could_not_start_stays_the_reason_of_its_end() -> None:
    known = make_known()
    known.note(NO_IMAGE, False)
    reason = known.get(SPEC.pod_id).hopeless
    assert reason.kind is EndKind.INVALID
    known.note(with_metadata(NO_IMAGE, **TOLD), False)
    known.note(with_metadata(NO_IMAGE, **TOLD), True)
    assert known.get(SPEC.pod_id).reading.reason == reason


def test_one_that_starts_after_all_is_not_ended() -> None:
    known = make_known()
    known.note(NO_IMAGE, False)
    known.note(RUNS, False)
    assert known.get(SPEC.pod_id).hopeless is None


def test_the_end_in_the_store_replaces_a_part_and_survives_the_object() -> None:
    known = make_known()
    known.note(RUNS, False)
    known.note(RUNS, True)
    end = PodExit(pod_id=SPEC.pod_id, outcome="interrupted", ranks=(), ended_at=datetime.now(UTC))
    known.settle(SPEC.pod_id, end)
    statuses = [container(**terminated(1))]
    known.note(made(SPEC, phase="Failed", containerStatuses=statuses), True)
    seen = known.get(SPEC.pod_id)
    assert (seen.reading.sight, seen.reading.end) == (Sight.ENDED, end)


@pytest.mark.parametrize("last", [RUNS, NO_IMAGE], ids=["running", "waiting"])
def test_one_that_is_proven_gone_before_the_watch_tells_so_does_not_run(last: Object) -> None:
    known = make_known()
    known.note(last, False)
    known.settle(SPEC.pod_id, None)
    assert known.get(SPEC.pod_id).reading.sight is Sight.DEAD
    known.note(with_metadata(last, **TOLD), True)
    assert known.get(SPEC.pod_id).reading.sight is Sight.DEAD


def test_an_end_in_the_store_of_a_pod_that_was_never_seen() -> None:
    known = make_known()
    known.settle(SPEC.pod_id, None)
    assert known.get(SPEC.pod_id) is None
    end = PodExit(pod_id=SPEC.pod_id, outcome="succeeded", ranks=(), ended_at=datetime.now(UTC))
    known.settle(SPEC.pod_id, end)
    assert known.get(SPEC.pod_id).reading.end == end
    known.forget(SPEC.job_id)
    assert known.get(SPEC.pod_id) is None


def test_what_was_forgotten_with_its_job_stays_forgotten() -> None:
    known = make_known()
    known.note(RUNS, False)
    known.forget(SPEC.job_id)
    assert not known.note(RUNS, True)
    assert known.get(SPEC.pod_id) is None


def test_a_pod_of_somebody_else_with_a_label_of_ours_is_left_alone() -> None:
    known = make_known()
    other = with_metadata(RUNS, labels={"drivetrain.dev/pod": SPEC.pod_id})
    assert not known.note(other, False)
    assert known.get(SPEC.pod_id) is None


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_lost_node_disrupts_a_pod_that_was_told_to_stop_for_an_error_of_others(
    is_watched: bool,
) -> None:
    known = make_known("node n1 is not ready")
    known.note(of_gang(False), False)
    known.note(of_gang(True), False)
    if is_watched:
        known.note(of_gang(True), True)
    else:
        known.settle(SPEC.pod_id, None)
    reason = known.get(SPEC.pod_id).reading.reason
    assert reason.kind is EndKind.DISRUPTED
    assert "node n1 was lost" in reason.detail


def test_a_drain_that_came_after_the_stop_of_the_gang_explains_nothing() -> None:
    known = make_known()
    known.note(of_gang(False), False)
    known.note(of_gang(True), False)
    known.note(of_gang(True, DRAINED), False)
    known.note(of_gang(True, DRAINED, **terminated(143)), False)
    assert known.get(SPEC.pod_id).reading.reason is None


def test_a_drain_that_came_first_explains_the_end_of_a_pod_that_is_then_told_to_stop() -> None:
    known = make_known()
    known.note(of_gang(False), False)
    known.note(of_gang(False, DRAINED), False)
    known.note(of_gang(True, DRAINED), False)
    known.note(of_gang(True, DRAINED, **terminated(143)), False)
    assert known.get(SPEC.pod_id).reading.reason.kind is EndKind.DISRUPTED


def test_a_deletion_that_came_first_explains_the_end_as_well() -> None:
    known = make_known()
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    known.note(of_gang(False), False)
    known.note(with_metadata(of_gang(False), **deleted), False)
    known.note(with_metadata(of_gang(True), **deleted, **TOLD), False)
    known.note(with_metadata(of_gang(True, **terminated(143)), **deleted, **TOLD), False)
    assert known.get(SPEC.pod_id).reading.reason.kind is EndKind.DISRUPTED


def test_memory_that_ran_out_after_the_stop_still_says_so() -> None:
    known = make_known()
    known.note(of_gang(True), False)
    known.note(of_gang(True, **terminated(137, reason="OOMKilled")), False)
    assert "memory" in known.get(SPEC.pod_id).reading.reason.detail
