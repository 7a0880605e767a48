"""Spans: off they cost nothing, and a collector that does not answer holds nothing up."""

import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from services.runtime import tracing
from services.runtime.trace_context import parse
from tests.otlp_receiver import receiving

NOBODY = "http://127.0.0.1:1"
SUBMITTED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

OFF = """
import sys
from importlib import import_module
from services.runtime import tracing
for name in ("scheduler", "gateway", "checkpoints", "metrics", "cost", "hpo"):
    import_module(f"services.{name}.wiring")
import drivetrain.pod.supervision
tracing.start("tests", {})
with tracing.span("a span", "internal"):
    assert tracing.sent("job.queued", "%s") is None
parts = ("opentelemetry.sdk", "opentelemetry.exporter")
print([name for name in sys.modules if name.startswith(parts)])
"""


def test_without_a_collector_the_sdk_is_not_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFF % SUBMITTED], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.heavy
async def test_a_collector_that_does_not_answer_is_told_once() -> None:
    with capture_logs() as logged:
        tracing.start("tests", {tracing.ENDPOINT: NOBODY})
        spans = tracing._State.spans
        assert spans is not None
        for _ in range(2):
            with tracing.span("a span", "internal"):
                assert tracing.sent("job.queued", SUBMITTED) is not None
            spans._provider.force_flush()
        await tracing.stop()
    told = [line for line in logged if line["log_level"] == "warning"]
    assert [line["event"] for line in told] == ["spans cannot be exported; they are dropped"]
    assert tracing.endpoint() is None


async def test_what_a_block_sends_is_its_child_and_another_trace_keeps_its_own_parent() -> None:
    with receiving() as receiver:
        tracing.start("tests", {tracing.ENDPOINT: receiver.endpoint})
        with tracing.span("handle", "consumer", SUBMITTED):
            of_same = parse(tracing.sent("job.queued", SUBMITTED))
            other = SUBMITTED.replace("0af7", "1bf7")
            of_other = parse(tracing.sent("job.queued", other))
        await tracing.stop()
    (handle,) = receiver.named("tests", "handle")
    parents = {span.span_id: span.parent_id for span in receiver.named("tests", "send job.queued")}
    assert (handle.trace_id, handle.parent_id) == tuple(SUBMITTED.split("-")[1:3])
    assert of_same is not None
    assert of_other is not None
    assert parents == {of_same.span_id: handle.span_id, of_other.span_id: "b7ad6b7169203331"}
    assert of_other.trace_id.startswith("1bf7")
