"""`drivetrain parked`: list, groups, show, replay, discard what services could not handle."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from drivetrain.cli import amounts, session
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.output import (
    Column,
    Format,
    Item,
    field_column,
    text_of,
    write_line,
    write_list,
    write_note,
    write_record,
    write_value,
)
from drivetrain.cli.session import LimitOption, OutputOption, example, segment

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

app = session.make_group("Show, replay or discard records that no service could handle.")

PAGE_ITEMS = 500

ParkedArgument = Annotated[
    str, typer.Argument(metavar="RECORD", help="A parked record's id (parked_...).")
]
OneOrAll = Annotated[
    str | None, typer.Argument(metavar="RECORD", help="A record's id, or use --all.")
]
AllOption = Annotated[
    bool, typer.Option("--all", help="Every open record that the options below match.")
]
StateOption = Annotated[
    str, typer.Option("--state", help="open, replayed or discarded.", show_default=True)
]
ServiceOption = Annotated[str | None, typer.Option("--service", help="Parked by this service.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Read from this topic.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Parked for this reason.")]
TypeOption = Annotated[
    str | None, typer.Option("--type", help='Of this event type; "" for unknown ones.')
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Parked then or later (ISO 8601).")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Parked then or earlier.")
]
AfterOption = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="PLACE", help="Continue after the position that the last list printed."
    ),
]


def _state(record: Item) -> str:
    return "failed again" if record["has_failed_again"] else str(record["state"])


PARKED_COLUMNS = (
    field_column("RECORD", "parked_id"),
    field_column("SERVICE", "service"),
    field_column("TOPIC", "topic"),
    field_column("REASON", "reason"),
    Column("SIZE", lambda one: amounts.size(one["size_bytes"]), is_number=True),
    Column("PARKED", lambda one: amounts.moment(one["parked_at"])),
    Column("STATE", _state),
)
GROUP_COLUMNS = (
    field_column("REASON", "reason"),
    field_column("TOPIC", "topic"),
    field_column("SERVICE", "service"),
    Column("TYPE", lambda one: one["event_type"] or "unknown"),
    field_column("RECORDS", "num_records", is_number=True),
)


@app.command(name="list", epilog=example("drivetrain parked list --reason not_json"))
def list_parked(
    service: ServiceOption = None,
    topic: TopicOption = None,
    reason: ReasonOption = None,
    type_name: TypeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    state: StateOption = "open",
    limit: LimitOption = 20,
    after: AfterOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """List parked records, newest first."""
    query = {**_filter(service, topic, reason, type_name, since, until), "state": state}
    records: list[Item] = []
    with session.connect() as gateway:
        while len(records) < limit:
            asked = min(PAGE_ITEMS, limit - len(records))
            page = gateway.get("/v1/parked", {**query, "limit": asked, "after": after})
            records += page["records"]
            after = page["next"]
            if after is None:
                break
    write_list(records, PARKED_COLUMNS, output, "no parked records")
    if after is not None:
        write_note(f"there are more: --after {after}")


@app.command(epilog=example("drivetrain parked groups"))
def groups(state: StateOption = "open", output: OutputOption = Format.TABLE) -> None:
    """Count parked records by reason, topic, service and event type."""
    with session.connect() as gateway:
        found = gateway.get("/v1/parked/groups", {"state": state})["groups"]
    write_list(found, GROUP_COLUMNS, output, "no parked records")


@app.command(epilog=example("drivetrain parked show parked_abc"))
def show(parked_id: ParkedArgument, output: OutputOption = Format.TABLE) -> None:
    """Show one record with its original bytes."""
    with session.connect() as gateway:
        record = gateway.get(f"/v1/parked/{segment(parked_id)}")
    rows = [
        ("record", record["parked_id"]),
        ("state", _state(record)),
        ("service", record["service"]),
        ("from", f"{record['topic']} {record['partition']}/{record['offset']}"),
        ("reason", record["reason"]),
        ("detail", record["detail"]),
        ("parked", amounts.moment(record["parked_at"])),
        ("replayed", amounts.moment(record["replayed_at"])),
        ("note", text_of(record["decision_note"])),
        *((f"header {one['name']}", _bytes(one["value"])) for one in record["headers"]),
        ("key", _bytes(record["key"])),
        ("value", _bytes(record["value"])),
    ]
    write_record(record, output, rows)


@app.command(epilog=example("drivetrain parked replay --all --reason not_json"))
def replay(
    parked_id: OneOrAll = None,
    is_all: AllOption = False,
    service: ServiceOption = None,
    topic: TopicOption = None,
    reason: ReasonOption = None,
    type_name: TypeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Publish records again on their topics. Services that have handled a record drop it."""
    chosen = _filter(service, topic, reason, type_name, since, until)
    _decide("replay", "replayed", _one_or_all(parked_id, is_all, chosen), {}, output)


@app.command(epilog=example("drivetrain parked discard --all --topic logs --note noise"))
def discard(
    parked_id: OneOrAll = None,
    is_all: AllOption = False,
    service: ServiceOption = None,
    topic: TopicOption = None,
    reason: ReasonOption = None,
    type_name: TypeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    note: Annotated[str, typer.Option("--note", help="Why, for later readers.")] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Take records off the list. They stay readable and can still be replayed."""
    chosen = _filter(service, topic, reason, type_name, since, until)
    body = {"note": note}
    _decide("discard", "discarded", _one_or_all(parked_id, is_all, chosen), body, output)


def _filter(
    service: str | None,
    topic: str | None,
    reason: str | None,
    type_name: str | None,
    since: str | None,
    until: str | None,
) -> dict[str, str]:
    """The given options, by the names of the API."""
    given = {
        "service": service,
        "topic": topic,
        "reason": reason,
        "type": type_name,
        "since": since,
        "until": until,
    }
    return {name: value for name, value in given.items() if value is not None}


def _one_or_all(
    parked_id: str | None, is_all: bool, chosen: dict[str, str]
) -> str | dict[str, str]:
    """The id of one record, or a filter. Raises InvalidInput unless exactly one is given."""
    if parked_id is not None and not is_all and not chosen:
        return parked_id
    if parked_id is None and is_all:
        return chosen
    raise InvalidInput(
        "name one record, or use --all",
        fix="RECORD alone, or --all with options like --reason",
    )


def _decide(
    verb: str, done: str, which: str | dict[str, str], body: dict[str, Any], output: Format
) -> None:
    with session.connect() as gateway:
        if isinstance(which, str):
            answer = gateway.post(f"/v1/parked/{segment(which)}/{verb}", body)
            text = f"{which} {done}"
        else:
            answer = _decide_all(gateway, verb, {**body, **which})
            number = answer["num_records"]
            text = f"{number:,} {'record' if number == 1 else 'records'} {done}"
    if output is not Format.TABLE:
        write_value(answer, output)
        return
    write_line(text if answer["is_confirmed"] else f"{text}; {session.UNCONFIRMED}")
    if skipped := answer.get("num_skipped"):
        write_note(f"{skipped:,} cannot be replayed: too large to keep, or from an unknown topic")


def _decide_all(gateway: "Gateway", verb: str, body: dict[str, Any]) -> dict[str, Any]:
    """Repeat the request until all are done: each one is bounded in time."""
    total = {"num_records": 0, "num_skipped": 0, "is_confirmed": True}
    while True:
        answer = gateway.post(f"/v1/parked/{verb}", body)
        total["num_records"] += answer["num_records"]
        total["num_skipped"] += answer["num_skipped"]
        total["is_confirmed"] = answer["is_confirmed"]
        if answer["next"] is None:
            return total
        write_note(f"{total['num_records']:,} so far")
        body = {**body, "after": answer["next"]}


def _bytes(shown: Item | None) -> str:
    if shown is None:
        return "-"
    if shown.get("text") is None:
        return f"{amounts.size(shown['size_bytes'])}, base64 {shown['base64']}"
    return text_of(shown["text"]) + (" ..." if shown.get("is_cut") else "")
