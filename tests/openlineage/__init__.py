"""Checks events with the structure of the schemas of OpenLineage, which lie beside this file."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
FACETS = ("run", "job")


def problems(event: Any) -> list[str]:
    """What the schemas of the event and of each of its facets say."""
    found = _errors(f"{EVENT}#/$defs/RunEvent", event)
    assert event["schemaURL"] == f"{EVENT}#/$defs/RunEvent"
    datasets = [*event["inputs"], *event["outputs"]]
    facets = [one["facets"] for one in (event["run"], event["job"], *datasets)]
    facets += [one.get("outputFacets", {}) for one in event["outputs"]]
    for each in facets:
        for name, facet in each.items():
            schema = facet["_schemaURL"].partition("#")[0]
            found += _errors(schema, {name: facet})
            found += _errors(facet["_schemaURL"], facet)
    return found


def _errors(reference: str, value: Any) -> list[str]:
    validator = Draft202012Validator(
        {"$ref": reference}, registry=_schemas(), format_checker=FormatChecker()
    )
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


@cache
def _schemas() -> Registry[Any]:
    files = [json.loads(file.read_text()) for file in Path(__file__).parent.glob("*.json")]
    return Registry().with_resources((one["$id"], Resource.from_contents(one)) for one in files)
