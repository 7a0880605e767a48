"""Metrics of Prometheus: their names, and labels whose values do not grow with jobs or tenants."""

import importlib
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(ROOT.glob("services/*/instruments.py"))
]
# What bounds the values of each label. A new one needs an answer here.
BOUNDED_BY = {
    "type": "the registry of event types, and our topics",
    "topic": "our topics",
    "group": "our consumer groups",
    "reason": "closed lists in code",
    "table": "our tables",
    "what": "a closed list in code",
    "stream": "a closed list in code",
    "kind": "a closed list in code",
    "alert": "a closed list of the contract",
    "verified_by": "a closed list of the contract",
    "action": "the enum AtLimit",
    "answer": "closed lists in code",
    "cause": "the enum WaitCause",
    "webhook": "the operator's file, at most 40",
    "endpoint": "the operator's file, at most 8",
    "outcome": "a closed list of the contract",
    "state": "closed lists in code",
    "holder": "none, job or trial",
    "phase": "a closed list in code",
    "way": "a closed list in code",
    "pool": "pools that have nodes",
    "device_type": "device types of nodes",
    "tenant_class": "a setting",
    "decision": "a closed list in code",
    "part": "our services",
    "method": "the routes",
    "route": "the routes",
    "status": "the statuses that the routes answer",
    "verb": "the calls of the launcher",
    "resource": "the calls of the launcher",
    "code": "the statuses of the API server",
    "why": "a closed list in code",
    "sampler": "an enum of the contract",
    "pruner": "the types of a union of the contract",
    "verdict": "a closed list in code",
    "command": "the types of commands",
    "result": "a closed list in code",
    "has_value": "yes or no",
}


def metrics() -> list[MetricWrapperBase]:
    found = []
    for name in MODULES:
        module = importlib.import_module(name)
        found += [it for it in vars(module).values() if isinstance(it, MetricWrapperBase)]
    return found


@pytest.mark.parametrize("metric", metrics(), ids=lambda metric: str(metric._name))
def test_labels_are_bounded_and_names_say_the_unit(metric: MetricWrapperBase) -> None:
    unknown = set(metric._labelnames) - BOUNDED_BY.keys()
    assert not unknown, f"what bounds the values of {unknown}? No ids, no names of users"
    assert metric._name.startswith("drivetrain_")
    assert metric._documentation.strip()
    if isinstance(metric, Histogram):
        assert metric._name.endswith(("_seconds", "_bytes"))
    assert isinstance(metric, Counter | Gauge | Histogram)
