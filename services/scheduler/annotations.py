"""The command `job.annotate`: tags, note and project of a job, in any state and after its end."""

from drivetrain_schemas.annotations import JobAnnotate, JobAnnotated
from drivetrain_schemas.envelope import Cause, Event
from drivetrain_schemas.jobs import RejectionReason
from services.runtime import logs
from services.runtime.transaction import Tx
from services.scheduler import instruments, store, store_annotations
from services.scheduler.answers import reject
from services.scheduler.core.admission import Refusal
from services.scheduler.core.annotations import TooManyTags, annotate

log = logs.get()


async def handle(tx: Tx, event: Event[JobAnnotate]) -> None:
    """Load -> decide -> save -> emit. The caller holds the writer lock."""
    command, job_id = event.payload, event.payload.job_id
    job = await store.job(tx.connection, job_id)
    if job is None or job.tenant_id != event.tenant_id:
        refusal = Refusal(RejectionReason.NO_SUCH_JOB, f"there is no job {job_id}", "job_id")
        await _refuse(tx, event, refusal)
        return
    after = annotate(await store_annotations.of_job(tx.connection, job_id), command)
    if isinstance(after, TooManyTags):
        fix = "remove some with remove_tags"
        await _refuse(tx, event, Refusal(RejectionReason.INVALID_SPEC, after.why, "add_tags", fix))
    elif after is not None:
        await store_annotations.put(tx.connection, job_id, after)
        annotated = JobAnnotated(
            job_id=job_id, tags=after.tags, note=after.note, project=after.project
        )
        await tx.emit(annotated, tenant_id=event.tenant_id, cause=event)
        tx.after_commit(instruments.REQUESTS.labels("annotated").inc)
        log.info("job annotated", job_id=job_id, tenant_id=event.tenant_id)


async def _refuse(tx: Tx, event: Event[JobAnnotate], refusal: Refusal) -> None:
    cause = Cause(event.event_id, event.correlation_id, event.traceparent)
    await reject(tx, cause, event.tenant_id, event.payload.job_id, refusal)
