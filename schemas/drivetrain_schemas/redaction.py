"""What is shown instead of values that are secret by their name or their form: one rule, for what a
program says of itself, and for everything that shows a spec or lets it leave the platform."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

HIDDEN = "***"
# Not the tokens of a text (max_tokens, tokenizer, pad_token, token_type), nor an author.
_OF_TEXT = r"(?<!(?:pad|bos|eos|unk|cls|sep)[-_])(?<!mask[-_])(?<!(?:class|image)[-_])"
_TOKEN = rf"{_OF_TEXT}token(?!s|i[sz]|wise|[-_]?(?:id|type|level|mix|merg|pool|embed|drop|mask))"
_AUTH = r"auth(?!or(?!iz))"
_KEY = r"(?:api|private|account|access)[-_.]?key(?![-_]?id)"
# What the last word of a variable in capitals says; elsewhere a key is one of a mapping.
_VARIABLE = r"(?-i:_(?:KEY|PASS|PWD|CREDS|JWT)\b)"
_DIGITS_TOO = rf"secret|passw|passphrase|credential|{_AUTH}|{_VARIABLE}"
_WORDS = rf"(?:{_TOKEN}|{_KEY}|cookie|{_DIGITS_TOO})"
_SECRET = re.compile(rf"(?i){_WORDS}")
_MAY_BE_DIGITS = re.compile(rf"(?i){_DIGITS_TOO}")
_NUMBER = re.compile(r"(?i)[-+]?(?:\d{1,6}|\d*\.\d+|\d+\.?\d*e[-+]?\d{1,3})|true|false|none|null")
# A password may contain a slash; what follows a host and a colon is a port.
_USER_OF_URL = re.compile(r"://(?:[^/\s]*@|[^/\s@:]*:(?!\d+(?:/|$))[^\s@]*@)")
# As in signed addresses: ?X-Amz-Signature=..., &sig=...
_SECRET_OF_QUERY = re.compile(
    rf"(?i)([?&;](?:[^?=&;\s]*(?:{_WORDS}|signature)[^?=&;\s]*|sig)=)[^&;#\s]*"
)
# Of HTTP or YAML; but not of a sentence ("unexpected token: x").
_NAME = rf"[\w-]{{0,99}}{_WORDS}[\w-]{{0,99}}"  # bounded, as each end is tried
_SECRET_HEADER = re.compile(rf"(?i)((?<![\w-])(?<!\w ){_NAME}:(?!//)[ \t]*)\S.*")
# In a line of a shell: TOKEN=..., --token ...; and the forms of tokens that are widely known.
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|\\.|[^\s;&|"'\\])+"""
_SECRET_ASSIGNED = re.compile(
    rf"(?is)((?<![\w-])(?:{_NAME}=|--?(?:[\w-]{{1,99}}\.)*{_NAME}(?:\s|\\\n)+(?!-))){_VALUE}"
)
# In a text that should have been JSON: "token": "...", and "--token", "...".
_SECRET_MEMBER = re.compile(
    rf"""(?i)("[^"=]*{_WORDS}[^"=]*"\s*[:,]\s*)(?:"(?:[^"\\]|\\.)*"?|[^\s,}}\]]+)"""
)
_KNOWN_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|AKIA[0-9A-Z]{12,}|AIza[\w-]{30,}|sk-(?:\w+-)*[A-Za-z0-9]{16,}[\w-]*"
    r"|xox[abprs]-\d[\w-]{9,}|eyJ[\w-]{10,}\.eyJ[\w-]+\.[\w-]*)"
)
# Linear in the length of a text, unlike the patterns above: how each of them begins.
_SUSPECT = re.compile(
    rf"(?i){_WORDS}|sig|://|private key|hf_|gh[oprsu]_|github_|glpat-|AKIA|AIza|sk-|xox|eyJ"
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL
)
# What options look like; a value may begin with - as well.
_OPTION = re.compile(r"-[A-Za-z]|--[a-z]+([-_][a-z]+)*(=.*)?", re.DOTALL)
# Of a text that may hold secrets no more is read, nor shown; one may begin before its end.
_MAX_LOOKED_AT, _MAX_SECRET = 4096, 256
_CUT = re.compile(r"\.\.\. \([\d,]+ characters\)\Z")


def looks_secret(name: str, value: Any = None) -> bool:
    """Of a variable, an option or a hyperparameter. A number is a password at most, never a token,
    and nothing is hidden by true or false: many hyperparameters are of tokens (token_dropout).
    """
    if _SECRET.search(name) is None or isinstance(value, bool | float):
        return False
    is_number = isinstance(value, int) or (isinstance(value, str) and _NUMBER.fullmatch(value))
    return not is_number or _MAY_BE_DIGITS.search(name) is not None


def without_secrets(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Without the values of options whose names look secret."""
    shown: list[Any] = []
    option = ""
    for argument in arguments:
        text = argument if isinstance(argument, str) else ""
        name, equals, value = text.partition("=")
        if option and (not text or _OPTION.fullmatch(text) is None):
            shown.append(HIDDEN if looks_secret(option, argument) else redacted(argument))
            option = ""
            continue
        is_name = not any(map(str.isspace, name.strip()))
        is_secret = is_name and looks_secret(name, value or None)
        shown.append(f"{name}={HIDDEN}" if is_secret and equals else _shown_argument(argument))
        option = name if is_secret and not equals and name.startswith("-") else ""
    return tuple(shown)


def plain(text: str) -> str:
    """Without the user and password of an address, signatures in its query, secret headers, values
    given to secret names, and known tokens."""
    if _SUSPECT.search(text) is None:  # most texts hold nothing
        return text
    found = text[:_MAX_LOOKED_AT]
    found = _USER_OF_URL.sub("://", _PRIVATE_KEY.sub(HIDDEN, found))
    found = _SECRET_OF_QUERY.sub(rf"\g<1>{HIDDEN}", found)
    found = _KNOWN_TOKEN.sub(HIDDEN, found)
    found = _SECRET_ASSIGNED.sub(rf"\g<1>{HIDDEN}", found)
    found = _SECRET_MEMBER.sub(rf'\g<1>"{HIDDEN}"', found)
    found = _SECRET_HEADER.sub(rf"\g<1>{HIDDEN}", found)
    if len(text) <= _MAX_LOOKED_AT:
        return found
    return f"{found[:-_MAX_SECRET]}... ({len(text):,} characters)"


def redacted(part: Any) -> Any:
    """A spec, an event or a part of one as people see it, in JSON: the one place that decides."""
    if isinstance(part, str):
        return _shown_text(part)
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
    return [path.lstrip(".")] if isinstance(part, str) and _is_hidden(part) else []


def _is_hidden(text: str) -> bool:
    """Where a value would be hidden, or a text was cut. Stars elsewhere are only stars."""
    if text == HIDDEN or text.endswith(f"={HIDDEN}") or _CUT.search(text):
        return True
    filled = text.replace(HIDDEN, "hidden")
    return filled != text and redacted(filled) != filled


def _shown(name: str, value: Any) -> Any:
    if looks_secret(name):
        return _hidden(name, value)
    if name in ("command", "arguments") and isinstance(value, list | tuple):
        return list(without_secrets(value))
    return redacted(value)


def _shown_text(text: str) -> str:
    """A whole document of JSON is looked at as one; other texts line by line."""
    if text.startswith("{"):
        with suppress(ValueError, RecursionError):
            document = json.loads(text)
            shown = redacted(document)
            return text if shown == document else json.dumps(shown)
    return "\n".join(map(plain, _PRIVATE_KEY.sub(HIDDEN, text).split("\n")))


def _shown_argument(argument: Any) -> Any:
    return plain(argument) if isinstance(argument, str) else redacted(argument)


def _hidden(name: str, value: Any) -> Any:
    """A search may draw a secret from a list: that it does is shown, as its `type`."""
    if isinstance(value, Mapping):
        return {key: one if key == "type" else _hidden(name, one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        hidden = [_hidden(name, one) for one in value]
        return [HIDDEN] if HIDDEN in hidden else hidden
    return HIDDEN if value is not None and looks_secret(name, value) else value
