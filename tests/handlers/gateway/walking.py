"""Asks for every GET route of the gateway, as its document and its pages are: a new route is walked
without a change here, or the walk fails because it knows no value for a parameter."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from tests.handlers.gateway.model import TENANT_HEADER, Server

STREAM = "/v1/stream"  # it has no end
# What may be asked for by a parameter of this name; by `route:name` where only there.
Known = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one address. `text`: headers and body."""

    route: str
    url: str
    status: int
    text: str


async def walk(server: Server, tenant_id: str, known: Known) -> list[Answer]:
    """The answers of every route to every combination of values that it requires, and with each of
    its further parameters alone."""
    answers = []
    for route, parameters in get_routes(server).items():
        for path, query in requests(route, parameters, known):
            answer = await server.client.get(path, params=query, headers={TENANT_HEADER: tenant_id})
            headers = "\n".join(f"{name}: {value}" for name, value in answer.headers.items())
            text = f"{headers}\n{answer.content.decode('utf-8', 'replace')}"
            answers.append(Answer(route, str(answer.request.url), answer.status_code, text))
    return answers


def get_routes(server: Server) -> dict[str, list[dict[str, Any]]]:
    """Each route that answers GET, pages too, and its parameters as in an OpenAPI document."""
    routes = []
    for found in iter_route_contexts(server.routes):
        if isinstance(found.original_route, APIRoute):
            route = copy.copy(found.original_route)
            route.include_in_schema = True
            routes.append(route)
    document = get_openapi(title="all", version="1", routes=routes)
    schemas, paths = document["components"]["schemas"], document["paths"]
    operations = {path: of_path["get"] for path, of_path in paths.items() if "get" in of_path}
    return {
        path: [
            _resolved(one, schemas)
            for one in operation.get("parameters", ())
            if one["in"] != "header"
        ]
        for path, operation in operations.items()
        if path != STREAM
    }


def _resolved(part: Any, schemas: Mapping[str, Any]) -> Any:
    """With what parameters refer to in its place."""
    if isinstance(part, list):
        return [_resolved(one, schemas) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return schemas[part["$ref"].rpartition("/")[2]]
    return {name: _resolved(one, schemas) for name, one in part.items()}


def requests(
    route: str, parameters: Sequence[dict[str, Any]], known: Known
) -> Iterator[tuple[str, dict[str, str]]]:
    required = [one for one in parameters if one["required"]]
    values = [_values(route, one, known) for one in required]
    for one, found in zip(required, values, strict=True):
        assert found, f"the walk knows no value for {one['name']} of {route}"
    for chosen in product(*values):
        path, query = route, {}
        for one, value in zip(required, chosen, strict=True):
            if one["in"] == "path":
                path = path.replace(f"{{{one['name']}}}", value)
            else:
                query[one["name"]] = value
        yield path, query
        for one in parameters:
            if not one["required"]:
                for value in _values(route, one, known):
                    yield path, {**query, one["name"]: value}


def _values(route: str, parameter: Mapping[str, Any], known: Known) -> Sequence[str]:
    name, schema = parameter["name"], parameter["schema"]
    found = known.get(f"{route}:{name}", known.get(name))
    if found is not None:
        return found
    kinds = [schema, *schema.get("anyOf", ()), schema.get("items", {})]
    return [value for kind in kinds for value in kind.get("enum", ())] or [
        value for kind in kinds if kind.get("type") == "boolean" for value in ("true",)
    ]
