"""The events of studies and trials as people read them."""

from collections.abc import Callable, Mapping

from services.gateway.core.formats import count, number
from services.gateway.core.sentences import (
    Fields,
    Sentence,
    Tone,
    request_rejected,
    with_reason,
)


def _study_started(p: Fields) -> Sentence:
    return Sentence(f"Study accepted: up to {count(p['num_trials'], 'trial')}")


def _study_paused(p: Fields) -> Sentence:
    also = " and pauses its running ones" if p.get("trials") == "pause" else ""
    return Sentence(
        with_reason(f"The study starts no further trials{also}", p["reason"]), Tone.WARNING
    )


def _study_resumed(_: Fields) -> Sentence:
    return Sentence("The study goes on")


def _study_changed(p: Fields) -> Sentence:
    again = ", and runs again" if p.get("is_revived") else ""
    at_once = f"{p['max_parallel_trials']} at the same time"
    return Sentence(
        f"The study now has up to {count(p['max_trials'], 'trial')}, {at_once}"
        f"{_limits(p.get('limits') or {})}{again}"
    )


def _limits(limits: Fields) -> str:
    """', at most 8 device-hours and $20'."""
    told = [
        f"{limits[name]:g} {unit}"
        for name, unit in (("device_hours", "device-hours"), ("hours", "hours"))
        if limits.get(name) is not None
    ]
    if limits.get("cost_usd") is not None:
        told.append(f"${limits['cost_usd']:,g}")
    return f", at most {' and '.join(told)}" if told else ""


def _study_stopping(p: Fields) -> Sentence:
    return Sentence(with_reason("The study ends early", p["reason"]), Tone.WARNING)


def _study_failed(p: Fields) -> Sentence:
    return Sentence(f"The study failed: {p['detail']}", Tone.BAD)


def _study_cancelling(p: Fields) -> Sentence:
    return Sentence(with_reason("Cancel requested", p["reason"]), Tone.WARNING)


def _study_cancelled(p: Fields) -> Sentence:
    ended = count(_num_ended(p), "trial")
    return Sentence(with_reason(f"Cancelled after {ended}", p["reason"]), Tone.WARNING)


def _study_completed(p: Fields) -> Sentence:
    if p.get("best_number") is None:
        return Sentence("Study complete: no trial has a value", Tone.BAD)
    stopped = f"; {p['num_stopped']} were stopped early" if p.get("num_stopped") else ""
    return Sentence(
        f"Study complete: trial {p['best_number']} is the best with {number(p['best_value'])}"
        f"{stopped}",
        Tone.GOOD,
    )


def _num_ended(p: Fields) -> int:
    return int(p["num_completed"] + p["num_failed"] + p.get("num_stopped", 0))


def _trial_proposed(p: Fields) -> Sentence:
    start = f", from the checkpoint of trial {p['parent']}" if p.get("parent") is not None else ""
    text = f"Trial {p['number']} tries {_point(p)}{start}"
    return Sentence(with_reason(text, p.get("why") or ""))


def _trial_judged(p: Fields) -> Sentence:
    value = "no value" if p.get("value") is None else number(p["value"])
    goes = {"continue": "goes on", "stop": "is to stop", "pause": "is to pause"}[p["verdict"]]
    return Sentence(f"Trial {p['number']} {goes} at step {p['step']:,} with {value}: {p['reason']}")


def _trial_stopping(p: Fields) -> Sentence:
    return Sentence(f"Trial {p['number']} is being stopped: {p['reason']}")


def _trial_stopped(p: Fields) -> Sentence:
    return Sentence(f"Trial {p['number']} ended early{_at(p)}: {p['reason']}")


def _trial_paused(p: Fields) -> Sentence:
    return Sentence(f"Trial {p['number']} waits without devices{_at(p)}: {p['reason']}")


def _at(p: Fields) -> str:
    return f" at step {p['step']:,}" if p.get("step") is not None else ""


def _trial_promoted(p: Fields) -> Sentence:
    return Sentence(f"Trial {p['number']} goes on: {p['why']}")


def _trial_completed(p: Fields) -> Sentence:
    if not p.get("is_safe", True):
        text = f"Trial {p['number']} ended with {number(p['value'])}, and breaks the safety limit"
        return Sentence(text, Tone.WARNING)
    if p.get("is_best"):
        return Sentence(f"Trial {p['number']} is the best so far: {number(p['value'])}", Tone.GOOD)
    return Sentence(f"Trial {p['number']} ended with {number(p['value'])}")


def _trial_failed(p: Fields) -> Sentence:
    return Sentence(f"Trial {p['number']} ended without a value: {p['detail']}", Tone.BAD)


def _point(p: Fields) -> str:
    return ", ".join(
        f"{name} = {number(value) if isinstance(value, float) else value}"
        for name, value in sorted(p["hyperparameters"].items())
    )


SENTENCES: Mapping[str, Callable[[Fields], Sentence]] = {
    "study.started": _study_started,
    "study_request.rejected": request_rejected,
    "study.cancel_rejected": request_rejected,
    "study_command.rejected": request_rejected,
    "study.paused": _study_paused,
    "study.resumed": _study_resumed,
    "study.changed": _study_changed,
    "study.stopping": _study_stopping,
    "study.completed": _study_completed,
    "study.failed": _study_failed,
    "study.cancelling": _study_cancelling,
    "study.cancelled": _study_cancelled,
    "trial.proposed": _trial_proposed,
    "trial.judged": _trial_judged,
    "trial.stopping": _trial_stopping,
    "trial.stopped": _trial_stopped,
    "trial.paused": _trial_paused,
    "trial.promoted": _trial_promoted,
    "trial.completed": _trial_completed,
    "trial.failed": _trial_failed,
}
