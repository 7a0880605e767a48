"""Until when an allocation is paid: a pod's own end, within what the scheduler knows itself."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.core.paid_time import PodTime, paid_ends_at
from tests.unit.scheduler.builders import NOW, after

RELEASED = after(100)
CASES = {
    "its own end": ([PodTime(after(40), after(38))], after(40)),
    "the platform was down when it ended": ([PodTime(after(40), after(10))], after(40)),
    "an end before it was last seen alive": ([PodTime(after(5), after(60))], after(60)),
    "an end before the grant": ([PodTime(after(-500), None)], NOW),
    "an end after the release": ([PodTime(after(900), after(60))], RELEASED),
    "no exit, so until it was last seen alive": ([PodTime(None, after(60))], after(60)),
    "never started": ([PodTime()], NOW),
    "the last of a gang": ([PodTime(after(40)), PodTime(after(70)), PodTime()], after(70)),
}


@pytest.mark.parametrize(("pods", "want"), CASES.values(), ids=CASES.keys())
def test_paid_ends_at(pods, want):
    assert paid_ends_at(NOW, RELEASED, pods) == want


moments = st.none() | st.integers(-(10**6), 10**6).map(lambda ms: NOW + timedelta(milliseconds=ms))


@given(seen_at=moments, honest=moments, forged=moments)
def test_an_earlier_claim_never_pays_for_less_than_was_seen(seen_at, honest, forged):
    pods = [PodTime(honest, seen_at)], [PodTime(forged, seen_at)]
    for paid in (paid_ends_at(NOW, RELEASED, pod) for pod in pods):
        assert NOW <= paid <= RELEASED
        assert seen_at is None or paid >= min(seen_at, RELEASED)
