"""Kafka's client quotas by user and client id, from the table in `drivetrain_schemas.access`.

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

from drivetrain_schemas.access import QUOTAS, Limited
from services.runtime.access.kafka import Connection, administering, check, send

Quotas = Mapping[Limited, Mapping[str, float]]

_TEXT = String("utf-8")
_ENTITY = ("entity", Array(("type", _TEXT), ("name", _TEXT)))
_EXACTLY = 0
_CLIENT = "client-id"


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
            (_entity(limited), [(name, value, False) for name, value in limits.items()])
            for limited, limits in self._quotas.items()
        ]
        return request_struct_class(entries, False)


def wanted_quotas(user_form: str = "{user}") -> Quotas:
    return {
        limited._replace(user=user_form.format(user=limited.user)): limits
        for limited, limits in QUOTAS.items()
    }


async def apply_quotas(connection: Connection, wanted: Quotas) -> Quotas:
    """Set each limit that its user or client has not; returns those that were set.

    Raises KafkaError when the broker does not answer, and `Refused`.
    """
    async with administering(connection) as client:
        present: dict[Limited, set[str]] = {}
        for user in {limited.user for limited in wanted}:
            present |= await _present(client, user)
        missing = {}
        for limited, limits in wanted.items():
            names = limits.keys() - present.get(limited, set())
            if names:
                missing[limited] = {name: limits[name] for name in names}
        if missing:
            answer = await send(client, _Alter(missing))
            check((code, text) for code, text, _ in answer.entries)
        return missing


async def _present(client: AIOKafkaClient, user: str) -> dict[Limited, set[str]]:
    """The names of the limits of a user, and of each of its clients."""
    answer = await send(client, DescribeClientQuotasRequest([("user", _EXACTLY, user)], False))
    check([(answer.error_code, answer.error_message)])
    return {
        Limited(user, dict(entity).get(_CLIENT, "")): {name for name, _ in values}
        for entity, values in answer.entries or ()
    }


def _entity(limited: Limited) -> list[tuple[str, str]]:
    return [("user", limited.user), *([(_CLIENT, limited.client)] if limited.client else ())]
