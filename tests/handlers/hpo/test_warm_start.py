"""Studies that begin with what earlier ones found."""

import threading
from typing import Any

import pytest

from drivetrain_schemas.ids import study_id_for
from drivetrain_schemas.jobs import JobSubmit
from drivetrain_schemas.studies import (
    StudyAsk,
    StudyRequestRejected,
    StudyStarted,
    StudySubmit,
)
from services.hpo import searches, store
from services.hpo.core.samplers.portfolio import portfolio
from services.hpo.handlers import HANDLERS
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import handle, make_event
from tests.handlers.hpo.test_studies import make_spec, of_type, succeeded

DEPTH = {"type": "integer", "low": 1, "high": 4}
RATE = {"type": "uniform", "low": 0.001, "high": 0.1}
EARLIER = study_id_for("default", "earlier")


@pytest.fixture
async def hpo(database: OpenDatabase) -> Database:
    return await database("hpo")


async def submit(
    hpo: Database, request_id: str, tenant_id: str = "default", **fields: Any
) -> list[Any]:
    study_id = study_id_for(tenant_id, request_id)
    command = StudySubmit(request_id=request_id, spec=make_spec(**fields), study_id=study_id)
    return await handle(hpo, HANDLERS, make_event(command, tenant_id=tenant_id))


async def finish_earlier(hpo: Database) -> None:
    """Three trials that searched depth; all had a learning rate of 0.05."""
    job = {**make_spec().job.model_dump(), "hyperparameters": {"learning_rate": 0.05}}
    started = await submit(hpo, "earlier", space={"depth": DEPTH}, job=job, max_parallel_trials=3)
    for number, command in enumerate(of_type(started, JobSubmit)):
        await handle(hpo, HANDLERS, succeeded(command, loss=float(number)))


async def test_a_study_learns_from_the_trials_of_an_earlier_one(hpo: Database) -> None:
    await finish_earlier(hpo)
    space = {"learning_rate": RATE, "depth": {**DEPTH, "high": 9}}
    accepted = await submit(hpo, "later", space=space, warm_start=[EARLIER])
    assert isinstance(accepted[0], StudyStarted)
    async with hpo.transaction() as tx:
        study = await store.get_study(tx.connection, study_id_for("default", "later"))
        assert study is not None
        search = (await searches.take(tx.connection, study)).search
    [earlier] = search.trials.earlier
    assert list(earlier.losses) == [0.0, 1.0, 2.0]
    assert earlier.units[:, 1] == pytest.approx((0.05 - 0.001) / 0.099)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tenant_id": "other"}, "there is no study"),
        ({"warm_start": [study_id_for("default", "unknown")]}, "there is no study"),
        ({"space": {"width": DEPTH}}, "its trials have no value of width"),
        (
            {"job": {**make_spec().job.model_dump(), "metric": {"name": "f1", "goal": "maximize"}}},
            "its trials are ranked by loss (minimize), those of this study by f1 (maximize)",
        ),
    ],
)
async def test_a_study_that_tells_nothing_about_this_one_is_named(
    hpo: Database, fields: dict[str, Any], problem: str
) -> None:
    await finish_earlier(hpo)
    asked = {"space": {"depth": DEPTH}, "warm_start": [EARLIER], **fields}
    [rejected] = await submit(hpo, "later", **asked)
    assert isinstance(rejected, StudyRequestRejected)
    [error] = rejected.errors
    assert error.field == "warm_start.0"
    assert error.message.startswith(problem)
    assert error.fix


async def test_a_study_that_has_not_ended_is_not_learned_from(hpo: Database) -> None:
    await submit(hpo, "earlier", space={"depth": DEPTH})
    [rejected] = await submit(hpo, "later", space={"depth": DEPTH}, warm_start=[EARLIER])
    assert [error.message for error in rejected.errors] == [f"{EARLIER} has not ended"]


async def test_models_of_earlier_studies_are_fitted_beside_the_event_loop(
    hpo: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await finish_earlier(hpo)
    fitted_in: list[threading.Thread] = []

    def fit(*arguments: Any) -> Any:
        fitted_in.append(threading.current_thread())
        return portfolio(*arguments)

    monkeypatch.setattr("services.hpo.core.samplers.auto.portfolio", fit)
    fields = {"space": {"depth": DEPTH}, "warm_start": [EARLIER], "sampler": "auto"}
    study_id = study_id_for("default", "later")
    await submit(hpo, "later", **fields, external=True)
    for place in range(2):
        ask = StudyAsk(study_id=study_id, request_id=f"ask-{place}")
        await handle(hpo, HANDLERS, make_event(ask))
    assert len(fitted_in) == 1
    assert fitted_in[0] is not threading.main_thread()
