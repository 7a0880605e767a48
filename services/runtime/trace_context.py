"""W3C trace context (`traceparent`), and the ids of the span of a job's attempt.

Pure. The span of an attempt is exported once, at its end, but its children are exported before: by
the pods and by whatever handles its events. So its ids follow from the run's id, and every process
that is started in between knows them. The first attempt belongs to the trace of the submission;
each further one has a trace of its own.
"""

import hashlib
from typing import NamedTuple

SAMPLED = "01"


class Context(NamedTuple):
    """Of one span: 32 and 16 hexadecimal digits, and two of flags."""

    trace_id: str
    span_id: str
    flags: str = SAMPLED

    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def parse(traceparent: str | None) -> Context | None:
    """None where there is none, or one that is not of this form."""
    parts = (traceparent or "").split("-")
    if len(parts) != 4 or [len(part) for part in parts] != [2, 32, 16, 2]:
        return None
    is_hex = all(digit in "0123456789abcdef" for part in parts for digit in part)
    return Context(*parts[1:]) if is_hex and int(parts[1], 16) and int(parts[2], 16) else None


def of_attempt(run_id: str, attempt: int, submitted_by: str | None) -> Context:
    """The span of this attempt; `submitted_by`: the traceparent of the command."""
    digits = hashlib.sha256(f"attempt {run_id}".encode()).hexdigest()
    span_id = digits[:16]
    parent = parse(submitted_by)
    if attempt == 1 and parent is not None:
        return Context(parent.trace_id, span_id, parent.flags)
    return Context(digits[16:48], span_id)
