"""Kafka's client quotas by user, from the table in `drivetrain_schemas.access`.

In: the administrator's connection. Out: what was set. A quota that an operator has set stays, since
only the operator knows how much the fleet sends. aiokafka cannot alter quotas, so the request is
made here.
"""

from collections.abc import Mapping
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DescribeClientQuotasRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Float64, Int16, Int32, Schema, String

from drivetrain_schemas.access import QUOTAS
from services.runtime.access.kafka import Connection, administering, check, send

Quotas = Mapping[str, Mapping[str, float]]

_TEXT = String("utf-8")
_ENTITY = ("entity", Array(("type", _TEXT), ("name", _TEXT)))
_EXACTLY = 0


class _Answer(Response):  # type: ignore[misc]
    API_KEY = 49
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("entries", Array(("error_code", Int16), ("error_message", _TEXT), _ENTITY)),
    )


class _Alteration(RequestStruct):  # type: ignore[misc]
    API_KEY = 49
    API_VERSION = 0
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        (
            "entries",
            Array(_ENTITY, ("ops", Array(("key", _TEXT), ("value", Float64), ("remove", Boolean)))),
        ),
        ("validate_only", Boolean),
    )


class _Alter(Request[_Alteration]):  # type: ignore[misc]
    API_KEY = 49

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def build(self, request_struct_class: Any) -> Any:
        entries = [
            ([("user", user)], [(name, value, False) for name, value in limits.items()])
            for user, limits in self._quotas.items()
        ]
        return request_struct_class(entries, False)


def wanted_quotas(user_form: str = "{user}") -> Quotas:
    return {user_form.format(user=user): limits for user, limits in QUOTAS.items()}


async def apply_quotas(connection: Connection, wanted: Quotas) -> Quotas:
    """Set each limit that its user has not; returns those that were set.

    Raises KafkaError when the broker does not answer, and `Refused`.
    """
    async with administering(connection) as client:
        missing = {}
        for user, limits in wanted.items():
            present = await _present(client, user)
            if left := {name: limits[name] for name in limits if name not in present}:
                missing[user] = left
        if missing:
            answer = await send(client, _Alter(missing))
            check((code, text) for code, text, _ in answer.entries)
        return missing


async def _present(client: AIOKafkaClient, user: str) -> Mapping[str, float]:
    request = DescribeClientQuotasRequest([("user", _EXACTLY, user)], True)
    answer = await send(client, request)
    check([(answer.error_code, answer.error_message)])
    return {name: value for _, values in answer.entries or () for name, value in values}
