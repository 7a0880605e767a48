"""What is shown instead of values that are secret by their name or their form: one rule, for what a
program says of itself and for the pages."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"
# Not the tokens of a text (max_tokens, tokenizer, pad_token_id), nor an author.
_TOKEN, _AUTH = r"token(?!s|iz|[-_]?(?:id|type))", r"auth(?!or(?!iz))"
_WORDS = rf"(?:{_TOKEN}|{_AUTH}|secret|passw|credential|api[-_]?key|private[-_]?key)"
_SECRET = re.compile(rf"(?i){_WORDS}")
_USER_OF_URL = re.compile(r"://[^/\s]*@")
# As in signed addresses: ?X-Amz-Signature=..., &sig=...
_SECRET_OF_QUERY = re.compile(
    rf"(?i)([?&;](?:[^?=&;\s]*(?:{_WORDS}|signature)[^?=&;\s]*|sig)=)[^&;#\s]*"
)
_SECRET_HEADER = re.compile(rf"(?i)((?<![\w-])[\w-]*{_WORDS}[\w-]*:(?!//)\s*)\S.*", re.DOTALL)
# What options look like; a value may begin with - as well.
_OPTION = re.compile(r"-[A-Za-z]|--[a-z]+([-_][a-z]+)*(=.*)?", re.DOTALL)
# More of a text is not looked at, nor shown.
_MAX_LOOKED_AT = 4096


def looks_secret(name: str) -> bool:
    """Of a variable, an option or a hyperparameter."""
    return _SECRET.search(name) is not None


def without_secrets(arguments: Sequence[str]) -> tuple[str, ...]:
    """Without the values of options whose names look secret."""
    shown = []
    hides_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if hides_next and _OPTION.fullmatch(argument) is None:
            shown.append(HIDDEN)
            hides_next = False
            continue
        is_secret = looks_secret(name)
        shown.append(f"{name}={HIDDEN}" if is_secret and equals else plain(argument))
        hides_next = is_secret and not equals and argument.startswith("-")
    return tuple(shown)


def plain(text: str) -> str:
    """Without the user and password of an address, signatures in its query, secret headers."""
    without_user = _USER_OF_URL.sub("://", text[:_MAX_LOOKED_AT])
    without_query = _SECRET_OF_QUERY.sub(rf"\g<1>{HIDDEN}", without_user)
    found = _SECRET_HEADER.sub(rf"\g<1>{HIDDEN}", without_query)
    return found if len(text) <= _MAX_LOOKED_AT else f"{found}... ({len(text):,} characters)"


def shown_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a job as people see it."""
    shown = dict(spec)
    for field in ("environment", "hyperparameters"):
        if shown.get(field):
            shown[field] = {name: _value(name, value) for name, value in shown[field].items()}
    if shown.get("command"):
        shown["command"] = list(without_secrets(shown["command"]))
    if shown.get("data"):
        shown["data"] = plain(shown["data"])
    return shown


def _value(name: str, value: Any) -> Any:
    if looks_secret(name):
        return HIDDEN
    return plain(value) if isinstance(value, str) else value
