"""The documents that the command line writes for programs: no field is removed or changed.

`outputs/fields.json` has the fields of every document that docs/guides/command-line.md names, as
they were released; a new field is added to it by hand.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from services.gateway.rest import models

HERE = Path(__file__).parent
GUIDE = HERE.parents[1] / "docs" / "guides" / "command-line.md"
RELEASED: dict[str, dict[str, Any]] = json.loads((HERE / "outputs" / "fields.json").read_text())


def fields_of(name: str) -> dict[str, Any]:
    """The fields of a document and what their values are, with inner documents by name."""
    schema = getattr(models, name).model_json_schema()
    return {field: _kind(value) for field, value in schema["properties"].items()}


def _kind(value: dict[str, Any]) -> str:
    if "anyOf" in value:
        return " or ".join(sorted(_kind(one) for one in value["anyOf"]))
    if "$ref" in value:
        return str(value["$ref"].rpartition("/")[2])
    if value.get("type") == "array":
        return f"list of {_kind(value.get('items', {}))}"
    kind = value.get("type", "anything")
    return kind if isinstance(kind, str) else " or ".join(sorted(kind))


@pytest.mark.parametrize("name", RELEASED)
def test_released_fields_stay_as_they_are(name: str) -> None:
    found = fields_of(name)
    assert {field: found.get(field) for field in RELEASED[name]} == RELEASED[name]


def test_every_document_of_the_guide_is_released() -> None:
    section = GUIDE.read_text().partition("| verb | document |")[2].partition("\n\n")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.count("|") == 3]
    named = {name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row)}
    assert len(named) >= 10
    assert named <= RELEASED.keys()
