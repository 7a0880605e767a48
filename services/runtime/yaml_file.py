"""Reads an operator's YAML file into plain values, bounded.

Refused with the line: aliases, which can make a small file endlessly large, deep nesting, and a key
that stands twice in a mapping, of which YAML would take the last.
Raises ValueError (yaml.YAMLError is turned into one) and OSError.
"""

from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 4 * 2**20
MAX_DEPTH = 32


def read_yaml(path: Path) -> Any:
    """The content of the file."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"has more than {MAX_BYTES // 2**20} MiB")
    try:
        text = content.decode()
        _check(text)
        return yaml.load(text, Loader=_Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(f"is not YAML: {error}") from error


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                line = key.start_mark.line + 1
                raise ValueError(f"line {line}: {key.value!r} is given twice: keep one of them")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _check(text: str) -> None:
    """Look at the parser's events, before anything is built of them."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"line {line}: the alias *{event.anchor} is not taken: write it out")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"line {line}: nested deeper than {MAX_DEPTH} levels: flatten it")
