"""How results are written: tables for people, JSON or YAML for programs.

Results go to standard output; progress, notes and errors go to standard error. Without a terminal,
or with NO_COLOR, everything is plain lines. Texts from the platform may contain anything that a
program printed, so control characters are never written to a terminal.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TextIO

from drivetrain.cli import amounts
from drivetrain.cli.errors import CliError

GAP = 2
_ESCAPE_OF_DEL = {"\x7f": "\\u007f"}  # which JSON need not escape
_ID = re.compile(r"\b((?:job|study|ckpt)_[a-z2-7]{8})[a-z2-7]{18}\b")


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its title, and the text of an item's cell."""

    title: str
    cell: Callable[[Item], str]
    is_number: bool = False


def field_column(title: str, name: str, *, is_number: bool = False) -> Column:
    """A column that shows one field as it is."""
    return Column(title, lambda item: text_of(item.get(name)), is_number)


def text_of(value: Any) -> str:
    """A value in a cell; a dash for an unknown value."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return amounts.number(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def write_list(items: Sequence[Item], columns: Sequence[Column], form: Format, empty: str) -> None:
    """A list of items; in table form, `empty` is printed if there are none."""
    if form is not Format.TABLE:
        write_value(list(items), form)
    elif not items:
        write_line(empty)
    else:
        _write_table([[column.cell(item) for column in columns] for item in items], columns)


def write_record(item: Item, form: Format, rows: Sequence[tuple[str, str]]) -> None:
    """One item: lines of name and text, or the whole value."""
    if form is not Format.TABLE:
        write_value(item, form)
        return
    # Names too: the names of a record's headers come from its sender.
    shown = [(clean(name).replace("\n", " "), clean(text)) for name, text in rows]
    width = max(len(name) for name, _ in shown)
    for name, text in shown:
        indented = text.replace("\n", "\n" + " " * (width + 2))
        write_line(f"{name.ljust(width)}  {indented}", is_clean=True)


def write_value(value: Any, form: Format) -> None:
    """What cannot be seen is escaped: it would hide what differs, and could affect a terminal."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    is_seen = all(line.isprintable() for line in text.split("\n"))
    if form is Format.YAML:
        import yaml

        document = yaml.safe_dump(value, sort_keys=False, allow_unicode=is_seen, width=100)
        write_line(document.rstrip("\n"), is_clean=True)
    else:
        write_line(text if is_seen else _escaped(text), is_clean=True)


def _escaped(text: str) -> str:
    """A JSON document, whose only control characters are line breaks between its lines."""
    return "".join(
        one if one.isprintable() or one == "\n" else _ESCAPE_OF_DEL.get(one, json.dumps(one)[1:-1])
        for one in text
    )


def write_line(text: str, *, is_clean: bool = False) -> None:
    print(text if is_clean else clean(text))


def write_note(text: str) -> None:
    """A note for people, on standard error."""
    print(clean(text), file=sys.stderr, flush=True)


def write_error(error: CliError) -> None:
    lines = [f"error: {error.message}"]
    lines += [f"  {problem}" for problem in error.problems]
    if error.fix:
        lines.append(f"  fix: {error.fix}")
    for line in lines:
        write_note(line)


def clean(text: str) -> str:
    """The text without control characters that would affect a terminal (newline and tab stay)."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text
    )


def is_lively(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether bars and colours may be drawn on this stream."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _write_table(cells: Sequence[Sequence[str]], columns: Sequence[Column]) -> None:
    """Aligned columns. Where they are wider than the terminal, ids are cut to what is accepted as
    their beginning; nothing else is cut, and nothing at all in a pipe."""
    shown = [[clean(cell).replace("\n", " ").replace("\t", " ") for cell in row] for row in cells]
    table = [[column.title for column in columns], *shown]
    widths = _widths(table)
    is_wide = sum(widths) + GAP * (len(widths) - 1) > shutil.get_terminal_size().columns
    if is_wide and sys.stdout.isatty():
        table = [[_ID.sub(r"\1", cell) for cell in row] for row in table]
        widths = _widths(table)
    for row in table:
        parts = [
            text.rjust(width) if column.is_number else text.ljust(width)
            for text, width, column in zip(row, widths, columns, strict=True)
        ]
        write_line((" " * GAP).join(parts).rstrip(), is_clean=True)


def _widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]
