"""Optional spans of a pod: its run, and in it rendezvous, restore, training and checkpoints.

Exported with OpenTelemetry (OTLP over HTTP) where the pod's spec names a collector; else nothing is
done, and the SDK is not imported. Made by the shim from what the ranks report anyway, so training
pays nothing. A collector that does not answer holds nothing up, and is told once.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from drivetrain.messages import CheckpointSaved, Message, Resumed, StepProgress
from drivetrain_schemas.pods import PodExit, PodSpec

EXPORT_SECONDS = 3.0
_logger = logging.getLogger("drivetrain.pod")


class PodSpans:
    """The spans of one pod."""

    def __init__(self, spec: PodSpec) -> None:
        self._sdk: _Sdk | None = None
        if spec.trace is None:
            return
        try:
            self._sdk = _Sdk(spec, spec.trace.endpoint)
        except ImportError as error:
            _logger.warning("spans are not exported (%s): install drivetrain[tracing]", error)
            return
        self._began = time.time()
        self._pod = self._sdk.begin("pod", self._began, self._sdk.remote(spec.trace.traceparent))
        self._training: Any = None

    def take(self, message: Message) -> None:
        """What a rank reports."""
        if self._sdk is None:
            return
        now = time.time()
        if isinstance(message, CheckpointSaved):
            span = self._sdk.begin(
                "checkpoint", now - message.save_seconds, self._training or self._pod
            )
            span.set_attribute("step", message.step)
            span.set_attribute("blocked_seconds", message.blocked_seconds)
            self._sdk.end(span, now)
        elif self._training is None and isinstance(message, Resumed):
            restored_from = now - message.load_seconds if message.manifest_key else now
            self._met(restored_from)
            if message.manifest_key:
                span = self._sdk.begin("restore", restored_from, self._pod)
                span.set_attribute("step", message.step)
                self._sdk.end(span, now)
            self._training = self._sdk.begin("training", now, self._pod)
        elif self._training is None and isinstance(message, StepProgress) and message.step:
            self._met(now)
            self._training = self._sdk.begin("training", now, self._pod)

    def _met(self, until: float) -> None:
        """From the pod's start until the ranks have found each other."""
        assert self._sdk is not None
        self._sdk.end(self._sdk.begin("rendezvous", self._began, self._pod), until)

    def end(self, end: PodExit) -> None:
        if self._sdk is None:
            return
        now = time.time()
        if self._training is not None:
            self._sdk.end(self._training, now)
        self._pod.set_attribute("outcome", end.outcome)
        if end.outcome == "failed":
            self._sdk.fail(self._pod, end.detail)
        self._sdk.end(self._pod, now)

    async def stop(self) -> None:
        """Send what waits, for a few seconds at most."""
        sdk, self._sdk = self._sdk, None
        if sdk is None:
            return
        # No thread of an executor: the process would wait for it at its end.
        thread = threading.Thread(target=sdk.shutdown, daemon=True)
        thread.start()
        deadline = time.monotonic() + EXPORT_SECONDS
        while thread.is_alive() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)


class _Sdk:
    """The SDK, imported here alone."""

    def __init__(self, spec: PodSpec, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        # The SDK logs every failed attempt; ours tells once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        facts: dict[str, str | int] = {
            "service.name": "drivetrain-pod",
            "service.namespace": "drivetrain",
            "drivetrain.job_id": spec.job_id,
            "drivetrain.run_id": spec.run_id,
            "drivetrain.pod_id": spec.pod_id,
            "drivetrain.attempt": spec.attempt,
        }
        self._provider = TracerProvider(resource=Resource.create({**facts}), shutdown_on_exit=False)
        exporter: Any = OTLPSpanExporter(
            endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS
        )
        exporter.export = _told_once(exporter.export, endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("drivetrain")

    def remote(self, traceparent: str) -> Any:
        """The span that a `traceparent` names, as a parent."""
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

        _, trace_id, span_id, flags = traceparent.split("-")
        context = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))
        return NonRecordingSpan(context)

    def begin(self, name: str, at: float, parent: Any) -> Any:
        from opentelemetry.trace import set_span_in_context

        context = set_span_in_context(parent)
        return self._tracer.start_span(name, context=context, start_time=int(at * 1e9))

    def end(self, span: Any, at: float) -> None:
        span.end(int(at * 1e9))

    def fail(self, span: Any, problem: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        span.set_status(Status(StatusCode.ERROR, problem[:500]))

    def shutdown(self) -> None:
        self._provider.shutdown()


def _told_once(export: Any, endpoint: str) -> Any:
    from opentelemetry.sdk.trace.export import SpanExportResult

    is_told = False

    def told(spans: Sequence[Any]) -> Any:
        nonlocal is_told
        result = export(spans)
        if result is not SpanExportResult.SUCCESS and not is_told:
            is_told = True
            _logger.warning("spans cannot be exported to %s; they are dropped", endpoint)
        return result

    return told
