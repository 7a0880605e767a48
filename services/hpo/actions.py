"""Carries out a search's actions in the handler's transaction: events and job commands.

The rows of studies and trials are written by `work`, from the search itself.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import JobCancel, JobPause, JobResume, JobStop, TrialOf
from drivetrain_schemas.specs import StartFrom
from drivetrain_schemas.studies import (
    StudyCancelled,
    StudyCompleted,
    StudyFailed,
    StudySpec,
    StudyStopping,
)
from drivetrain_schemas.trials import (
    TrialCompleted,
    TrialFailed,
    TrialJudged,
    TrialPaused,
    TrialPromoted,
    TrialProposed,
    TrialStopped,
    TrialStopping,
)
from services.hpo import instruments, messages, spending, store
from services.hpo.core import actions as core
from services.hpo.core.ending import MAX_REFUSED_IN_ROW
from services.hpo.core.savings import saved_per_step_run
from services.hpo.core.search import Search
from services.hpo.core.status import Status
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()

# Thousands of trials may end at once: the event loop goes on after so many of them.
_AT_A_TIME = 100
# Actions that end a study.
ENDS = (core.FinishStudy, core.FailStudy, core.FinishCancel)


@dataclass(frozen=True, slots=True)
class Carried:
    """What carrying out needs: the study, and its search after the decision."""

    tx: Tx
    study: store.StudyRow
    spec: StudySpec
    search: Search
    cause: Event[Payload] | None

    async def emit(self, payload: Payload) -> str:
        return await self.tx.emit(payload, tenant_id=self.study.tenant_id, cause=self.cause)

    def job_id(self, number: int) -> str:
        return messages.job_id_of(self.study.tenant_id, self.study.study_id, number)

    def of_trial(self, number: int) -> dict[str, Any]:
        """The fields that every event of a trial has."""
        return {
            "study_id": self.study.study_id,
            "number": number,
            "job_id": self.job_id(number),
        }

    def point(self, number: int) -> dict[str, Any]:
        return self.search.trials[number].point


@dataclass(slots=True)
class Outcome:
    """What the rows need besides: jobs of new trials, texts, and a refusal."""

    new: dict[int, store.NewTrial] = field(default_factory=dict)
    details: dict[int, str] = field(default_factory=dict)
    refused: core.Refuse | None = None


async def carry_out(at: Carried, decided: tuple[core.Action, ...]) -> Outcome:
    """Everything but the end of the study, which needs the rows of its trials."""
    outcome = Outcome()
    for place, action in enumerate(decided, start=1):
        if place % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        match action:
            case core.ProposeTrial():
                outcome.new[action.number] = await _propose(at, action)
            case core.JudgeTrial():
                await _judge(at, action)
            case core.CompleteTrial():
                await _complete(at, action)
            case core.FailTrial():
                outcome.details[action.number] = action.detail[: messages.MAX_DETAIL]
                await _fail(at, action)
            case core.SettleStopped() | core.DropTrial():
                outcome.details[action.number] = action.reason[: messages.MAX_DETAIL]
                await _settle_stopped(at, action)
            case core.EndEarly():
                stopping = StudyStopping(
                    study_id=at.study.study_id, ended_by=action.ended_by, reason=action.reason
                )
                await at.emit(stopping)
                log.info("study ends early", study_id=at.study.study_id, by=action.ended_by)
            case core.Refuse():
                outcome.refused = action
            case core.FinishStudy() | core.FailStudy() | core.FinishCancel():
                pass  # see `finish`
            case _:
                await _move(at, action)
    return outcome


async def finish(at: Carried, decided: tuple[core.Action, ...]) -> None:
    """The end of the study, once the rows of its trials are written."""
    for action in decided:
        match action:
            case core.FinishStudy():
                await _finish(at, action)
            case core.FailStudy():
                await _give_up(at, action)
            case core.FinishCancel():
                await _cancel(at, action)
            case _:
                pass


async def _propose(at: Carried, action: core.ProposeTrial) -> store.NewTrial:
    number, job_id = action.number, at.job_id(action.number)
    has_job = not (at.spec.external or action.is_imported)
    proposed = TrialProposed(
        **at.of_trial(number),
        hyperparameters=action.point,
        why=action.why,
        parent=action.parent,
        rungs=action.rungs,
        request_id=action.request_id,
        is_external=not has_job,
    )
    await at.emit(proposed)
    command_event_id = ""
    if has_job:
        start_from = None
        if action.parent is not None:
            start_from = StartFrom(job_id=at.job_id(action.parent), checkpoint="newest")
        job = messages.trial_job(at.spec, number, action.point, start_from)
        trial = TrialOf(study_id=at.study.study_id, number=number, rungs=action.rungs)
        command = messages.trial_command(at.study.tenant_id, trial, job)
        command_event_id = await at.emit(command)
    at.tx.after_commit(instruments.TRIALS_PROPOSED.inc)
    log.info("trial proposed", study_id=at.study.study_id, number=number, job_id=job_id)
    return store.NewTrial(job_id, command_event_id, action.request_id)


async def _judge(at: Carried, action: core.JudgeTrial) -> None:
    judgement = action.judgement
    judged = TrialJudged(
        **at.of_trial(action.number),
        step=action.step,
        value=action.value,
        verdict=judgement.verdict.value,
        reason=judgement.reason,
        threshold=judgement.threshold,
        rank=judgement.rank,
        num_ranked=judgement.num_ranked,
    )
    await at.emit(judged)
    verdict = judgement.verdict.value
    at.tx.after_commit(instruments.RUNGS_MEASURED.labels(_pruner(at), verdict).inc)


async def _move(at: Carried, action: core.Action) -> None:
    """Commands to the job of a trial that has not ended; an external trial has none."""
    match action:
        case core.StopTrial(number=number, reason=reason):
            await at.emit(TrialStopping(**at.of_trial(number), reason=reason))
            await _command(at, _stop_command(at, number, reason))
            log.info("trial stopping", study_id=at.study.study_id, number=number, reason=reason)
        case core.PauseTrial(number=number, reason=reason):
            await _command(
                at, JobPause(job_id=at.job_id(number), reason=reason[: messages.MAX_REASON])
            )
            log.info("trial pausing", study_id=at.study.study_id, number=number, reason=reason)
        case core.SettlePaused(number=number, reason=reason):
            measured = at.search.trials[number].measured
            step = measured[-1].step if measured else None
            await at.emit(TrialPaused(**at.of_trial(number), step=step, reason=reason))
        case core.PromoteTrial(number=number, why=why):
            await at.emit(TrialPromoted(**at.of_trial(number), why=why))
            if not action.is_resumed:
                await _command(at, JobResume(job_id=at.job_id(number)))
            at.tx.after_commit(instruments.TRIALS_PROMOTED.inc)
            log.info("trial promoted", study_id=at.study.study_id, number=number)
        case core.ResumeJob(number=number):
            await at.emit(TrialPromoted(**at.of_trial(number), why="its study was resumed"))
            await _command(at, JobResume(job_id=at.job_id(number)))
        case core.CancelTrial(number=number):
            reason = "its study was cancelled"
            await _command(at, JobCancel(job_id=at.job_id(number), reason=reason))
        case _:
            raise AssertionError(f"no case carries out {action}")


def _stop_command(at: Carried, number: int, reason: str) -> JobStop:
    return JobStop(
        job_id=at.job_id(number),
        reason=reason[: messages.MAX_REASON],
        checkpoint=at.spec.checkpoint_stopped,
    )


async def _command(at: Carried, command: Payload) -> None:
    if not at.spec.external:
        await at.emit(command)


async def _complete(at: Carried, action: core.CompleteTrial) -> None:
    completed = TrialCompleted(
        **at.of_trial(action.number),
        hyperparameters=at.point(action.number),
        value=action.values[0],
        is_best=action.is_best,
        values=action.values,
        is_safe=action.is_safe,
        safety=action.safety,
    )
    await at.emit(completed)
    _note_end(at, action.number, "completed")


async def _fail(at: Carried, action: core.FailTrial) -> None:
    failed = TrialFailed(
        **at.of_trial(action.number),
        hyperparameters=at.point(action.number),
        detail=action.detail[: messages.MAX_DETAIL],
    )
    await at.emit(failed)
    _note_end(at, action.number, "failed")


async def _settle_stopped(at: Carried, action: core.SettleStopped | core.DropTrial) -> None:
    measured = [one for one in at.search.trials[action.number].measured if one.value is not None]
    stopped = TrialStopped(
        **at.of_trial(action.number),
        hyperparameters=at.point(action.number),
        step=measured[-1].step if measured else None,
        value=measured[-1].value if measured else None,
        reason=action.reason,
    )
    await at.emit(stopped)
    if isinstance(action, core.DropTrial):
        await _command(at, _stop_command(at, action.number, action.reason))
    at.tx.after_commit(instruments.TRIALS_STOPPED.labels(_pruner(at), _why_stopped(at, action)).inc)
    _note_end(at, action.number, "stopped")


def _why_stopped(at: Carried, action: core.SettleStopped | core.DropTrial) -> str:
    if isinstance(action, core.SettleStopped) and not action.is_asked:
        return "outside"
    return "study" if at.search.status.is_ending else "pruner"


async def _finish(at: Carried, action: core.FinishStudy) -> None:
    end = await _end(at, action)
    completed = StudyCompleted.model_validate(
        {**end, "ended_by": action.ended_by, "pareto": action.pareto}
    )
    await at.emit(completed)
    at.tx.after_commit(instruments.STUDIES_COMPLETED.inc)
    if share := saved_per_step_run(at.search.trials, at.spec.job.max_steps or 0):
        used = await spending.device_seconds(at.tx.connection, at.study.study_id)
        at.tx.after_commit(partial(instruments.SAVED_DEVICE_SECONDS.inc, share * used))
    log.info("study completed", study_id=at.study.study_id, best_number=completed.best_number)


async def _cancel(at: Carried, action: core.FinishCancel) -> None:
    end = await _end(at, action)
    cancelled = StudyCancelled.model_validate({**end, "reason": at.study.cancel_reason or ""})
    await at.emit(cancelled)
    at.tx.after_commit(instruments.STUDIES_CANCELLED.inc)
    log.info("study cancelled", study_id=at.study.study_id, best_number=cancelled.best_number)


async def _end(at: Carried, action: core.FinishStudy | core.FinishCancel) -> dict[str, Any]:
    """What both ends of a study say; the study is marked as ended."""
    best, study, status = action.best, at.study, at.search.status
    return {
        "study_id": study.study_id,
        "num_completed": status.num_completed,
        "num_failed": status.num_failed,
        "num_stopped": status.num_stopped,
        "best_number": best.number if best else None,
        "best_job_id": at.job_id(best.number) if best else None,
        "best_value": best.value if best else None,
        "best_hyperparameters": at.point(best.number) if best else None,
        "metric": messages.metric_of(at.spec),
        "finished_at": await store.finish_study(at.tx.connection, study.study_id),
    }


async def _give_up(at: Carried, action: core.FailStudy) -> None:
    study, status = at.study, at.search.status
    cause, num = await store.commonest_failure(at.tx.connection, study.study_id)
    failed = StudyFailed(
        study_id=study.study_id,
        reason=action.reason,
        detail=_why_failed(action.reason, cause, num, status),
        num_completed=status.num_completed,
        num_failed=status.num_failed,
        num_stopped=status.num_stopped,
        finished_at=await store.finish_study(at.tx.connection, study.study_id),
    )
    await at.emit(failed)
    at.tx.after_commit(instruments.STUDIES_FAILED.inc)
    log.warning("study failed", study_id=study.study_id, detail=failed.detail)


def _why_failed(
    reason: Literal["trials_refused", "failed_trials", "all_trials_failed"],
    cause: str,
    num: int,
    status: Status,
) -> str:
    num_failed = status.num_failed
    match reason:
        case "trials_refused":
            text = f"{MAX_REFUSED_IN_ROW} or more trials in a row could not run"
        case "failed_trials":
            text = f"{status.num_failed_here} trials failed, as many as limits.failed_trials allows"
        case "all_trials_failed":
            text = f"all {num_failed} trials failed"
    often = "" if num == num_failed else f", {num} of {num_failed} times"
    return f"{text}; the commonest cause{often}: {cause}"[: messages.MAX_DETAIL]


def _pruner(at: Carried) -> str:
    return "none" if at.spec.pruner is None else str(at.spec.pruner.type)


def _note_end(at: Carried, number: int, state: str) -> None:
    at.tx.after_commit(instruments.TRIALS_ENDED.labels(state).inc)
    log.info("trial ended", study_id=at.study.study_id, number=number, state=state)
