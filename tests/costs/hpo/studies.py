"""Studies with as many trials as a test asks for, made as values and written as rows."""

from dataclasses import replace
from random import Random
from typing import Any

from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import study_id_for
from drivetrain_schemas.studies import StudySpec
from services.hpo import messages, saved, store
from services.hpo.core.ranking import Ranked
from services.hpo.core.search import Search
from services.hpo.core.status import Open, Phase, Status
from services.hpo.core.trials import Measured, Trial, TrialState
from services.hpo.handlers import handle_batch
from services.runtime.database import Database
from tests.events import make_event
from tests.handlers.hpo.test_studies import make_spec

FIRST_RUNG = 3
JOB = {
    "name": "digits",
    "command": "python -m train",
    "metric": {"name": "loss", "goal": "minimize"},
    "max_steps": 27,
    "checkpoint": {"every_steps": FIRST_RUNG},
}
SPACE = {
    "learning_rate": {"type": "uniform", "low": 0.001, "high": 0.1, "log": True},
    "momentum": {"type": "uniform", "low": 0.0, "high": 1.0},
}


def spec_of(max_trials: int, max_parallel_trials: int, **fields: Any) -> StudySpec:
    numbers = {"max_trials": max_trials, "max_parallel_trials": max_parallel_trials}
    return make_spec(**{"job": JOB, "space": SPACE} | numbers | fields)


def search_of(
    spec: StudySpec, ended: int, running: int = 0, *, share: int = 3, are_paused: bool = False
) -> Search:
    """A search of which the last trials run. With a pruner, all others were measured at their first
    rung, where the best one in `share` went on to the end and the others stopped (or pause)."""
    random = Random(1)
    plan, status = messages.to_plan(spec), Status(numbers=messages.to_numbers(spec))
    steps_of = Search(plan, status).pruner.steps_of
    held_back = TrialState.PAUSED if are_paused else TrialState.STOPPED
    trials, opened = [], {}
    for number in range(ended + running):
        point = {"learning_rate": 0.001 + 0.099 * random.random(), "momentum": random.random()}
        trial = Trial(number, point)
        if number < ended:
            is_best = not steps_of(number) or number % share == 0
            loss = random.random() + (0.0 if is_best else 1.0)
            trial = Trial(
                number,
                point,
                TrialState.COMPLETED if is_best else held_back,
                values=(loss,) * len(plan.goals) if is_best else (),
                measured=tuple(Measured(step, loss) for step in steps_of(number)[:1]),
            )
        if not trial.state.is_final:
            opened[number] = Open(Phase.RUNNING if number >= ended else Phase.PAUSED)
        trials.append(trial)
    completed = [one for one in trials if one.values]
    best = min(completed, key=lambda one: one.values)
    status = replace(
        status,
        num_completed=len(completed),
        num_stopped=sum(one.state is TrialState.STOPPED for one in trials),
        best=Ranked(best.number, best.values[0]),
        best_counted=best.values[0],
    )
    return Search(plan, status, trials, opened)


async def stored(database: Database, name: str, spec: StudySpec, search: Search) -> str:
    """The study as rows. Returns its id."""
    study_id = study_id_for("default", name)
    row = store.StudyRow(study_id, "default", name, spec.max_trials, "{}")
    trials = [
        (
            study_id,
            saved.trial_row(search, number, None),
            store.NewTrial(
                messages.job_id_of("default", study_id, number),
                "",
                f"asked-{number}" if spec.external else None,
            ),
        )
        for number in range(len(search.trials))
    ]
    change = store.StudyChange(
        study=saved.study_row(row, search, "stamp", 1),
        state=search.status.state,
        has_more=False,
        num_paused=0,
        num_proposed=len(search.trials),
        new=(),
        known=(),
        events=("{}",),
    )
    async with database.transaction() as tx:
        await store.insert_study(tx.connection, row, store.Asked(spec.model_dump_json()))
        await store.insert_trials(tx.connection, trials)
        await store.save_studies(tx.connection, [change])
    return study_id


async def other_studies(database: Database, number: int, spec: str = "{}") -> None:
    """Studies of the same tenant that have ended: a trial, an event and spending of each."""
    async with database.connection() as connection:
        await connection.execute(
            f"""
            insert into studies (study_id, tenant_id, request_id, spec, num_trials, num_proposed,
                num_completed, status, state, finished_at, started_at)
            select 'study_' || n, 'default', 'r' || n, '{spec}', 1, 1, 1, '{{}}', 'finished', now(),
                now() - n * interval '1 minute' from generate_series(1, {number}) as n;
            insert into trials (study_id, number, job_id, command_event_id, hyperparameters, state,
                objectives)
            select 'study_' || n, 0, 'job_' || n, 'e' || n, '{{}}', 'completed', '[0.5]'
            from generate_series(1, {number}) as n;
            insert into search_events (study_id, revision, event)
            select 'study_' || n, 1, '{{}}' from generate_series(1, {number}) as n;
            insert into spending (study_id, slot_seconds)
            select 'study_' || n, 60 from generate_series(1, {number}) as n;
            analyze;
            """
        )


async def deliver(database: Database, *payloads: Payload) -> None:
    """All as one batch, in a transaction."""
    async with database.transaction() as tx:
        await handle_batch(tx, [make_event(payload) for payload in payloads])
