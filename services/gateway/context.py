"""What every route works with: the live adapters, and the caller."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request

from drivetrain_schemas.ids import DEFAULT_TENANT
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.studies import StudySpec
from services.gateway.backends import Backends
from services.gateway.live import Live
from services.gateway.model_age import ModelAge
from services.gateway.settings import GatewaySettings
from services.gateway.stored_files import KeptLists
from services.runtime.service import Platform

MAX_REMEMBERED = 1000
MAX_DOWNLOADS = 32
MAX_DOWNLOADS_OF_JOB = 8
MAX_READS_OF_LISTS = 4
MAX_READS_OF_MEDIA = 8
MAX_UPLOADS_IN_MEMORY = 4


@dataclass(frozen=True, slots=True)
class Submission:
    """A request that this process has sent and the read model may not know yet."""

    tenant_id: str
    subject_id: str
    request_id: str
    spec: JobSpec | StudySpec
    submitted_at: datetime


@dataclass(slots=True)
class Submissions:
    """The newest submissions of this process, so that their pages work immediately."""

    _by_id: OrderedDict[str, Submission] = field(default_factory=OrderedDict)

    def remember(self, submission: Submission) -> None:
        self._by_id[submission.subject_id] = submission
        while len(self._by_id) > MAX_REMEMBERED:
            self._by_id.popitem(last=False)

    def get(self, tenant_id: str, subject_id: str) -> Submission | None:
        """None where this tenant has sent no such request."""
        found = self._by_id.get(subject_id)
        return found if found is not None and found.tenant_id == tenant_id else None


@dataclass(slots=True)
class Downloads:
    """How many are going on, by job: each holds a part of a file in memory."""

    by_job: Counter[str] = field(default_factory=Counter)

    def refusal(self, job_id: str) -> str:
        """Why no other one may begin now; empty where one may."""
        if self.by_job[job_id] >= MAX_DOWNLOADS_OF_JOB:
            return f"{MAX_DOWNLOADS_OF_JOB} downloads from this job are going on"
        if self.by_job.total() >= MAX_DOWNLOADS:
            return f"{MAX_DOWNLOADS} downloads are going on"
        return ""

    @contextmanager
    def one(self, job_id: str) -> Iterator[None]:
        self.by_job[job_id] += 1
        try:
            yield
        finally:
            self.by_job[job_id] -= 1
            if not self.by_job[job_id]:
                del self.by_job[job_id]


@dataclass(frozen=True, slots=True)
class Gateway:
    """Everything a route may use."""

    settings: GatewaySettings
    platform: Platform
    live: Live
    backends: Backends
    model_age: ModelAge = field(default_factory=ModelAge)
    submissions: Submissions = field(default_factory=Submissions)
    downloads: Downloads = field(default_factory=Downloads)
    lists: KeptLists = field(default_factory=KeptLists)
    # A list of files has up to 32 MiB, and several times that in memory.
    reads_of_lists: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_READS_OF_LISTS)
    )
    # One of them has up to 25 MB.
    reads_of_media: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_READS_OF_MEDIA)
    )
    # Archives on their way from a temporary file to the object store, of up to 64 MiB each.
    uploads_in_memory: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(MAX_UPLOADS_IN_MEMORY)
    )


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller. One tenant for now."""

    tenant_id: str = DEFAULT_TENANT


def _gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


def caller_of() -> Caller:
    return Caller()


GatewayDep = Annotated[Gateway, Depends(_gateway)]
CallerDep = Annotated[Caller, Depends(caller_of)]
