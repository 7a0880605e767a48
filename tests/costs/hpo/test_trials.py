"""Asks, tells and results of studies with a long history: their own trials, and other studies.

What a handler does, and reads, does not depend on either; it samples at random. What the other
samplers compute beside it is counted in memory, in `test_decisions`.
"""

from functools import partial

import pytest

from drivetrain_schemas.jobs import JobSucceeded, TrialOf
from drivetrain_schemas.studies import StudyAsk
from drivetrain_schemas.trials import TrialTell
from services.hpo import messages, searches
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.costs.counting import Runs, measure
from tests.costs.hpo.studies import deliver, other_studies, search_of, spec_of, stored
from tests.handlers.hpo.test_studies import FINISHED_AT

# More than runs of a scenario are measured.
NUM_RUNS = 10


@pytest.fixture(autouse=True)
def fresh_process() -> None:
    searches.kept.clear()


async def study_with(
    database: OpenDatabase, ended: int, running: int = 0, *, external: bool = False
) -> tuple[Database, str]:
    hpo = await database("hpo")
    spec = spec_of(2 * (ended + running), running or NUM_RUNS, external=external)
    study_id = await stored(hpo, f"study-{ended}", spec, search_of(spec, ended, running))
    # At least so many that Postgres searches them by an index, whatever the size.
    await other_studies(hpo, max(500, ended))
    return hpo, study_id


def succeeded(study_id: str, number: int) -> JobSucceeded:
    return JobSucceeded.model_validate(
        {
            "job_id": messages.job_id_of("default", study_id, number),
            "attempts": 1,
            "result": {"step": 27, "metrics": {"loss": 0.5}},
            "finished_at": FINISHED_AT,
            "trial": TrialOf(study_id=study_id, number=number),
        }
    )


async def test_ask_and_tell_cost_the_same_after_many_trials(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        hpo, study_id = await study_with(database, size, external=True)

        async def ask_and_tell(number: int) -> None:
            await deliver(hpo, StudyAsk(study_id=study_id, request_id=f"ask-{number}"))
            await deliver(hpo, TrialTell(study_id=study_id, number=number, values=(0.5,)))

        for number in range(size, size + NUM_RUNS):
            yield partial(ask_and_tell, number)

    (await measure(scenario, 500)).assert_flat()


async def test_a_result_costs_the_same_after_many_trials(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        hpo, study_id = await study_with(database, size, running=NUM_RUNS)
        for number in range(size, size + NUM_RUNS):
            yield partial(deliver, hpo, succeeded(study_id, number))

    (await measure(scenario, 500)).assert_flat()


async def test_results_of_one_study_cost_as_much_as_there_are(database: OpenDatabase) -> None:
    """Results in one batch, trials that run and trials before them grow together."""

    async def scenario(size: int) -> Runs:
        hpo, study_id = await study_with(database, 10 * size, running=NUM_RUNS * size)
        for number in range(10 * size, (10 + NUM_RUNS) * size, size):
            told = [succeeded(study_id, each) for each in range(number, number + size)]
            yield partial(deliver, hpo, *told)

    (await measure(scenario, 20)).assert_linear()


async def test_a_search_is_loaded_at_the_cost_of_its_trials(database: OpenDatabase) -> None:
    async def scenario(size: int) -> Runs:
        hpo, study_id = await study_with(database, size, external=True)
        for number in range(size, size + NUM_RUNS):
            searches.kept.clear()
            yield partial(deliver, hpo, StudyAsk(study_id=study_id, request_id=f"ask-{number}"))

    (await measure(scenario, 200)).assert_linear()
