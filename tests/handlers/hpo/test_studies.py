"""Studies from request to end: what the search service emits for the events it receives."""

import itertools
import json
import random
from typing import Any

import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import study_id_for
from drivetrain_schemas.jobs import (
    JobCancel,
    JobCancelled,
    JobFailed,
    JobRequestRejected,
    JobSubmit,
    JobSucceeded,
    RejectionReason,
)
from drivetrain_schemas.studies import (
    StudyCancel,
    StudyCancelled,
    StudyCancelling,
    StudyCancelRejected,
    StudyChange,
    StudyChanged,
    StudyCompleted,
    StudyFailed,
    StudyImport,
    StudyRequestRejected,
    StudySpec,
    StudyStarted,
    StudySubmit,
    TrialCompleted,
    TrialFailed,
    TrialProposed,
)
from services.hpo.handlers import HANDLERS, REFUSALS
from services.runtime.bus import Record
from services.runtime.database import Database
from services.runtime.processing import EventProcessor
from tests.bad_studies import BAD_STUDIES
from tests.conftest import OpenDatabase
from tests.events import emitted, handle, make_event, make_record, parked, process

FINISHED_AT = "2026-01-01T00:00:00Z"
STUDY_ID = study_id_for("default", "study-1")


@pytest.fixture
async def hpo(database: OpenDatabase) -> Database:
    return await database("hpo")


def make_spec(**fields: Any) -> StudySpec:
    document = {
        "name": "digits-search",
        "job": {
            "name": "digits",
            "command": "python -m train",
            "hyperparameters": {"momentum": 0.9},
            "metric": {"name": "loss", "goal": "minimize"},
        },
        "space": {"learning_rate": {"type": "uniform", "low": 0.001, "high": 0.1, "log": True}},
        "sampler": "random",
        "max_trials": 3,
        "max_parallel_trials": 2,
    }
    return StudySpec.model_validate({**document, **fields})


def make_request(tenant_id: str = "default", **fields: Any) -> Event[StudySubmit]:
    study_id = study_id_for(tenant_id, "study-1")
    command = StudySubmit(request_id="study-1", spec=make_spec(**fields), study_id=study_id)
    return make_event(command, tenant_id=tenant_id)


def succeeded(command: JobSubmit, loss: float, **fields: Any) -> Event[JobSucceeded]:
    best = {"name": "loss", "goal": "minimize", "value": loss, "step": 5}
    document = {
        "job_id": command.job_id,
        "attempts": 1,
        "result": {"step": 10, "metrics": {"loss": loss + 1}, "best": best},
        "finished_at": FINISHED_AT,
        "trial": command.trial,
    }
    return make_event(JobSucceeded.model_validate({**document, **fields}))


def failed(command: JobSubmit, detail: str = "exit code 1") -> Event[JobFailed]:
    document = {
        "job_id": command.job_id,
        "attempts": 6,
        "detail": detail,
        "finished_at": FINISHED_AT,
        "trial": command.trial,
    }
    return make_event(JobFailed.model_validate(document))


def of_type(payloads: list[Payload], kind: type[Any]) -> list[Any]:
    return [payload for payload in payloads if isinstance(payload, kind)]


async def everything(hpo: Database) -> list[Payload]:
    return [event.payload for event in await emitted(hpo)]


async def test_a_request_starts_a_study_and_its_first_trials(hpo: Database) -> None:
    payloads = await handle(hpo, HANDLERS, make_request())
    started, *trials = payloads
    assert isinstance(started, StudyStarted)
    assert (started.study_id, started.num_trials) == (STUDY_ID, 3)
    assert [type(payload) for payload in trials] == [TrialProposed, JobSubmit] * 2
    proposed, command = trials[:2]
    assert isinstance(proposed, TrialProposed)
    assert isinstance(command, JobSubmit)
    assert command.request_id == f"{STUDY_ID}/0"
    assert command.job_id == proposed.job_id
    assert command.trial is not None
    assert (command.trial.study_id, command.trial.number) == (STUDY_ID, 0)
    assert command.spec.name == "digits-search-0"
    assert command.spec.hyperparameters == {"momentum": 0.9, **proposed.hyperparameters}


async def test_the_same_request_many_times_is_one_study(hpo: Database) -> None:
    first = make_request()
    await handle(hpo, HANDLERS, first)
    assert await handle(hpo, HANDLERS, *(make_request() for _ in range(19))) == []
    assert await handle(hpo, HANDLERS, first) == []


async def test_another_study_under_the_same_request_id_is_refused(hpo: Database) -> None:
    await handle(hpo, HANDLERS, make_request())
    other = make_request(max_trials=4)
    [rejected] = await handle(hpo, HANDLERS, other)
    assert isinstance(rejected, StudyRequestRejected)
    assert rejected.reason == "id_conflict"
    assert rejected.command_event_id == other.event_id
    assert rejected.study_id == STUDY_ID


async def test_the_same_request_id_of_another_tenant_is_another_study(hpo: Database) -> None:
    await handle(hpo, HANDLERS, make_request())
    started, *_ = await handle(hpo, HANDLERS, make_request("other"))
    assert isinstance(started, StudyStarted)
    assert started.study_id == study_id_for("other", "study-1")
    assert {event.tenant_id for event in await emitted(hpo)} == {"default", "other"}


async def test_a_study_runs_to_its_end_and_names_the_best_trial(hpo: Database) -> None:
    payloads = await handle(hpo, HANDLERS, make_request())
    first, second = of_type(payloads, JobSubmit)
    payloads = await handle(hpo, HANDLERS, succeeded(first, 0.5))
    completed, proposed, third = payloads
    assert isinstance(completed, TrialCompleted)
    assert (completed.number, completed.value, completed.is_best) == (0, 0.5, True)
    assert isinstance(proposed, TrialProposed)
    assert isinstance(third, JobSubmit)

    [trial] = await handle(hpo, HANDLERS, failed(second, "exit code 1"))
    assert isinstance(trial, TrialFailed)
    assert trial.detail == "the job failed: exit code 1"

    trial, study = await handle(hpo, HANDLERS, succeeded(third, 0.25))
    assert isinstance(study, StudyCompleted)
    assert (study.num_completed, study.num_failed) == (2, 1)
    assert (study.best_number, study.best_value) == (2, 0.25)
    assert study.best_job_id == third.job_id
    assert study.best_hyperparameters == proposed.hyperparameters
    assert study.metric.name == "loss"


async def test_a_study_without_a_value_fails_with_the_commonest_cause(hpo: Database) -> None:
    payloads = await handle(hpo, HANDLERS, make_request(max_trials=3, max_parallel_trials=3))
    first, second, third = of_type(payloads, JobSubmit)
    await handle(hpo, HANDLERS, failed(first, "exit code 1"))
    no_value = succeeded(second, 0.0, result={"step": 3, "metrics": {"accuracy": 0.9}})
    [trial] = await handle(hpo, HANDLERS, no_value)
    assert isinstance(trial, TrialFailed)
    assert trial.detail == "the job reported no value of loss"
    trial, study = await handle(hpo, HANDLERS, failed(third, "exit code 1"))
    assert isinstance(study, StudyFailed)
    assert (study.reason, study.num_failed) == ("all_trials_failed", 3)
    assert study.detail == (
        "all 3 trials failed; the commonest cause, 2 of 3 times: the job failed: exit code 1"
    )


async def test_a_cancelled_job_fails_its_trial(hpo: Database) -> None:
    payloads = await handle(hpo, HANDLERS, make_request(max_trials=1))
    [command] = of_type(payloads, JobSubmit)
    cancelled = JobCancelled(
        job_id=command.job_id, reason="enough", finished_at=FINISHED_AT, trial=command.trial
    )
    trial, _ = await handle(hpo, HANDLERS, make_event(cancelled))
    assert isinstance(trial, TrialFailed)
    assert trial.detail == "the job was cancelled: enough"


async def test_every_end_twice_and_in_any_order_gives_the_same_study(
    database: OpenDatabase,
) -> None:
    """Two studies of one request, their trials ending in different orders, doubled."""
    outcomes = []
    for seed in (1, 2):
        hpo = await database("hpo")
        shuffle = random.Random(seed)
        waiting = of_type(
            await handle(hpo, HANDLERS, make_request(max_trials=8, max_parallel_trials=3)),
            JobSubmit,
        )
        while waiting:
            command = waiting.pop(shuffle.randrange(len(waiting)))
            end = succeeded(command, abs(command.trial.number - 5) / 10)
            waiting += of_type(await handle(hpo, HANDLERS, end), JobSubmit)
            # The same record again, and the same fact under another id.
            assert await handle(hpo, HANDLERS, end, succeeded(command, 0.0)) == []
        payloads = await everything(hpo)
        [study] = of_type(payloads, StudyCompleted)
        assert study.best_number == 5
        numbers = [trial.number for trial in of_type(payloads, TrialCompleted)]
        assert sorted(numbers) == list(range(8))
        outcomes.append(
            (
                study.model_dump(exclude={"finished_at"}),
                of_type(payloads, TrialProposed),
                of_type(payloads, JobSubmit),
            )
        )
    assert outcomes[0] == outcomes[1]


async def test_ends_that_are_read_before_their_study_count(database: OpenDatabase) -> None:
    first = await database("hpo")
    commands = of_type(await handle(first, HANDLERS, make_request()), JobSubmit)
    ends = [succeeded(command, 0.1 * number) for number, command in enumerate(commands, 1)]

    late = await database("hpo")
    assert await handle(late, HANDLERS, *reversed(ends)) == []
    payloads = await handle(late, HANDLERS, make_request())
    assert [trial.number for trial in of_type(payloads, TrialCompleted)] == [0, 1]
    assert [trial.number for trial in of_type(payloads, TrialProposed)] == [0, 1, 2]


async def test_jobs_that_are_nobodys_trial_change_nothing(hpo: Database) -> None:
    payloads = await handle(hpo, HANDLERS, make_request())
    command = of_type(payloads, JobSubmit)[0]
    ordinary = succeeded(command, 0.1, trial=None)
    claimed = succeeded(command, 0.1, job_id="job_" + "a" * 26)
    assert await handle(hpo, HANDLERS, ordinary, claimed) == []
    assert of_type(await handle(hpo, HANDLERS, succeeded(command, 0.3)), TrialCompleted)


async def test_only_the_answer_to_our_own_command_fails_a_trial(hpo: Database) -> None:
    await handle(hpo, HANDLERS, make_request(max_trials=2, max_parallel_trials=1))
    [command] = [event for event in await emitted(hpo) if isinstance(event.payload, JobSubmit)]
    refusal = JobRequestRejected(
        job_id=command.payload.job_id,
        command_event_id="somebody-elses",
        reason=RejectionReason.ID_CONFLICT,
        detail="the request id is that of another job",
    )
    assert await handle(hpo, HANDLERS, make_event(refusal)) == []
    ours = refusal.model_copy(
        update={
            "command_event_id": command.event_id,
            "reason": RejectionReason.NO_SUCH_POOL,
            "detail": "there is no pool h200",
        }
    )
    trial, proposed, _ = await handle(hpo, HANDLERS, make_event(ours))
    assert isinstance(trial, TrialFailed)
    assert trial.detail == "the job was refused: no_such_pool: there is no pool h200"
    assert isinstance(proposed, TrialProposed)


async def test_a_grid_smaller_than_its_trials_ends_with_its_last_point(hpo: Database) -> None:
    space = {"b": {"type": "choice", "values": [1, 2]}, "a": {"type": "choice", "values": ["x"]}}
    payloads = await handle(
        hpo,
        HANDLERS,
        make_request(sampler="grid", space=space, max_trials=10, max_parallel_trials=10),
    )
    [started] = of_type(payloads, StudyStarted)
    assert started.num_trials == 2
    points = [trial.hyperparameters for trial in of_type(payloads, TrialProposed)]
    assert points == [{"a": "x", "b": 1}, {"a": "x", "b": 2}]
    for command, loss in zip(of_type(payloads, JobSubmit), (1.0, 0.5), strict=True):
        last = await handle(hpo, HANDLERS, succeeded(command, loss))
    assert isinstance(last[-1], StudyCompleted)
    assert last[-1].best_number == 1

    change = StudyChange(study_id=started.study_id, max_trials=10)
    changed, completed = await handle(hpo, HANDLERS, make_event(change))
    assert isinstance(changed, StudyChanged), "the same number again"
    assert isinstance(completed, StudyCompleted)
    assert (completed.best_number, completed.ended_by) == (1, "space_exhausted")


async def test_numbers_keep_their_types_on_their_way_through_rows(hpo: Database) -> None:
    values = [1e300, 1.0, 1, True]
    space = {"a": {"type": "choice", "values": values}}
    request = make_request(sampler="grid", space=space, max_trials=4, max_parallel_trials=4)
    commands = of_type(await handle(hpo, HANDLERS, request), JobSubmit)
    seen = []
    for command in commands:
        completed, *_ = await handle(hpo, HANDLERS, succeeded(command, 1.0))
        assert isinstance(completed, TrialCompleted)
        seen.append(completed.hyperparameters["a"])
    assert [(type(value), value) for value in seen] == [(type(value), value) for value in values]


async def test_a_request_that_crashed_half_way_is_handled_whole_the_next_time(
    hpo: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = make_request()
    with monkeypatch.context() as patch:
        patch.setattr("services.hpo.store.save_studies", _crash)
        with pytest.raises(RuntimeError):
            await handle(hpo, HANDLERS, request)
    assert await everything(hpo) == []
    payloads = await handle(hpo, HANDLERS, request)
    assert len(of_type(payloads, TrialProposed)) == 2


async def _crash(*_: object) -> None:
    raise RuntimeError("planted")


@pytest.mark.parametrize(
    ("data", "want_field"),
    [
        pytest.param({"spec": {"colour": 1}}, "spec.colour", id="unknown field"),
        pytest.param({"spec": {"max_trials": -1}}, "spec.max_trials", id="negative number"),
        pytest.param({"spec": {"space": {}}}, "spec.space", id="empty space"),
        pytest.param({"spec": {"job": {"name": "x"}}}, "spec.job", id="job without a command"),
        pytest.param(
            {"study_id": STUDY_ID[:-1] + "a"}, "study_id", id="study_id of another request"
        ),
        pytest.param(
            {
                "spec": {
                    "space": {f"s{index}": {"type": "choice", "values": [1]} for index in range(9)},
                    "job": {"hyperparameters": {f"h{index}": 1 for index in range(125)}},
                }
            },
            "job.hyperparameters",
            id="too many hyperparameters together",
        ),
    ],
)
async def test_an_invalid_request_is_answered_with_the_field(
    hpo: Database, data: dict[str, Any], want_field: str
) -> None:
    valid = make_spec().model_dump(mode="json", exclude_none=True)
    spec = {**valid, **data.pop("spec", {})}
    if "name" not in spec["job"]:
        spec["job"] = {**valid["job"], **spec["job"]}
    record = _record_of({"request_id": "study-1", "spec": spec, **data})
    [rejected] = await _process(hpo, record)
    assert isinstance(rejected, StudyRequestRejected)
    assert rejected.reason == "invalid_spec"
    assert rejected.study_id == STUDY_ID
    assert any(error.field.startswith(want_field) for error in rejected.errors), rejected.errors
    assert await _process(hpo, record) == []


@pytest.mark.parametrize("name", BAD_STUDIES)
async def test_a_study_that_cannot_be_searched_is_answered_with_the_field(
    hpo: Database, name: str
) -> None:
    changes, field = BAD_STUDIES[name]
    valid = make_spec().model_dump(mode="json", exclude_none=True)
    spec = {key: value for key, value in {**valid, **changes}.items() if value is not None}
    [rejected] = await _process(hpo, _record_of({"request_id": "study-1", "spec": spec}))
    assert isinstance(rejected, StudyRequestRejected)
    assert rejected.reason == "invalid_spec"
    [error] = rejected.errors
    assert error.field == f"spec.{field}"
    assert error.fix


async def test_a_request_without_an_id_cannot_be_answered_and_is_parked(hpo: Database) -> None:
    record = _record_of({"request_id": 7, "spec": {}})
    assert await _process(hpo, record) == []
    assert [facts["reason"] for facts in await parked(hpo)] == ["invalid_payload"]


async def test_a_study_whose_jobs_the_scheduler_would_refuse_is_refused_itself(
    hpo: Database,
) -> None:
    job = {**make_spec().job.model_dump(), "environment": {f"E{n}": "e" * 4000 for n in range(26)}}
    [rejected] = await handle(hpo, HANDLERS, make_request(job=job, max_trials=100_000))
    assert isinstance(rejected, StudyRequestRejected)
    assert rejected.reason == "invalid_spec"
    assert [error.field for error in rejected.errors] == ["job"]


async def test_a_command_may_name_what_is_searched_and_nothing_else(hpo: Database) -> None:
    job = make_spec().job.model_dump()
    known = [f"--{name}={{{name}}}" for name in make_spec().space]
    [rejected] = await handle(hpo, HANDLERS, make_request(job=job | {"command": ["t", "{depth}"]}))
    assert [(error.field, error.fix) for error in rejected.errors] == [
        ("job.command", "give a value for depth, or write {{depth}} for the text {depth}")
    ]
    accepted = await handle(hpo, HANDLERS, make_request(job=job | {"command": ["t", *known]}))
    assert isinstance(accepted[0], StudyStarted)


async def test_every_trial_satisfies_the_constraints_and_has_what_its_conditions_say(
    hpo: Database,
) -> None:
    number = {"type": "integer", "low": 1, "high": 64}
    momentum = {"type": "uniform", "low": 0.0, "high": 0.99, "when": {"optimizer": ["sgd"]}}
    space = {
        "width": number,
        "depth": number,
        "optimizer": {"type": "choice", "values": ["adam", "sgd"]},
        "solver": {"type": "group", "parameters": {"momentum": momentum}},
    }
    payloads = await handle(
        hpo,
        HANDLERS,
        make_request(
            space=space,
            constraints=["width * depth <= 64", "width > depth"],
            max_trials=20,
            max_parallel_trials=20,
        ),
    )
    jobs = of_type(payloads, JobSubmit)
    assert len(jobs) == 20
    for job in jobs:
        given = job.spec.hyperparameters
        assert given["width"] * given["depth"] <= 64
        assert given["width"] > given["depth"]
        assert ("solver__momentum" in given) == (given["optimizer"] == "sgd")


async def test_a_study_without_a_point_to_try_is_refused(hpo: Database) -> None:
    request = make_request(constraints=["learning_rate > 1"])
    [rejected] = await handle(hpo, HANDLERS, request)
    assert isinstance(rejected, StudyRequestRejected)
    [error] = rejected.errors
    assert error.field == "constraints.0"
    assert error.message == "no point satisfies it: 10,000 random points were tried"


async def test_a_study_fails_after_ten_refusals_in_a_row(hpo: Database) -> None:
    await handle(hpo, HANDLERS, make_request(max_trials=100_000, max_parallel_trials=1))
    for number in range(10):
        command = [one for one in await emitted(hpo) if isinstance(one.payload, JobSubmit)][-1]
        refusal = JobRequestRejected(
            job_id=command.payload.job_id,
            command_event_id=command.event_id,
            reason=RejectionReason.NO_SUCH_POOL,
            detail="there is no pool h200",
        )
        payloads = await handle(hpo, HANDLERS, make_event(refusal))
        if number < 9:
            assert of_type(payloads, JobSubmit)
    trial, failed = payloads
    assert isinstance(trial, TrialFailed)
    assert isinstance(failed, StudyFailed)
    assert (failed.reason, failed.num_failed) == ("trials_refused", 10)
    assert "there is no pool h200" in failed.detail
    assert await handle(hpo, HANDLERS, make_event(refusal)) == []


async def test_a_study_too_large_for_its_own_events_is_refused(hpo: Database) -> None:
    values = [f"{index:03d}" + "v" * 1020 for index in range(250)]
    [rejected] = await handle(
        hpo, HANDLERS, make_request(space={"a": {"type": "choice", "values": values}})
    )
    assert isinstance(rejected, StudyRequestRejected)
    assert rejected.reason == "too_large"


_offsets = itertools.count()


def _record_of(data: dict[str, Any]) -> Record:
    """A study.submit with this payload, valid or not."""
    record = make_record(make_request(), offset=next(_offsets))
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.key,
        json.dumps(data).encode(),
        record.headers,
    )


async def _process(hpo: Database, record: Record) -> list[Payload]:
    before = len(await everything_but_parked(hpo))
    processor = EventProcessor("hpo", "drivetrain.", HANDLERS, REFUSALS)
    async with hpo.transaction() as tx:
        await process(processor, tx, record)
    return (await everything_but_parked(hpo))[before:]


async def everything_but_parked(hpo: Database) -> list[Payload]:
    async with hpo.connection() as connection:
        count = await connection.fetchval("select count(*) from outbox where topic like '%parked%'")
    return [] if count else await everything(hpo)


def cancel_request(study_id: str = STUDY_ID, tenant_id: str = "default") -> Event[StudyCancel]:
    return make_event(StudyCancel(study_id=study_id, reason="enough"), tenant_id=tenant_id)


def cancelled(command: JobSubmit) -> Event[JobCancelled]:
    document = {
        "job_id": command.job_id,
        "reason": "its study was cancelled",
        "finished_at": FINISHED_AT,
        "trial": command.trial,
    }
    return make_event(JobCancelled.model_validate(document))


async def test_a_cancelled_study_cancels_its_jobs_and_ends_with_the_last_of_them(
    hpo: Database,
) -> None:
    first, second = of_type(await handle(hpo, HANDLERS, make_request(max_trials=9)), JobSubmit)
    (third,) = of_type(await handle(hpo, HANDLERS, succeeded(first, 0.5)), JobSubmit)
    cancelling, *stops = await handle(hpo, HANDLERS, cancel_request())
    assert isinstance(cancelling, StudyCancelling)
    assert stops == [
        JobCancel(job_id=str(command.job_id), reason="its study was cancelled")
        for command in (second, third)
    ]
    assert await handle(hpo, HANDLERS, cancel_request()) == [], "a repeated request does nothing"
    (settled,) = await handle(hpo, HANDLERS, cancelled(third))
    assert isinstance(settled, TrialFailed)
    settled, ended = await handle(hpo, HANDLERS, succeeded(second, 0.25))
    assert isinstance(settled, TrialCompleted), "a result that came before the cancel counts"
    assert isinstance(ended, StudyCancelled)
    assert (ended.num_completed, ended.num_failed, ended.reason) == (2, 1, "enough")
    assert (ended.best_number, ended.best_value) == (1, 0.25)
    (late,) = await handle(hpo, HANDLERS, cancel_request())
    assert isinstance(late, StudyCancelRejected)
    assert late.reason == "already_finished"


async def test_a_study_of_nobody_and_of_another_tenant_is_not_cancelled(hpo: Database) -> None:
    await handle(hpo, HANDLERS, make_request())
    for request in (cancel_request(study_id_for("default", "x")), cancel_request(tenant_id="b")):
        (rejected,) = await handle(hpo, HANDLERS, request)
        assert isinstance(rejected, StudyCancelRejected)
        assert (rejected.reason, rejected.command_event_id) == ("no_such_study", request.event_id)


async def test_the_refusal_of_a_cancel_of_ours_ends_no_trial(hpo: Database) -> None:
    """The job succeeded before the scheduler read the command."""
    (command,) = of_type(
        await handle(hpo, HANDLERS, make_request(max_parallel_trials=1)), JobSubmit
    )
    await handle(hpo, HANDLERS, cancel_request())
    refusal = JobRequestRejected(
        job_id=str(command.job_id),
        command_event_id="of-our-cancel",
        reason=RejectionReason.ALREADY_FINISHED,
        detail="the job has ended",
    )
    assert await handle(hpo, HANDLERS, make_event(refusal)) == []
    payloads = await handle(hpo, HANDLERS, succeeded(command, 0.5))
    assert [type(payload) for payload in payloads] == [TrialCompleted, StudyCancelled]


async def test_the_value_of_the_safety_metric_is_told_with_the_end_of_a_trial(
    hpo: Database,
) -> None:
    """Of a trial of the study, and of one from elsewhere; without that metric there is none."""
    safety = {"metric": "memory", "max": 4.0}
    fields = {"sampler": "random", "max_trials": 3, "max_parallel_trials": 1, "safety": safety}
    submit = make_request("default", **fields)
    point = {"learning_rate": 0.05}
    known = [
        {"hyperparameters": point, "values": [0.5], "safety": 3.0},
        {"hyperparameters": point, "values": [0.4]},
    ]
    request = {**submit.payload.model_dump(mode="json"), "trials": known}
    told = await handle(hpo, HANDLERS, make_event(StudyImport.model_validate(request)))
    [job] = of_type(told, JobSubmit)
    result = {"step": 10, "metrics": {"loss": 0.3, "memory": 6.5}}
    told += await handle(hpo, HANDLERS, succeeded(job, 0.3, result=result))
    found = [(one.number, one.is_safe, one.safety) for one in of_type(told, TrialCompleted)]
    assert found == [(0, True, 3.0), (1, False, None), (2, False, 6.5)]
