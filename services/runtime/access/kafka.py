"""Make the broker's access lists match the table: create what is missing, delete the rest.

In: the administrator's connection and the wanted entries. Out: how many were created and deleted.
aiokafka's admin client has no calls for access lists, so the requests are made here.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import for_code
from aiokafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from services.runtime.access.acls import Acl, Changes, changes

ANY = 1
ANY_HOST = "*"
USER = "User:"
TIMEOUT_MS = 10_000


class Connection(Protocol):
    """An administrator's."""

    def options(self) -> Mapping[str, Any]:
        """Of aiokafka's clients."""


class Refused(RuntimeError):
    """The broker refused a request about access lists or quotas."""


class _Create(CreateAclsRequest):  # type: ignore[misc]
    """aiokafka's takes one entry; the protocol takes many."""

    def __init__(self, acls: Sequence[Acl]) -> None:
        self._acls = acls

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([_fields(acl) for acl in self._acls])


class _Delete(DeleteAclsRequest):  # type: ignore[misc]
    def __init__(self, acls: Sequence[Acl]) -> None:
        self._acls = acls

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([_fields(acl) for acl in self._acls])


async def apply_acls(
    connection: Connection,
    wanted: Collection[Acl],
    is_ours: Callable[[Acl], bool] = lambda acl: True,
) -> Changes:
    """Entries that are not ours stay as they are.

    Raises KafkaError when the broker does not answer, and `Refused`.
    """
    async with administering(connection) as client:
        found = changes(await _present(client), wanted, is_ours)
        if found.missing:
            answer = await send(client, _Create(found.missing))
            check((code, text) for code, text in answer.creation_responses)
        if found.surplus:
            answer = await send(client, _Delete(found.surplus))
            check((code, text) for code, text, _ in answer.filter_responses)
        await _until_applied(client, wanted, is_ours)
        return found


@asynccontextmanager
async def administering(connection: Connection) -> AsyncIterator[AIOKafkaClient]:
    client = AIOKafkaClient(**{**connection.options(), "request_timeout_ms": TIMEOUT_MS})
    await client.bootstrap()
    try:
        yield client
    finally:
        await client.close()


async def _until_applied(
    client: AIOKafkaClient, wanted: Collection[Acl], is_ours: Callable[[Acl], bool]
) -> None:
    """The controller answers before the broker has applied what it answers."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while changes(await _present(client), wanted, is_ours) != Changes((), ()):
        if time.monotonic() > deadline:
            raise Refused("the broker has not applied its access lists")
        await asyncio.sleep(0.05)


async def _present(client: AIOKafkaClient) -> frozenset[Acl]:
    answer = await send(client, DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY))
    check([(answer.error_code, answer.error_message)])
    return frozenset(
        Acl(principal.removeprefix(USER), resource, name, pattern, operation, permission)
        for resource, name, pattern, entries in answer.resources
        for principal, _host, operation, permission in entries
    )


async def send(client: AIOKafkaClient, request: Any) -> Any:
    return await client.send(client.get_random_node(), request)


def _fields(acl: Acl) -> tuple[int, str, int, str, str, int, int]:
    return (
        *(acl.resource, acl.name, acl.pattern, USER + acl.user),
        *(ANY_HOST, acl.operation, acl.permission),
    )


def check(results: Any) -> None:
    problems = {f"{for_code(code).__name__}: {text}" for code, text in results if code}
    if problems:
        raise Refused("; ".join(sorted(problems)))
