"""An event as people read it: one sentence, its tone, and longer text to unfold.

In: the event's type and its payload as the read model keeps it. Out: a `Sentence`. A type without
a sentence is shown by its name, so an event that is new to this service is still shown. Sentences
are made when a page is read and never stored: better ones need no rebuild.
"""

import signal
from collections.abc import Callable, Mapping
from datetime import datetime

from drivetrain_schemas.reports import BEGINS_WITH
from drivetrain_schemas.units import short_money
from services.gateway.core import silence_narration, study_narration
from services.gateway.core.formats import count, duration, number, ranges, size
from services.gateway.core.sentences import Fields, Sentence, Tone, request_rejected, with_reason


def narrate(type_name: str, payload: Fields) -> Sentence:
    """The event as a sentence."""
    write = _SENTENCES.get(type_name)
    if write is None:
        return Sentence(type_name.replace(".", " ").replace("_", " ").capitalize())
    return write(payload)


def _job_queued(p: Fields) -> Sentence:
    resources = p["spec"]["resources"]
    devices = count(resources["devices"], "slot")
    return Sentence(f"Accepted: needs {devices} of pool {resources['pool']}")


def _job_waiting(p: Fields) -> Sentence:
    return Sentence(f"Waiting: {p['detail']}")


def _job_retrying(p: Fields) -> Sentence:
    left = count(p["retries_left"], "more retry", "more retries")
    pause = duration(p["backoff_seconds"])
    return Sentence(
        f"Attempt {p['next_attempt']} follows after a pause of {pause} ({left})", Tone.WARNING
    )


def _job_cancelling(p: Fields) -> Sentence:
    return Sentence(with_reason("Cancel requested", p["reason"]), Tone.WARNING)


def _job_succeeded(p: Fields) -> Sentence:
    text = "Training is complete"
    result = p.get("result") or {}
    best = result.get("best")
    if best:
        text += f": best {best['name']} {number(best['value'])} at step {best['step']:,}"
    if p["attempts"] > 1:
        text += f" ({count(p['attempts'], 'attempt')})"
    return Sentence(text, Tone.GOOD)


def _job_failed(p: Fields) -> Sentence:
    return Sentence(f"Failed after {count(p['attempts'], 'attempt')}: {p['detail']}", Tone.BAD)


def _job_cancelled(p: Fields) -> Sentence:
    return Sentence(with_reason("Cancelled", p["reason"]), Tone.WARNING)


def _job_stopping(p: Fields) -> Sentence:
    return Sentence(with_reason("Early stop requested", p["reason"]), Tone.WARNING)


def _job_stopped(p: Fields) -> Sentence:
    return Sentence(with_reason("Stopped early", p["reason"]), Tone.WARNING)


def _job_pausing(p: Fields) -> Sentence:
    return Sentence(with_reason("Pause requested", p["reason"]), Tone.WARNING)


def _job_paused(p: Fields) -> Sentence:
    where = f" at step {p['step']:,}" if p.get("step") is not None else ""
    return Sentence(with_reason(f"Paused{where}, holds no slots", p["reason"]), Tone.WARNING)


def _job_resumed(p: Fields) -> Sentence:
    return Sentence("Resumed: waits for slots again" if p.get("queued_at") else "Pause withdrawn")


def _job_annotated(p: Fields) -> Sentence:
    parts = [f"project {p['project']}"] if p.get("project") else []
    parts.append(f"tags {', '.join(p['tags'])}" if p["tags"] else "no tags")
    return Sentence(f"Annotated: {'; '.join(parts)}", detail=p["note"])


def _run_described(p: Fields) -> Sentence:
    said = p["surroundings"]
    packages = count(len(said.get("packages") or ()), "package")
    return Sentence(f"Attempt {p['attempt']} runs on Python {said['python']} with {packages}")


def _run_starting(p: Fields) -> Sentence:
    return Sentence(f"Attempt {p['attempt']} is starting ({count(p['num_pods'], 'pod')})")


def _run_waiting(p: Fields) -> Sentence:
    if not p.get("cause"):
        return Sentence(f"Attempt {p['attempt']} goes on: its pods are starting")
    return Sentence(f"Attempt {p['attempt']} waits: {p['detail']}", Tone.WARNING)


def _run_started(p: Fields) -> Sentence:
    return Sentence(f"Attempt {p['attempt']} is running: all pods have started", Tone.GOOD)


def _run_suspected(p: Fields) -> Sentence:
    return Sentence(
        f"No heartbeat from attempt {p['attempt']}; this alone does not stop it", Tone.WARNING
    )


def _run_heard(p: Fields) -> Sentence:
    return Sentence(f"Attempt {p['attempt']} sends heartbeats again")


def _run_unreachable(p: Fields) -> Sentence:
    if not p["node_ids"]:
        return Sentence(f"All nodes of attempt {p['attempt']} answer")
    text = f"Attempt {p['attempt']} keeps its slots and waits: {p['detail']}"
    return Sentence(text, Tone.WARNING)


def _run_succeeded(p: Fields) -> Sentence:
    return Sentence(f"Attempt {p['attempt']} is complete: all ranks exited with code 0", Tone.GOOD)


def _run_failed(p: Fields) -> Sentence:
    text = f"Attempt {p['attempt']} failed: {p.get('detail') or _how_ended(p)}"
    return Sentence(text, Tone.BAD, p.get("last_log", "").strip())


def _how_ended(p: Fields) -> str:
    """For events from before the field `detail`."""
    who = f"rank {p['rank']}" if p.get("rank") is not None else "a rank"
    if p.get("signal") is not None:
        how = f"was killed by {_signal_name(p['signal'])}"
    elif p.get("exit_code") is not None:
        how = f"ended with exit code {p['exit_code']}"
    else:
        how = "ended without success"
    return f"{who} {how}"


def _run_lost(p: Fields) -> Sentence:
    return Sentence(f"Attempt {p['attempt']} was lost: {p['detail']}", Tone.BAD)


def _run_cancelled(p: Fields) -> Sentence:
    text = f"Attempt {p['attempt']} was stopped because the job was cancelled"
    return Sentence(text, Tone.WARNING)


def _run_stopped(p: Fields) -> Sentence:
    return Sentence(f"Attempt {p['attempt']} was stopped early", Tone.WARNING)


def _run_interrupted(p: Fields) -> Sentence:
    if p.get("detail"):
        text = f"Attempt {p['attempt']} was interrupted and is resumed: {p['detail']}"
        return Sentence(text, Tone.WARNING)
    return Sentence(
        f"Attempt {p['attempt']} stopped at a step boundary with a checkpoint, to be resumed",
        Tone.WARNING,
    )


def _allocation_granted(p: Fields) -> Sentence:
    return Sentence(f"Holds {count(len(p['slots']), 'slot')}: {_slots(p)}")


def _allocation_released(p: Fields) -> Sentence:
    held = _between(p["granted_at"], p["released_at"])
    return Sentence(f"Released {count(len(p['slots']), 'slot')} after {duration(held)}")


def _charge_recorded(p: Fields) -> Sentence:
    seconds = _between(p["starts_at"], p["ends_at"])
    amount = short_money(p["amount_micro_usd"])
    if p.get("reverses_charge_id"):
        return Sentence(f"A charge was reversed: {amount}")
    return Sentence(
        f"Charged {amount} for {count(p['num_slots'], 'slot')} over {duration(seconds)}"
    )


def _budget_changed(p: Fields) -> Sentence:
    spec = p["spec"]
    per = {"total": "in total"}.get(spec["period"], f"a {spec['period']}")
    return Sentence(f"Budget {p['name']}: {short_money(spec['limit_micro_usd'])} {per}")


def _budget_removed(p: Fields) -> Sentence:
    return Sentence(f"Budget {p['name']} was removed")


def _budget_reached(p: Fields) -> Sentence:
    spent, limit = short_money(p["spent_micro_usd"]), short_money(p["spec"]["limit_micro_usd"])
    text = f"Budget {p['name']}: {p['percent']} % are spent ({spent} of {limit})"
    follows = {"hold": "; no more runs start", "stop": "; its jobs are stopped"}
    tone = Tone.WARNING if p["action"] == "warn" else Tone.BAD
    return Sentence(text + follows.get(p["action"], ""), tone)


def _budget_released(p: Fields) -> Sentence:
    return Sentence(f"Budget {p['name']} holds nothing back any more", Tone.GOOD)


def _checkpoint_committed(p: Fields) -> Sentence:
    best = ", the best so far" if p.get("is_best") else ""
    return Sentence(
        f"Checkpoint at step {p['step']:,} is complete and verified"
        f" ({size(p['size_bytes'])}{best}){_left_out(p.get('files'))}",
        Tone.WARNING if _left_out(p.get("files")) else Tone.GOOD,
        _examples(p.get("files")),
    )


def _files_saved(p: Fields) -> Sentence:
    files = p["files"]
    text = f"{count(files['num_files'], 'file')} saved ({size(files['size_bytes'])})"
    left_out = _left_out(files)
    return Sentence(text + left_out, Tone.WARNING if left_out else Tone.PLAIN, _examples(files))


def _left_out(files: Fields | None) -> str:
    number = files.get("num_left_out", 0) if files else 0
    return f"; {count(number, 'file')} of the job not saved" if number else ""


def _examples(files: Fields | None) -> str:
    return "\n".join(files.get("left_out", ())) if files else ""


def _checkpoint_rejected(p: Fields) -> Sentence:
    return Sentence(
        f"Checkpoint at step {p['step']:,} is invalid and will not be used: {p['detail']}",
        Tone.WARNING,
    )


def _checkpoint_restored(p: Fields) -> Sentence:
    text = (
        f"Attempt {p['resumed_by_attempt']} resumed at step {p['step']:,}"
        f" (loaded in {duration(p['load_seconds'])})"
    )
    rejected = tuple(p.get("rejected", ()))
    if not rejected:
        return Sentence(text, Tone.GOOD)
    newer = count(len(rejected), "newer checkpoint")
    text += f"; {newer} did not verify"
    return Sentence(text, Tone.WARNING, "\n".join(rejected))


def _checkpoint_deleted(p: Fields) -> Sentence:
    return Sentence(f"Checkpoint at step {p['step']:,} was removed: {p['reason']}")


def _checkpointing_failed(p: Fields) -> Sentence:
    since = f"since step {p['last_step']:,}" if p.get("last_step") is not None else "at all"
    return Sentence(
        f"Attempt {p['attempt']} has saved no checkpoint {since}: {p['detail']}", Tone.BAD
    )


def _checkpointing_recovered(p: Fields) -> Sentence:
    return Sentence(
        f"Attempt {p['attempt']} saves checkpoints again: step {p['step']:,}", Tone.GOOD
    )


def _checkpointing_went_back(p: Fields) -> Sentence:
    return Sentence(
        f"Attempt {p['attempt']} did not resume from the checkpoint at step {p['further_step']:,}: "
        f"its own first one is at step {p['step']:,}",
        Tone.BAD,
    )


def _checkpoint_pinned(p: Fields) -> Sentence:
    return Sentence(f"Checkpoint at step {p['step']:,} is pinned and will be kept")


def _pin_rejected(p: Fields) -> Sentence:
    return Sentence(f"A checkpoint could not be pinned: {p['detail']}", Tone.WARNING)


def _alert_raised(p: Fields) -> Sentence:
    return Sentence(f"Alert: {p['detail']}", Tone.WARNING)


def _alert_cleared(p: Fields) -> Sentence:
    return Sentence(f"Alert cleared ({p['alert'].replace('_', ' ')}): {p['detail']}")


def _run_warned(p: Fields) -> Sentence:
    if p["warning"] == BEGINS_WITH:
        return Sentence(p["detail"][0].upper() + p["detail"][1:])
    return Sentence(f"Attempt {p['attempt']} warns: {p['detail']}", Tone.WARNING)


def _trial_measured(p: Fields) -> Sentence:
    value = "no value" if p.get("value") is None else number(p["value"])
    at = p.get("value_step")
    where = f" (of step {at:,})" if at is not None and at != p["step"] else ""
    return Sentence(f"Reached step {p['step']:,} of the search with {value}{where}")


def _node_registered(p: Fields) -> Sentence:
    slots = count(p["num_slots"], f"{p['device_type']} slot")
    if reason := p.get("unschedulable_reason"):
        text = f"Node {p['node_id']} of pool {p['pool']} accepts no new runs: {reason}"
        return Sentence(text, Tone.WARNING)
    return Sentence(f"Node {p['node_id']} offers {slots} to pool {p['pool']}")


def _node_removed(p: Fields) -> Sentence:
    return Sentence(f"Node {p['node_id']} was removed: {p['reason']}", Tone.WARNING)


def _slots(p: Fields) -> str:
    by_node: dict[str, list[int]] = {}
    for slot in p["slots"]:
        by_node.setdefault(slot["node_id"], []).append(slot["slot"])
    return "; ".join(f"{node} slot {ranges(numbers)}" for node, numbers in sorted(by_node.items()))


def _between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _signal_name(number_: int) -> str:
    try:
        return signal.Signals(number_).name
    except ValueError:
        return f"signal {number_}"


def _parked_replayed(p: Fields) -> Sentence:
    return Sentence(f"{count(len(p['records']), 'parked record')} replayed")


def _parked_discarded(p: Fields) -> Sentence:
    text = f"{count(len(p['records']), 'parked record')} discarded"
    return Sentence(with_reason(text, p.get("note", "")))


_SENTENCES: Mapping[str, Callable[[Fields], Sentence]] = {
    "job.queued": _job_queued,
    "job.waiting": _job_waiting,
    "job.annotated": _job_annotated,
    "run.described": _run_described,
    "job.retrying": _job_retrying,
    "job.cancelling": _job_cancelling,
    "job.succeeded": _job_succeeded,
    "job.failed": _job_failed,
    "job.cancelled": _job_cancelled,
    "job.stopping": _job_stopping,
    "job.stopped": _job_stopped,
    "job.pausing": _job_pausing,
    "job.paused": _job_paused,
    "job.resumed": _job_resumed,
    "job_request.rejected": request_rejected,
    "run.starting": _run_starting,
    "run.waiting": _run_waiting,
    "run.started": _run_started,
    "run.suspected": _run_suspected,
    "run.heard": _run_heard,
    "run.unreachable": _run_unreachable,
    "run.succeeded": _run_succeeded,
    "run.failed": _run_failed,
    "run.lost": _run_lost,
    "run.cancelled": _run_cancelled,
    "run.stopped": _run_stopped,
    "run.interrupted": _run_interrupted,
    "allocation.granted": _allocation_granted,
    "allocation.released": _allocation_released,
    "charge.recorded": _charge_recorded,
    "budget.changed": _budget_changed,
    "budget.removed": _budget_removed,
    "budget.reached": _budget_reached,
    "budget.released": _budget_released,
    "budget_request.rejected": request_rejected,
    "checkpoint.committed": _checkpoint_committed,
    "checkpoint.rejected": _checkpoint_rejected,
    "files.saved": _files_saved,
    "checkpoint.restored": _checkpoint_restored,
    "checkpoint.deleted": _checkpoint_deleted,
    "checkpoint.pinned": _checkpoint_pinned,
    "checkpointing.failed": _checkpointing_failed,
    "checkpointing.recovered": _checkpointing_recovered,
    "checkpointing.went_back": _checkpointing_went_back,
    "checkpoint.pin_rejected": _pin_rejected,
    "parked.replayed": _parked_replayed,
    "parked.discarded": _parked_discarded,
    "alert.raised": _alert_raised,
    "alert.cleared": _alert_cleared,
    "run.warned": _run_warned,
    "trial.measured": _trial_measured,
    "node.registered": _node_registered,
    "node.removed": _node_removed,
    **study_narration.SENTENCES,
    **silence_narration.SENTENCES,
}
