"""Events about silences as sentences."""

from collections.abc import Callable, Mapping
from datetime import datetime

from services.gateway.core.sentences import Fields, Sentence, request_rejected, with_reason


def chosen(spec: Fields) -> str:
    """Which alerts a silence is of: 'straggler of project vision', 'every alert of this job'."""
    alert = spec["alert"].replace("_", " ") if spec.get("alert") else "every alert"
    if spec.get("job_id"):
        return f"{alert} of this job"
    if spec.get("project"):
        return f"{alert} of project {spec['project']}"
    return f"{alert} of all jobs"


def _changed(p: Fields) -> Sentence:
    spec = p["spec"]
    until = datetime.fromisoformat(spec["ends_at"])
    text = f"Silenced until {until:%Y-%m-%d %H:%M} UTC: {chosen(spec)}"
    return Sentence(with_reason(text, spec.get("reason", "")))


def _ended(p: Fields) -> Sentence:
    return Sentence(f"No longer silenced: {chosen(p['spec'])}")


SENTENCES: Mapping[str, Callable[[Fields], Sentence]] = {
    "silence.changed": _changed,
    "silence.ended": _ended,
    "silence_request.rejected": request_rejected,
}
