"""`drivetrain node`: list."""

from collections import Counter

from drivetrain.cli import session
from drivetrain.cli.output import Column, Format, Item, field_column, text_of, write_list
from drivetrain.cli.session import OutputOption, example

app = session.make_group("List the machines and the jobs on them.")

NODE_COLUMNS = (
    field_column("NODE", "node_id"),
    field_column("POOL", "pool"),
    field_column("DEVICE", "device_type"),
    Column("FREE", lambda node: f"{node['num_free']}/{node['num_slots']}", is_number=True),
    Column("STATE", lambda node: text_of(_state(node))),
    Column("HELD BY", lambda node: text_of(_holders(node))),
)


@app.callback()
def node() -> None:
    """Keeps `list` a subcommand, although it is the only one so far."""


@app.command(name="list", epilog=example("drivetrain node list"))
def list_nodes(output: OutputOption = Format.TABLE) -> None:
    """List nodes, their free slots, and the jobs that hold the others."""
    with session.connect() as gateway:
        answer = gateway.get("/v1/nodes")
    write_list(answer["nodes"], NODE_COLUMNS, output, "no nodes")


def _state(node: Item) -> str:
    if node.get("is_removed"):
        return "removed"
    return node.get("unschedulable_reason") or "open"


def _holders(node: Item) -> str:
    """Each job that holds slots, with their number."""
    held = Counter(slot["job_id"] or "another tenant" for slot in node["slots"] if slot["is_held"])
    return ", ".join(f"{holder} ({count})" for holder, count in held.items())
