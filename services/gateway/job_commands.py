"""Commands about a job that exists: stop, pause, resume, annotate.

They are sent and confirmed as `commands` says.

A command is confirmed by what the read model then has of the job.
"""

from drivetrain_schemas.annotations import JobAnnotate
from drivetrain_schemas.jobs import JobPause, JobResume, JobState, JobStop
from services.gateway import queries
from services.gateway.commands import Row, carry_out, event_id_of_key, read
from services.gateway.context import Gateway

JobCommand = JobStop | JobPause | JobResume | JobAnnotate


async def change_job(
    gateway: Gateway, tenant_id: str, command: JobCommand, key: str | None
) -> bool:
    """True once the scheduler has accepted it; False without an answer yet. Raises Problem."""
    event_id = event_id_of_key(command.kind.type, tenant_id, command.job_id, key)

    async def found() -> bool | None:
        job = await read(gateway, queries.jobs.find, tenant_id, command.job_id)
        return True if job is not None and _is_done(command, job) else None

    return bool(await carry_out(gateway, tenant_id, event_id, command, found))


def _is_done(command: JobCommand, job: Row) -> bool:
    requested, state = job["requested"], job["state"]
    match command:
        case JobStop():
            return bool(requested == "stop" or state == JobState.STOPPED)
        case JobPause():
            return bool(requested == "pause" or state == JobState.PAUSED)
        case JobResume():
            is_live = job["finished_at"] is None and not job["is_cancelling"]
            return bool(is_live and requested is None and state != JobState.PAUSED)
        case JobAnnotate():
            tags = set(job["tags"] or ())
            return (
                tags.issuperset(command.add_tags)
                and tags.isdisjoint(command.remove_tags)
                and command.note in (None, job["note"] or "")
                and command.project in (None, job["project"] or "")
            )
