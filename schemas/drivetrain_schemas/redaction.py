"""What is shown instead of values that are secret by their name or their form: one rule, for what a
program says of itself, and for everything that shows a spec or lets it leave the platform."""

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
# In a line of a shell: TOKEN=..., --token ...; and the forms of tokens that are widely known.
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s;&|"']+)"""
_SECRET_ASSIGNED = re.compile(
    rf"(?i)((?<![\w-])(?:[\w-]*{_WORDS}[\w-]*=|--[\w-]*{_WORDS}[\w-]*\s+(?!-))){_VALUE}"
)
# In a text that should have been JSON: "token": "...", and "--token", "...".
_SECRET_MEMBER = re.compile(
    rf"""(?i)("[^"=]*{_WORDS}[^"=]*"\s*[:,]\s*)(?:"(?:[^"\\]|\\.)*"?|[^\s,}}\]]+)"""
)
_KNOWN_TOKEN = re.compile(
    r"\b(?:hf_\w{16,}|gh[oprsu]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{12,}"
    r"|sk-[\w-]{16,}|xox[abprs]-[\w-]{10,})"
)
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
        is_secret = looks_secret(name) and not any(map(str.isspace, name))
        shown.append(f"{name}={HIDDEN}" if is_secret and equals else plain(argument))
        hides_next = is_secret and not equals and argument.startswith("-")
    return tuple(shown)


def plain(text: str) -> str:
    """Without the user and password of an address, signatures in its query, secret headers, values
    given to secret names, and known tokens."""
    without_user = _USER_OF_URL.sub("://", text[:_MAX_LOOKED_AT])
    without_query = _SECRET_OF_QUERY.sub(rf"\g<1>{HIDDEN}", without_user)
    without_token = _KNOWN_TOKEN.sub(HIDDEN, without_query)
    without_value = _SECRET_ASSIGNED.sub(rf"\g<1>{HIDDEN}", without_token)
    without_member = _SECRET_MEMBER.sub(rf'\g<1>"{HIDDEN}"', without_value)
    found = _SECRET_HEADER.sub(rf"\g<1>{HIDDEN}", without_member)
    return found if len(text) <= _MAX_LOOKED_AT else f"{found}... ({len(text):,} characters)"


def redacted(part: Any) -> Any:
    """A spec, an event or a part of one as people see it, in JSON: the one place that decides."""
    if isinstance(part, str):
        return "\n".join(map(plain, part.split("\n")))
    if isinstance(part, Mapping):
        return {name: _shown(str(name), value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [redacted(value) for value in part]
    return part


def restored(given: Any, shown: Any, source: Any) -> Any:
    """`given` with the source's own values where it has what is shown of it (`shown`)."""
    if given == shown:
        return source
    if all(isinstance(part, Mapping) for part in (given, shown, source)):
        return {
            name: restored(value, shown.get(name), source.get(name))
            for name, value in given.items()
        }
    return given


def hidden_fields(part: Any, path: str = "") -> list[str]:
    """Where values are hidden: what was shown is sent as if it were the value."""
    if isinstance(part, Mapping):
        found = [hidden_fields(value, f"{path}.{name}") for name, value in part.items()]
        return [one for of_value in found for one in of_value]
    if isinstance(part, list | tuple):
        found = [hidden_fields(value, f"{path}.{at}") for at, value in enumerate(part)]
        return [one for of_value in found for one in of_value]
    is_hidden = isinstance(part, str) and (part == HIDDEN or part.endswith(f"={HIDDEN}"))
    return [path.lstrip(".")] if is_hidden else []


def _shown(name: str, value: Any) -> Any:
    if looks_secret(name):
        return _hidden(value)
    is_arguments = name in ("command", "arguments") and isinstance(value, list | tuple)
    if is_arguments and all(isinstance(one, str) for one in value):
        return list(without_secrets(value))
    return redacted(value)


def _hidden(value: Any) -> Any:
    """A search may draw a secret from a list: that it does is shown, as its `type`."""
    if isinstance(value, Mapping):
        return {name: one if name == "type" else _hidden(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [HIDDEN] if value else []
    return None if value is None else HIDDEN
