"""`drivetrain parked`: list, show, replay what services could not handle."""

from itertools import islice
from typing import Annotated

import typer

from drivetrain.cli import amounts, session
from drivetrain.cli.output import (
    Column,
    Format,
    Item,
    field_column,
    text_of,
    write_line,
    write_list,
    write_record,
    write_value,
)
from drivetrain.cli.session import LimitOption, OutputOption, segment

app = session.make_group("Look at records that no service could handle, and put them back.")

ParkedArgument = Annotated[
    str, typer.Argument(metavar="RECORD", help="A parked record's id (parked_...).")
]

PARKED_COLUMNS = (
    field_column("RECORD", "parked_id"),
    field_column("SERVICE", "service"),
    field_column("TOPIC", "topic"),
    field_column("REASON", "reason"),
    Column("SIZE", lambda one: amounts.size(one["size_bytes"]), is_number=True),
    Column("PARKED", lambda one: amounts.moment(one["parked_at"])),
    Column("REPLAYED", lambda one: amounts.moment(one.get("replayed_at"))),
)


@app.command(name="list")
def list_parked(limit: LimitOption = 20, output: OutputOption = Format.TABLE) -> None:
    """List parked records, newest first."""
    with session.connect() as gateway:
        records = list(islice(gateway.pages("/v1/parked", "records"), limit))
    write_list(records, PARKED_COLUMNS, output, "nothing is parked")


@app.command()
def show(parked_id: ParkedArgument, output: OutputOption = Format.TABLE) -> None:
    """Show one record as it came."""
    with session.connect() as gateway:
        record = gateway.get(f"/v1/parked/{segment(parked_id)}")
    rows = [
        ("record", record["parked_id"]),
        ("service", record["service"]),
        ("from", f"{record['topic']} {record['partition']}/{record['offset']}"),
        ("reason", record["reason"]),
        ("detail", record["detail"]),
        ("parked", amounts.moment(record["parked_at"])),
        ("replayed", amounts.moment(record.get("replayed_at"))),
        *((f"header {one['name']}", _bytes(one["value"])) for one in record["headers"]),
        ("key", _bytes(record["key"])),
        ("value", _bytes(record["value"])),
    ]
    write_record(record, output, rows)


@app.command()
def replay(parked_id: ParkedArgument, output: OutputOption = Format.TABLE) -> None:
    """Put a record back on its topic, under its own id: who handled it will not do so again."""
    with session.connect() as gateway:
        answer = gateway.post(f"/v1/parked/{segment(parked_id)}/replay")
    if output is Format.TABLE:
        write_line(f"{parked_id} is on its way again")
    else:
        write_value(answer, output)


def _bytes(shown: Item | None) -> str:
    if shown is None:
        return "-"
    if shown.get("text") is None:
        return f"{amounts.size(shown['size_bytes'])}, base64 {shown['base64']}"
    return text_of(shown["text"]) + (" ..." if shown.get("is_cut") else "")
