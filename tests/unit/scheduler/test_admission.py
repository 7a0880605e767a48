"""What cannot ever run is refused at once, naming the fix."""

import pytest

from drivetrain_schemas.jobs import RejectionReason
from services.scheduler.core.admission import MAX_SPEC_BYTES, Request, refuse
from tests.unit.scheduler.builders import make_job, make_node

NODES = [
    make_node("n1", 2),
    make_node("n2", 2),
    make_node("n3", 8, is_schedulable=False),
    make_node("n4", 1, device_type="gpu"),
]
CASES = {
    "all of the pool": (Request(make_job("a", 4), False, 100), None),
    "more than the pool": (
        Request(make_job("a", 5), False, 100),
        (RejectionReason.MORE_DEVICES_THAN_POOL, "ask for at most 4"),
    ),
    "more than there are of the type": (
        Request(make_job("a", 2, device_type="gpu"), False, 100),
        (RejectionReason.MORE_DEVICES_THAN_POOL, "ask for at most 1"),
    ),
    "an unknown pool": (
        Request(make_job("a", pool="other"), False, 100),
        (RejectionReason.NO_SUCH_POOL, "name one of: default"),
    ),
    "an image": (
        Request(make_job("a"), True, 100),
        (RejectionReason.UNSUPPORTED, "give code instead of image"),
    ),
    "a spec that no environment variable holds": (
        Request(make_job("a"), False, MAX_SPEC_BYTES + 1),
        (RejectionReason.TOO_LARGE, "put large values into files of the job's code"),
    ),
}


@pytest.mark.parametrize(("request_", "want"), CASES.values(), ids=CASES.keys())
def test_refuse(request_, want):
    refusal = refuse(request_, NODES, can_run_images=False)

    assert (refusal and (refusal.reason, refusal.fix)) == want


def test_a_launcher_that_runs_images_takes_them():
    assert refuse(Request(make_job("a"), True, 100), NODES, can_run_images=True) is None
