"""The API against its own OpenAPI document: generated requests, valid and invalid, all answered as
the document says. The examples follow from a fixed seed."""

import asyncio
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from services.gateway import commands
from tests.handlers.gateway.command_line import on_a_port
from tests.handlers.gateway.model import TOKEN, Model, serving
from tests.handlers.gateway.story import day

EXAMPLES = 3
# A stream has no end, and an upload is not made from a schema.
NOT_CALLED = {"/v1/stream", "/v1/code"}
# A schema cannot say all: a command is split like a shell's, a pool has nodes.
TOO_STRICT = [positive_data_acceptance]
# What is generated to be invalid may be valid on the wire: a query has no objects, and the header
# with the credentials is always sent. test_bad_requests.py has invalid queries.
TOO_STRICT_FOR_GET = [*TOO_STRICT, negative_data_rejection]

SPEND = {"charged_micro_usd": 1, "accruing_micro_usd": 2, "total_micro_usd": 3, "unpriced": []}
PARTS = {
    "/estimate": {
        "price_id": "cpu",
        "price_micro_usd_per_slot_hour": 1,
        "estimated_micro_usd": 1,
    },
    "/samples": {"job_id": "", "series": {}, "num_series_left_out": 0},
    "/system": {"job_id": "", "ranks": [], "next": None},
    "/series": {
        "job_id": "",
        "series": [],
        "next": None,
        "num_series": 0,
        "num_samples_left_out": 0,
    },
    "/chart": {
        "job_id": "",
        "width": 1,
        "is_whole": True,
        "next": "0.1.500.0",
        "attempts": [],
        "steps": [],
        "series": {},
    },
    "/times": {"job_id": "", "attempts": []},
    "/windows": {"job_id": "", "window_seconds": 30, "windows": []},
    "/media": {"names": [], "items": []},
    "/budgets/default": {"budgets": []},
    "/pools/default": {"shares": []},
    "/fleet/default": {"step": "day", "starts_at": [], "pools": [], "series": []},
    "/recommendations/default": {"recommendations": []},
    "/history/default": {"num_jobs": 0},
    "/chargeback/default": [{"is_complete": True}],
    "/logs": {"job_id": "", "lines": [], "next": 0, "num_lines": 0, "num_dropped_bytes": 0},
}


async def forward(part: str, path: str, parameters: Any) -> Any:
    """The services behind the gateway, which know little and answer always."""
    return PARTS.get(path, SPEND)


@pytest.mark.heavy
async def test_the_api_does_what_its_document_says(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CONFIRM_SECONDS", 0.0)
    await model.tell(*day())
    async with serving(model, forward=forward) as server, on_a_port(server) as environment:
        document = (await server.client.get("/openapi.json")).json()
        known = {"parked_id": await model.park(b"garbage")}
        for name, table in (
            ("job_id", "runs"),
            ("study_id", "studies"),
            ("checkpoint_id", "checkpoints"),
        ):
            known[name] = (await model.rows(f"select {name} from {table}"))[0][name]
        url = environment["DRIVETRAIN_URL"]
        problems = await asyncio.to_thread(call_all, document, url, known)
        assert not problems, "\n\n".join(problems)


def call_all(document: dict[str, Any], url: str, known: dict[str, str]) -> list[str]:
    """What differs from the document, by operation."""
    problems = []
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = found.ok()
        if operation.path in NOT_CALLED:
            continue
        rounds = [(GenerationMode.POSITIVE, known), (GenerationMode.NEGATIVE, {})]
        if operation.path_parameters:
            rounds.append((GenerationMode.POSITIVE, {}))
        for mode, ids in rounds:
            try:
                call_one(operation, mode, url, ids)
            except BaseExceptionGroup as failures:
                problems += [
                    f"{operation.label} {mode.value}: {one}" for one in failures.exceptions
                ]
    return problems


def call_one(operation: Any, mode: GenerationMode, url: str, ids: dict[str, str]) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        for name in case.path_parameters or {}:
            if name in ids:
                case.path_parameters[name] = ids[name]
        case.call_and_validate(
            base_url=url,
            headers={"Authorization": f"Bearer {TOKEN}"},
            excluded_checks=TOO_STRICT_FOR_GET if operation.method == "get" else TOO_STRICT,
        )

    call()
