"""Any text may be any value: with an awkward string in every string of its values, each chart
renders what it renders with a plain one, only with that string."""

import json
import re
from typing import Any

import pytest

from deploy.package import ORDER
from tests.kubernetes.charts import CHARTS, KUBERNETES, NEEDED, Helm, parsed

PLAIN = "plain"
AWKWARD = ("*.x", "yes", "1e3", "~", "a: b", "#x", " x #y", "{x", "it's", '"x" \\')
# How a string begins where a pattern asks for an address.
FORMS = ("{}", "http://{}", "s3://{}", "{}s")


@pytest.mark.parametrize(
    ("chart", "protocol"),
    [*((chart, "SASL_SSL") for chart in ORDER), *((name, "SSL") for name in ("hpo", "scheduler"))],
)
def test_every_string_of_the_values_is_that_string(helm: Helm, chart: str, protocol: str) -> None:
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())
    num_texts = 0
    for text in AWKWARD:
        plain = _rendered(helm, chart, protocol, _with(schema, PLAIN, text))
        expected = _changed(plain, PLAIN, text)
        assert _rendered(helm, chart, protocol, _with(schema, text, text)) == expected, text
        num_texts += json.dumps(plain).count(PLAIN)
    assert num_texts > 5 * len(AWKWARD)


@pytest.mark.parametrize("name", ["123", "1e3", "true"])
def test_a_release_and_a_namespace_may_be_called_like_a_number(helm: Helm, name: str) -> None:
    text = helm.run(
        *("template", name, helm.packages["drivetrain"], "--namespace", name),
        *("--kube-version", KUBERNETES, "--values", helm.values_file(NEEDED["drivetrain"])),
    )
    for each in parsed(text):
        assert all(type(value) is str for value in each["metadata"].get("labels", {}).values())
        assert type(each["metadata"].get("namespace", "")) is str
        for subject in each.get("subjects", ()):
            assert type(subject["namespace"]) is str


def _rendered(helm: Helm, chart: str, protocol: str, strings: Any) -> Any:
    """Its objects, without what is a hash of others."""
    given: dict[str, Any] = {
        "kafka": {"securityProtocol": protocol},
        "postgres": {"sslMode": "verify-full"},
        "podMonitor": {"enabled": True},
        "networkPolicy": {"monitoring": {"from": [{"podSelector": {}}]}},
        "autoscaling": {"enabled": True, "by": "lag"},
        "ingress": {"enabled": True},
    }
    if chart == "drivetrain":
        given = {"global": {"kafka": given["kafka"]}}
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())["properties"]
    known = {key: value for key, value in given.items() if key in schema}
    return _unhashed(helm.render(chart, _merged(strings, known)))


def _with(schema: dict[str, Any], text: str, other: str) -> Any:
    """A value with `text` in all its strings, as far as the schema takes both there."""
    schema = next((each for each in schema.get("anyOf", ()) if each != {"type": "null"}), schema)
    kind = schema.get("type")
    if {"enum", "const"} & set(schema):
        return None
    if kind == "string":
        pattern = schema.get("pattern", "")
        for form in FORMS:
            if all(re.search(pattern, form.format(each)) for each in (PLAIN, text, other)):
                return form.format(text)
        return None
    if kind == "array":
        found = _with(schema.get("items", {}), text, other)
        return None if found is None else [found]
    if kind == "object":
        return _object(schema, text, other)
    return None


def _object(schema: dict[str, Any], text: str, other: str) -> Any:
    if schema.get("additionalProperties") == {"type": "string"}:
        return {"key": text}
    properties = schema.get("properties", {})
    found = {key: _with(value, text, other) for key, value in properties.items()}
    for key in schema.get("required", ()):
        if found.get(key) is None:
            found[key] = 1 if properties.get(key, {}).get("type") == "integer" else "required"
    return {key: value for key, value in found.items() if value is not None} or None


def _changed(value: Any, plain: str, text: str) -> Any:
    if isinstance(value, dict):
        return {key: _changed(each, plain, text) for key, each in value.items()}
    if isinstance(value, list):
        return [_changed(each, plain, text) for each in value]
    return value.replace(plain, text) if isinstance(value, str) else value


def _unhashed(value: Any) -> Any:
    """Without hashes, and with JSON in strings read."""
    if isinstance(value, dict):
        return {key: _unhashed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_unhashed(each) for each in value]
    if isinstance(value, str):
        if value.startswith(('["', '{\n  "', '{"')):
            return _unhashed(json.loads(value))
        return re.sub(r"\b([0-9a-f]{8}|[0-9a-f]{64})$", "HASH", value)
    return value


def _merged(first: Any, second: Any) -> Any:
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return second
    both = first.keys() & second.keys()
    return {**first, **second, **{key: _merged(first[key], second[key]) for key in both}}
