"""Text as Postgres can keep it.

Events are refused when they hold anything else; the headers of a parked record, which may be
anything, are kept all the same.
"""


def storable_text(text: str) -> str:
    """A zero byte becomes its visible sign."""
    return text.replace("\0", "\u2400")
