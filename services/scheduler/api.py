"""The read API of the scheduler: a job's position in the queue. Only the gateway forwards to it.

A position changes with every grant ahead of it, so no event carries it: it is computed from the
loop's state on request.
"""

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from drivetrain_schemas.ids import JobId
from drivetrain_schemas.jobs import Holder, JobState, WaitingReason
from services.runtime.operations import ASGIApp
from services.scheduler.core.reasons import position_of
from services.scheduler.loop import Loop
from services.scheduler.transitions import detail_and_holders


class QueuePosition(BaseModel):
    """`queue_position` counts from 1 within the pool. `reason` is None until the first cycle."""

    job_id: str
    queue_position: int
    reason: WaitingReason | None
    detail: str | None
    holders: tuple[Holder, ...]


def read_api(loop: Loop) -> ASGIApp:
    app = FastAPI(title="Drivetrain scheduler", docs_url=None, redoc_url=None)

    @app.get("/queue/{job_id}")
    async def position(job_id: JobId) -> QueuePosition:
        if loop.shown is None:
            raise HTTPException(503, "this scheduler is not the leader")
        state, decision = loop.shown
        job = state.jobs.get(job_id)
        if job is None or job.state is not JobState.QUEUED:
            raise HTTPException(404, f"{job_id} is not waiting")
        found = position_of(job.queued, state.snapshot, decision.waiting)
        detail, holders = detail_and_holders(state.jobs, job, found.detail, found.holders)
        return QueuePosition(
            job_id=job_id,
            queue_position=found.position,
            reason=found.reason,
            detail=detail or None,
            holders=holders,
        )

    return app
