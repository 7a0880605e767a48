"""What is done about a run's pods, and what is proven by what is seen."""

import pytest

from drivetrain_schemas.runs import RunState, WaitCause
from services.scheduler.core.pods import EndKind, EndReason, PodState, Sight
from services.scheduler.core.reconcile import Acts, Limits, Moves, acts, moves
from services.scheduler.core.waits import Wait
from tests.unit.scheduler.builders import make_ended, make_pod, make_run

LIMITS = Limits(start=30, refused=120, cancel_notice=20, gang_notice=5, notice_margin=10)
INTENDED = {"state": PodState.INTENDED, "launches": 0}


def waits(cause: WaitCause) -> Wait:
    return Wait(cause, "quota few", f"{cause} by quota few")


def blocked(seconds: float, cause: WaitCause = WaitCause.REFUSED, sight: Sight = Sight.ABSENT):
    return make_pod(0, sight, wait=waits(cause), seconds_blocked=seconds, **INTENDED)


CASES = {
    "an intended pod is launched": (
        make_run(make_pod(0, Sight.ABSENT, **INTENDED)),
        Acts(launch=("pod_0",)),
    ),
    "a start that a crash cut off is made again at once": (
        make_run(make_pod(0, Sight.CREATED, **INTENDED)),
        Acts(launch=("pod_0",)),
    ),
    "a launched pod gets time to appear": (
        make_run(make_pod(0, Sight.CREATED, seconds_in_sight=30)),
        Acts(),
    ),
    "a launched pod that never appears is started once more": (
        make_run(make_pod(0, Sight.CREATED, seconds_in_sight=31)),
        Acts(launch=("pod_0",)),
    ),
    "and then gets its time again": (
        make_run(make_pod(0, Sight.CREATED, launches=2, seconds_in_sight=30)),
        Acts(),
    ),
    "and then given up": (
        make_run(make_pod(0, Sight.CREATED, launches=2, seconds_in_sight=31)),
        Acts(kill=("pod_0",)),
    ),
    "a pod that lives is left alone": (make_run(make_pod(0, seconds_in_sight=1e6)), Acts()),
    "what a dead shim left is killed": (
        make_run(make_pod(0, Sight.DEAD)),
        Acts(kill=("pod_0",)),
    ),
    "a pod whose directory is gone is killed": (
        make_run(make_pod(0, Sight.ABSENT)),
        Acts(kill=("pod_0",)),
    ),
    "the others get a notice when one pod failed": (
        make_run(make_ended(0, "failed"), make_pod(1)),
        Acts(notify=("pod_1",), reason="gang"),
    ),
    "a pod that has a notice gets no second one": (
        make_run(make_ended(0, "failed"), make_pod(1, notice="gang", seconds_since_notice=15)),
        Acts(),
    ),
    "a shim that does not keep the deadline is killed": (
        make_run(make_ended(0, "failed"), make_pod(1, notice="gang", seconds_since_notice=16)),
        Acts(kill=("pod_1",)),
    ),
    "a pod that succeeded stops no other": (make_run(make_ended(0), make_pod(1)), Acts()),
    "a cancel is given to every pod": (
        make_run(make_pod(0), make_pod(1), stop_reason="cancel"),
        Acts(notify=("pod_0", "pod_1"), reason="cancel"),
    ),
    "a stop without a checkpoint says so": (
        make_run(make_pod(0), stop_reason="stop", saves_last=False),
        Acts(notify=("pod_0",), reason="stop", saves_last=False),
    ),
    "and a shim has less time for it": (
        make_run(
            make_pod(0, notice="stop", seconds_since_notice=16),
            stop_reason="stop",
            saves_last=False,
        ),
        Acts(kill=("pod_0",), reason="stop", saves_last=False),
    ),
    "a pause that became a stop ends as it began": (
        make_run(
            make_pod(0, notice="pause", seconds_since_notice=16),
            stop_reason="pause",
            saves_last=False,
        ),
        Acts(reason="pause"),
    ),
    "a cancelled run launches nothing": (
        make_run(make_pod(0, Sight.ABSENT, **INTENDED), stop_reason="cancel"),
        Acts(kill=("pod_0",), reason="cancel"),
    ),
    "a cancelled pod that has not started is killed": (
        make_run(make_pod(0, Sight.CREATED, seconds_in_sight=1), stop_reason="cancel"),
        Acts(kill=("pod_0",), reason="cancel"),
    ),
    "processes that outlive their pod's exit are killed": (
        make_run(make_pod(0, Sight.ENDING)),
        Acts(kill=("pod_0",)),
    ),
    "nothing is done about pods that are finished": (
        make_run(make_ended(0), make_pod(1, Sight.ABSENT, state=PodState.LOST)),
        Acts(),
    ),
}


@pytest.mark.parametrize(("run", "want"), CASES.values(), ids=CASES.keys())
def test_acts(run, want):
    got = acts(run, LIMITS)

    assert (got.launch, got.notify, got.kill) == (
        want.launch,
        want.notify,
        want.kill,
    )
    assert got.give_up == {}
    if want.notify:
        assert got.reason == want.reason


@pytest.mark.parametrize(
    ("pod", "kind"),
    [
        (blocked(120.1), EndKind.REFUSED),
        (blocked(120.1, WaitCause.NO_ANSWER), EndKind.REFUSED),
        (blocked(120.1, sight=Sight.CREATED), EndKind.REFUSED),  # without its secret
    ],
)
def test_a_pod_that_cannot_be_created_is_given_up_after_its_time(pod, kind):
    got = acts(make_run(pod, make_pod(1)), LIMITS)
    assert got.give_up == {"pod_0": EndReason(kind, pod.wait.detail)}
    assert (got.launch, got.notify, got.kill) == ((), (), ("pod_0",))


def test_until_then_it_is_tried_again():
    got = acts(make_run(blocked(120)), LIMITS)
    assert (got.launch, got.kill, got.give_up) == (("pod_0",), (), {})


def test_one_of_a_run_that_stops_is_not_what_ended_it():
    got = acts(make_run(blocked(999), stop_reason="cancel"), LIMITS)
    assert (got.kill, got.give_up) == (("pod_0",), {})


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (WaitCause.GATED, EndKind.DISRUPTED),
        (WaitCause.NOT_SCHEDULED, EndKind.DISRUPTED),
        (WaitCause.PULLING, EndKind.FAILED),
    ],
)
def test_a_pod_that_never_starts_ends_with_what_it_waited_for(cause, kind):
    pod = make_pod(0, Sight.CREATED, launches=2, seconds_in_sight=31, wait=waits(cause))
    got = acts(make_run(pod), LIMITS)
    assert got.kill == ("pod_0",)
    assert got.give_up["pod_0"].kind is kind
    assert pod.wait.detail in got.give_up["pod_0"].detail
    early = make_pod(0, Sight.CREATED, launches=2, seconds_in_sight=30, wait=waits(cause))
    assert acts(make_run(early), LIMITS).give_up == {}


MOVES = {
    "started when every pod was seen alive": (
        make_run(make_pod(0), make_pod(1), state=RunState.STARTING),
        Moves(is_started=True),
    ),
    "not before": (
        make_run(make_pod(0), make_pod(1, Sight.CREATED), state=RunState.STARTING),
        Moves(),
    ),
    "a pod that ended before anybody looked was alive": (
        make_run(make_ended(0), state=RunState.STARTING),
        Moves(is_started=True, is_finished=True),
    ),
    "a running run does not start again": (make_run(make_pod(0)), Moves()),
    "broken by one pod": (make_run(make_ended(0, "failed"), make_pod(1)), Moves(is_broken=True)),
    "broken is reported once": (
        make_run(make_ended(0, "failed"), make_pod(1), stop_reason="gang"),
        Moves(),
    ),
    "dead is not yet gone": (make_run(make_pod(0, Sight.DEAD)), Moves(is_broken=True)),
    "finished when nothing is left of any pod": (
        make_run(make_ended(0, "failed"), make_pod(1, Sight.ABSENT, state=PodState.LOST)),
        Moves(is_finished=True),
    ),
    "an exit with processes left is not the end": (
        make_run(make_pod(0, Sight.ENDING, exit=make_ended().exit)),
        Moves(),
    ),
}


@pytest.mark.parametrize(("run", "want"), MOVES.values(), ids=MOVES.keys())
def test_moves(run, want):
    assert moves(run) == want
