"""The outcome of a gang, whose pods explain each other's ends."""

from functools import partial

from services.scheduler.core.outcome import conclude
from services.scheduler.core.pods import PodState, Sight
from tests.costs.counting import Runs, measure
from tests.unit.scheduler.builders import after, make_ended, make_pod, make_run


async def scenario(size: int) -> Runs:
    """Half of the pods never start, before the others fail one after another."""
    lost = [
        make_pod(each, Sight.ABSENT, state=PodState.LOST, finished_at=after(0))
        for each in range(size)
    ]
    failed = [
        make_ended(size + each, "failed", finished_at=after(each + 1)) for each in range(size)
    ]
    run = make_run(*lost, *failed)
    while True:
        yield partial(conclude, run)


async def test_an_outcome_costs_as_much_as_the_pods() -> None:
    (await measure(scenario, 200)).assert_linear()
