"""Commands about a study that exists and about its trials; sent and confirmed as `commands` says.

In: a checked request, and the study or trial as the read model has it. Out: its answer within two
seconds, or none yet. A command is confirmed by what it changes: the state of the study or of the
trial, by an event that is newer than what was read before.
"""

from typing import Any

from drivetrain_schemas.base import Payload, canonical_json
from drivetrain_schemas.ids import digest_id
from drivetrain_schemas.studies import StudyAsk, StudyChange, StudyPause, StudyResume, StudyStop
from drivetrain_schemas.trials import TrialReport, TrialTell
from services.gateway import queries
from services.gateway.commands import (
    as_record,
    carry_out,
    event_id_of_key,
    publish,
    read,
)
from services.gateway.context import Gateway

Row = dict[str, Any]
StudyCommand = StudyPause | StudyResume | StudyStop | StudyChange

# The state of a study after a command; it may have completed meanwhile.
_STATES: dict[type[Payload], tuple[str, ...]] = {
    StudyPause: ("paused", "completed"),
    StudyResume: ("running", "completed"),
    StudyStop: ("stopping", "completed"),
}
ENDED = ("completed", "failed", "stopped")


async def change_study(
    gateway: Gateway, tenant_id: str, study: Row, command: StudyCommand, key: str | None
) -> bool:
    """True once the search has accepted it; False without an answer yet. Raises Problem."""
    study_id = study["study_id"]
    event_id = event_id_of_key(command.kind.type, tenant_id, study_id, key)

    async def found() -> bool | None:
        now = await read(gateway, queries.studies.find, tenant_id, study_id)
        return True if now is not None and _is_done(command, study, now) else None

    return bool(await carry_out(gateway, tenant_id, event_id, command, found))


def _is_done(command: StudyCommand, before: Row, now: Row) -> bool:
    if isinstance(command, StudyChange):
        return bool(now["changed_seq"] > before["changed_seq"])
    has_moved = now["state_seq"] > before["state_seq"]
    return bool(has_moved and now["state"] in _STATES[type(command)])


async def suggest(
    gateway: Gateway, tenant_id: str, study_id: str, request_id: str
) -> tuple[int, Row | None]:
    """(201, trial), (200, trial) where it was asked for before, or (202, None). Raises Problem."""
    known = await read(gateway, queries.studies.trial_asked_for, study_id, request_id)
    if known is not None:
        return 200, known
    # A new event each time: one that was refused may be granted later. The search itself gives
    # one trial for each request_id.
    event_id = event_id_of_key("study.ask", tenant_id, study_id, None)
    command = StudyAsk(study_id=study_id, request_id=request_id)

    async def found() -> Row | None:
        return await read(gateway, queries.studies.trial_asked_for, study_id, request_id)

    trial = await carry_out(gateway, tenant_id, event_id, command, found)
    return (201, trial) if trial is not None else (202, None)


async def report(gateway: Gateway, tenant_id: str, trial: Row, command: TrialReport) -> bool:
    """True once it is judged, or where no rung waits for it; False without an answer yet.

    The same step and value again are the same event. Raises Problem.
    """
    event_id = _event_id_of(command, tenant_id)
    due = [rung for rung in trial["rungs"] or () if _last_rung(trial) < rung <= command.step]
    if not due:
        await publish(gateway, [as_record(gateway, tenant_id, event_id, command)])
        return True

    async def found() -> bool | None:
        now = await _trial(gateway, command)
        has_end = now["state"] in (*ENDED, "stopping")
        return True if has_end or _last_rung(now) >= due[-1] else None

    return bool(await carry_out(gateway, tenant_id, event_id, command, found))


async def tell(gateway: Gateway, tenant_id: str, trial: Row, command: TrialTell) -> Row | None:
    """The trial once it has ended; None without an answer yet. Raises Problem.

    The same end again changes nothing; another one is refused by the search.
    """
    if _has_ended_by(trial, command):
        return trial

    async def found() -> Row | None:
        now = await _trial(gateway, command)
        return now if now["state_seq"] > trial["state_seq"] and now["state"] in ENDED else None

    event_id = _event_id_of(command, tenant_id)
    return await carry_out(gateway, tenant_id, event_id, command, found)


async def _trial(gateway: Gateway, command: TrialReport | TrialTell) -> Row:
    found: Row | None = await read(
        gateway, queries.studies.find_trial, command.study_id, command.number
    )
    assert found is not None, "trials are never taken away"
    return found


def _last_rung(trial: Row) -> int:
    return -1 if trial["rung"] is None else int(trial["rung"])


def _has_ended_by(trial: Row, command: TrialTell) -> bool:
    if command.is_stopped:
        return bool(trial["state"] == "stopped")
    if command.values is None:
        return bool(trial["state"] == "failed")
    values = trial["objectives"] or [trial["value"]]
    return bool(trial["state"] == "completed" and values == list(command.values))


def _event_id_of(command: TrialReport | TrialTell, tenant_id: str) -> str:
    return f"cmd_{digest_id(command.kind.type, tenant_id, canonical_json(command))}"
