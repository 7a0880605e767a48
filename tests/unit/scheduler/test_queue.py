"""The order of the waiting jobs, their positions, and when the next delay ends."""

import pytest

from services.scheduler.core.queue import Queue
from tests.unit.scheduler.builders import NOW, after, make_job

A = make_job("a", 1, 1)
B = make_job("b", 2, 2)
C = make_job("c", 1, 3)
URGENT = make_job("u", 1, 4, priority=5)
ELSEWHERE = make_job("e", 1, 0, pool="other", priority=9)


def test_a_position_counts_the_jobs_before_it_in_its_pool():
    queue = Queue.of([C, B, ELSEWHERE, URGENT, A])
    positions = {job.job_id: queue.position(job) for job in queue}
    assert positions == {"job_u": 1, "job_a": 2, "job_b": 3, "job_c": 4, "job_e": 1}


def test_a_changed_queue_is_the_queue_of_its_jobs():
    late = make_job("d", 1, 2, not_before=after(5))
    queue = Queue.of([A, B, C])
    assert queue.changed([], [late]) == Queue.of([A, late, B, C])
    assert queue.changed([], [late]).changed([late, B], [URGENT]) == Queue.of([A, C, URGENT])
    assert queue.changed([A, B, C], []) == Queue()
    assert len(queue.changed([A], [])) == 2


@pytest.mark.parametrize(
    ("delays", "want"), [((), None), ((-1, 0), None), ((9, 3, 0), 3), ((0.5,), 0.5)]
)
def test_the_next_delay_to_end_is_the_earliest_that_has_not_passed(delays, want):
    jobs = [make_job(f"{at}", 1, 1, not_before=after(at)) for at in delays]
    assert Queue.of([A, *jobs]).next_delay_end(NOW) == (None if want is None else after(want))
