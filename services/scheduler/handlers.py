"""Commands about jobs: submit, annotate, and cancel, stop, pause and resume.

A batch of commands is one transaction under the writer lock: load -> decide -> save -> emit, and
then the loop is woken. N submissions use as many statements as one. A refusal is a
`job_request.rejected` that names the command; it changes no job.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from drivetrain_schemas.annotations import JobAnnotate
from drivetrain_schemas.base import Payload, canonical_json
from drivetrain_schemas.envelope import Cause, Event
from drivetrain_schemas.ids import job_id_for
from drivetrain_schemas.jobs import JobQueued, JobSubmit, RejectionReason
from drivetrain_schemas.specs import spec_bytes
from drivetrain_schemas.submission import problems
from services.runtime import logs
from services.runtime.errors import TemporaryError
from services.runtime.processing import HandlerTable, RefusalTable
from services.runtime.transaction import Tx
from services.scheduler import annotations, early_commands, holds, instruments, store
from services.scheduler.answers import refuse_invalid, reject
from services.scheduler.core.admission import Offer, Refusal, Request, refuse
from services.scheduler.job_commands import VERBS
from services.scheduler.store import KnownRequest, NewJob

log = logs.get()

# A new process becomes the leader immediately, unless its predecessor is still stopping.
REGISTERED_SECONDS = 5.0


class Commands:
    """The handlers of one scheduler.

    `wake` ends the loop's wait. A command is handled only once the nodes are `registered`: before
    that every pool is unknown.
    """

    def __init__(
        self, wake: Callable[[], None], registered: asyncio.Event, *, can_run_images: bool
    ) -> None:
        self._wake = wake
        self._registered = registered
        self._can_run_images = can_run_images

    @property
    def handlers(self) -> HandlerTable:
        kinds: tuple[type[Payload], ...] = (JobSubmit, JobAnnotate, *VERBS, *holds.BUDGET_EVENTS)
        return dict.fromkeys(kinds, self.on_command)

    @property
    def refusals(self) -> RefusalTable:
        return dict.fromkeys((JobSubmit, JobAnnotate, *VERBS), refuse_invalid)

    async def on_command(self, tx: Tx, event: Event[Any]) -> None:
        await self.on_batch(tx, [event])

    async def on_batch(self, tx: Tx, events: Sequence[Event[Any]]) -> None:
        """Handle these commands in order."""
        try:
            async with asyncio.timeout(REGISTERED_SECONDS):
                await self._registered.wait()
        except TimeoutError:
            raise TemporaryError(
                "the scheduler is not the leader yet, and its nodes are unknown"
            ) from None
        await store.lock(tx.connection)
        tx.after_commit(self._wake)
        if isinstance(events[0].payload, holds.BUDGET_EVENTS):
            # Of their own topic: a batch holds nothing else.
            for event in events:
                await holds.handle(tx, event)
            return
        for is_submit, group in groupby(events, lambda event: isinstance(event.payload, JobSubmit)):
            if is_submit:
                await self._submit(tx, list(group))
                continue
            for event in group:
                if isinstance(event.payload, JobAnnotate):
                    await annotations.handle(tx, event)
                    continue
                await early_commands.handle(tx, event)

    async def _submit(self, tx: Tx, events: Sequence[Event[JobSubmit]]) -> None:
        """Accept each request, recognise it as a repetition, or refuse it."""
        ids = [job_id_for(event.tenant_id, event.payload.request_id) for event in events]
        known = await store.known_requests(tx.connection, set(ids))
        offer = Offer(await store.capacities(tx.connection), self._can_run_images)
        answers = judge(list(zip(ids, events, strict=True)), known, offer)
        accepted = [NewJob(it.job_id, it.event) for it in answers if it.refusal is None]
        queued_at = await store.insert_jobs(tx.connection, accepted) if accepted else {}
        for answer in answers:
            job_id, event = answer.job_id, answer.event
            if answer.refusal is not None:
                cause = Cause(event.event_id, event.correlation_id, event.traceparent)
                request_id = event.payload.request_id
                await reject(tx, cause, event.tenant_id, job_id, answer.refusal, request_id)
                continue
            queued = JobQueued(
                job_id=job_id,
                request_id=event.payload.request_id,
                spec=event.payload.spec,
                trial=event.payload.trial,
                queued_at=queued_at[job_id],
            )
            await tx.emit(queued, tenant_id=event.tenant_id, cause=event)
            log.info("job queued", job_id=job_id, tenant_id=event.tenant_id)
        _count(tx, "accepted", len(accepted))
        _count(tx, "known", len(events) - len(answers))
        await early_commands.apply_early(tx, [job.job_id for job in accepted])


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a submission; without a refusal it was accepted."""

    job_id: str
    event: Event[JobSubmit]
    refusal: Refusal | None = None


def judge(
    requests: Sequence[tuple[str, Event[JobSubmit]]],
    known: Mapping[str, KnownRequest],
    offer: Offer,
) -> Sequence[Answer]:
    """The answers in order. A request that is known already, also from earlier in the batch, and
    asks for the same is not answered again."""
    known = dict(known)
    answers = []
    for job_id, event in requests:
        payload = event.payload
        before = known.get(job_id)
        if payload.job_id not in (None, job_id):
            answers.append(Answer(job_id, event, _wrong_job_id(job_id)))
        elif before is not None and not _is_same(before, payload):
            answers.append(Answer(job_id, event, _conflict(before)))
        elif before is None:
            refusal = refuse(_request(payload), offer)
            answers.append(Answer(job_id, event, refusal))
            if refusal is None:
                known[job_id] = KnownRequest(
                    payload.request_id, event.event_id, payload.spec, payload.trial
                )
    return answers


def _request(payload: JobSubmit) -> Request:
    spec = payload.spec
    return Request(
        pool=spec.resources.pool,
        devices=spec.resources.devices,
        device_type=spec.resources.device_type,
        has_image=spec.image is not None,
        num_spec_bytes=spec_bytes(spec),
        problem=next(problems(spec), None),
    )


def _count(tx: Tx, answer: str, number: int) -> None:
    counter = instruments.REQUESTS.labels(answer)
    tx.after_commit(lambda: counter.inc(number))


def _is_same(known: KnownRequest, payload: JobSubmit) -> bool:
    # A trial has no value that Python and JSON compare differently.
    return known.trial == payload.trial and (
        canonical_json(known.spec) == canonical_json(payload.spec)
    )


def _conflict(known: KnownRequest) -> Refusal:
    detail = (
        f"request_id {known.request_id!r} was used with another payload "
        f"by the event {known.command_event_id}"
    )
    fix = "take a new request_id, or send the first payload again"
    return Refusal(RejectionReason.ID_CONFLICT, detail, "request_id", fix)


def _wrong_job_id(job_id: str) -> Refusal:
    detail = "job_id does not follow from tenant and request_id"
    return Refusal(
        RejectionReason.INVALID_SPEC, detail, "job_id", f"leave it out, or write {job_id}"
    )
