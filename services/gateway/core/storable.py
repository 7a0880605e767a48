"""Values as Postgres can keep them: text without zero bytes and without halves of characters.

Logs and names come from anywhere; one odd character in them must not stop the read model.
"""

from typing import Any


def storable_text(text: str) -> str:
    """A zero byte becomes its visible sign; what is not a character becomes `?`."""
    return text.replace("\0", "\u2400").encode("utf-8", "replace").decode()


def storable(value: Any) -> Any:
    """The same for every text in a JSON value."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable(inner) for inner in value]
    return value
