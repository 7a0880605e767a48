"""Optional export of spans with OpenTelemetry (OTLP over HTTP), one for each thing a service does.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT is set when the process starts: nothing here does anything
then, and the SDK is not imported. The SDK's other variables (headers, sampler) count as usual.
Spans wait in a bounded queue and are sent by a thread: a collector that does not answer holds
nothing up; spans that do not fit are dropped, and the log says so once. Events carry the context,
so a span's parent is the span that emitted the event.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from drivetrain_schemas.envelope import Event
from services.runtime import logs
from services.runtime.trace_context import Context, parse

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXPORT_SECONDS = 3.0
STOP_SECONDS = 3.0

log = logs.get()

Attributes = Mapping[str, str | int]


class _State:
    """Of this process."""

    spans: "_Spans | None" = None
    endpoint: str | None = None


# The span in progress in this task.
_current: ContextVar[Context | None] = ContextVar("current_span", default=None)


def start(service: str, environment: Mapping[str, str]) -> None:
    """Export from now on, where the environment names a collector."""
    endpoint = environment.get(ENDPOINT)
    if endpoint:
        _State.spans, _State.endpoint = _Spans(f"drivetrain-{service}", endpoint), endpoint
        log.info("spans are exported", endpoint=endpoint)


async def stop() -> None:
    """Send what waits, for a few seconds at most."""
    spans, _State.spans = _State.spans, None
    if spans is None:
        return
    # No thread of an executor: the process would wait for it at its end.
    thread = threading.Thread(target=spans.shutdown, daemon=True)
    thread.start()
    deadline = time.monotonic() + STOP_SECONDS
    while thread.is_alive() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)


def endpoint() -> str | None:
    """The collector; None while nothing is exported."""
    return _State.endpoint if _State.spans is not None else None


@contextmanager
def span(
    name: str, kind: str, parent: str | None = None, attributes: Attributes | None = None
) -> Iterator[None]:
    """A span around the block; what it emits and calls are its children. An exception marks it."""
    spans = _State.spans
    if spans is None:
        yield
        return
    made = spans.begin(name, kind, parse(parent) or _current.get(), attributes or {})
    token = _current.set(spans.context(made))
    try:
        yield
    except BaseException as error:
        spans.fail(made, repr(error))
        raise
    finally:
        _current.reset(token)
        made.end()


@contextmanager
def handling(events: Sequence[Event[Any]]) -> Iterator[None]:
    """A span for each of these events that has a context; in a batch all have the same time."""
    traced = [event for event in events if event.traceparent] if _State.spans is not None else []
    with ExitStack() as stack:
        for event in traced:
            stack.enter_context(span(f"handle {event.type}", "consumer", event.traceparent))
        yield


def sent(event_type: str, parent: str | None = None) -> str | None:
    """The traceparent for a new event, whose span is exported; None where nothing is exported.

    The parent is the span in progress where it is of the same trace, as that of a handler is.
    """
    spans = _State.spans
    if spans is None:
        return None
    of_cause, here = parse(parent), _current.get()
    if of_cause is None or (here is not None and here.trace_id == of_cause.trace_id):
        of_cause = here
    made = spans.begin(f"send {event_type}", "producer", of_cause, {"event.type": event_type})
    made.end()
    return spans.context(made).traceparent()


def record(
    context: Context,
    name: str,
    times: tuple[datetime, datetime],
    parent: str | None = None,
    attributes: Attributes | None = None,
    problem: str | None = None,
) -> None:
    """Export a span that has ended, under ids that its children know already."""
    spans = _State.spans
    if spans is not None:
        made = spans.begin(name, "internal", parse(parent), attributes or {}, context, times[0])
        if problem is not None:
            spans.fail(made, problem)
        made.end(_nanoseconds(times[1]))


def _nanoseconds(time: datetime) -> int:
    return int((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000) * 1000


class _Spans:
    """The SDK, imported here alone."""

    def __init__(self, service: str, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        class Ids(RandomIdGenerator):
            """Random, but for a span whose ids are known before."""

            given = threading.local()

            def generate_span_id(self) -> int:
                context: Context | None = getattr(self.given, "context", None)
                return int(context.span_id, 16) if context else super().generate_span_id()

            def generate_trace_id(self) -> int:
                context: Context | None = getattr(self.given, "context", None)
                return int(context.trace_id, 16) if context else super().generate_trace_id()

        # The SDK logs every failed attempt; ours tells once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._ids = Ids()
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": service, "service.namespace": "drivetrain"}),
            id_generator=self._ids,
            shutdown_on_exit=False,
        )
        exporter: Any = OTLPSpanExporter(
            endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_SECONDS
        )
        exporter.export = _told_once(exporter.export, endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("drivetrain")

    def begin(
        self,
        name: str,
        kind: str,
        parent: Context | None,
        attributes: Attributes,
        ids: Context | None = None,
        started_at: datetime | None = None,
    ) -> Any:
        from opentelemetry.trace import SpanKind

        self._ids.given.context = ids
        try:
            return self._tracer.start_span(
                name,
                context=_as_remote(parent),
                kind=SpanKind[kind.upper()],
                attributes=dict(attributes),
                start_time=_nanoseconds(started_at) if started_at else None,
            )
        finally:
            self._ids.given.context = None

    def fail(self, made: Any, problem: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        made.set_status(Status(StatusCode.ERROR, problem[:500]))

    def context(self, made: Any) -> Context:
        found = made.get_span_context()
        flags = f"{int(found.trace_flags):02x}"
        return Context(f"{found.trace_id:032x}", f"{found.span_id:016x}", flags)

    def shutdown(self) -> None:
        self._provider.shutdown()


def _as_remote(parent: Context | None) -> Any:
    from opentelemetry.context import Context as Carried
    from opentelemetry.trace import (
        NonRecordingSpan,
        SpanContext,
        TraceFlags,
        set_span_in_context,
    )

    if parent is None:
        return Carried()  # a trace of its own
    flags = TraceFlags(int(parent.flags, 16))
    of_parent = SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), True, flags)
    return set_span_in_context(NonRecordingSpan(of_parent), Carried())


def _told_once(export: Any, endpoint: str) -> Any:
    """Log the first failure, and the first success after one."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    is_failing = False

    def told(spans: Sequence[Any]) -> Any:
        nonlocal is_failing
        result = export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not is_failing:
            log.warning("spans cannot be exported; they are dropped", endpoint=endpoint)
        elif is_failing and not failed:
            log.info("spans are exported again", endpoint=endpoint)
        is_failing = failed
        return result

    return told
