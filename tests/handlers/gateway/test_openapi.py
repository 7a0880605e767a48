"""The OpenAPI document says what the API does: every route, and its refusals as problems."""

import json
from typing import Any

import pytest_asyncio

from tests.handlers.gateway.model import Server

ROUTES = {
    "/v1/jobs": {"get", "post"},
    "/v1/jobs/{job_id}": {"get"},
    "/v1/jobs/{job_id}/cancel": {"post"},
    "/v1/jobs/{job_id}/stop": {"post"},
    "/v1/jobs/{job_id}/media": {"get"},
    "/v1/jobs/{job_id}/reproduce": {"get"},
    "/v1/jobs/{job_id}/rerun": {"post"},
    "/v1/jobs/{job_id}/media/items": {"get"},
    "/v1/jobs/{job_id}/media/content": {"get"},
    "/v1/jobs/{job_id}/annotate": {"post"},
    "/v1/jobs/{job_id}/pause": {"post"},
    "/v1/jobs/{job_id}/resume": {"post"},
    "/v1/jobs/{job_id}/timeline": {"get"},
    "/v1/jobs/{job_id}/explain": {"get"},
    "/v1/jobs/{job_id}/metrics": {"get"},
    "/v1/jobs/{job_id}/series": {"get"},
    "/v1/jobs/{job_id}/system": {"get"},
    "/v1/jobs/{job_id}/chart": {"get"},
    "/v1/jobs/{job_id}/times": {"get"},
    "/v1/jobs/{job_id}/windows": {"get"},
    "/v1/jobs/{job_id}/logs": {"get"},
    "/v1/jobs/{job_id}/checkpoints": {"get"},
    "/v1/jobs/{job_id}/cost": {"get"},
    "/v1/jobs/{job_id}/files": {"get"},
    "/v1/jobs/{job_id}/files/content": {"get"},
    "/v1/comparison": {"get"},
    "/v1/code": {"post"},
    "/v1/estimates": {"post"},
    "/v1/ids": {"get"},
    "/v1/nodes": {"get"},
    "/v1/studies": {"get", "post"},
    "/v1/studies/{study_id}": {"get"},
    "/v1/studies/{study_id}/trials": {"get"},
    "/v1/studies/{study_id}/insight": {"get"},
    "/v1/studies/{study_id}/trials/{number}": {"get"},
    "/v1/studies/{study_id}/trials/{number}/should-stop": {"get"},
    "/v1/studies/{study_id}/trials/{number}/report": {"post"},
    "/v1/studies/{study_id}/trials/{number}/complete": {"post"},
    "/v1/studies/{study_id}/suggest": {"post"},
    "/v1/studies/{study_id}/cancel": {"post"},
    "/v1/studies/{study_id}/pause": {"post"},
    "/v1/studies/{study_id}/resume": {"post"},
    "/v1/studies/{study_id}/stop": {"post"},
    "/v1/studies/{study_id}/change": {"post"},
    "/v1/studies/import": {"post"},
    "/v1/studies/preview": {"post"},
    "/v1/checkpoints/{checkpoint_id}/pin": {"post"},
    "/v1/checkpoints/{checkpoint_id}/shards": {"get"},
    "/v1/checkpoints/{checkpoint_id}/shards/content": {"get"},
    "/v1/cost": {"get"},
    "/v1/cost/pools": {"get"},
    "/v1/cost/fleet": {"get"},
    "/v1/cost/report": {"get"},
    "/v1/cost/recommendations": {"get"},
    "/v1/alerts": {"get"},
    "/v1/jobs/{job_id}/alerts": {"get"},
    "/v1/silences": {"get", "post"},
    "/v1/silences/{silence_id}/end": {"post"},
    "/v1/budgets": {"get", "post"},
    "/v1/budgets/{name}/remove": {"post"},
    "/v1/parked": {"get"},
    "/v1/parked/groups": {"get"},
    "/v1/parked/replay": {"post"},
    "/v1/parked/discard": {"post"},
    "/v1/parked/{parked_id}": {"get"},
    "/v1/parked/{parked_id}/discard": {"post"},
    "/v1/parked/{parked_id}/replay": {"post"},
    "/v1/login-links": {"post"},
    "/v1/stream": {"get"},
}


@pytest_asyncio.fixture(loop_scope="session")
async def document(quiet_server: Server) -> dict[str, Any]:
    answer = await quiet_server.stranger.get("/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_every_route_is_there(document: dict[str, Any]) -> None:
    assert {path: set(methods) for path, methods in document["paths"].items()} == ROUTES


async def test_refusals_are_problems(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            refusals = {
                status: answer
                for status, answer in operation["responses"].items()
                if status >= "400"
            }
            assert {"401", "403", "503"} <= refusals.keys(), path
            for status, answer in refusals.items():
                assert list(answer["content"]) == ["application/problem+json"], (path, status)
            if method == "post":
                assert {"413", "415"} <= refusals.keys(), path
            if "{" in path:
                assert {"404", "422"} <= refusals.keys(), path


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    names = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert names <= document["components"]["schemas"].keys()
    assert "HTTPValidationError" not in text
