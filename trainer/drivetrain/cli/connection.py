"""The address of the platform, and the token for it.

`DRIVETRAIN_URL` with `DRIVETRAIN_TOKEN`, else the `connection.json` that a platform on this machine
writes into `DRIVETRAIN_HOME` (default `~/.drivetrain`). The two are never mixed: a token is only
ever sent to the platform that it came with.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from drivetrain.cli.errors import Unreachable

START_FIX = "start a platform with `make run`, or set DRIVETRAIN_URL and DRIVETRAIN_TOKEN"


@dataclass(frozen=True, slots=True)
class Connection:
    """The gateway's address without a slash at its end, and the token for it."""

    url: str
    token: str = field(repr=False)


def find_connection(environment: Mapping[str, str]) -> Connection:
    """Raises Unreachable with the fix."""
    url, token = environment.get("DRIVETRAIN_URL", ""), environment.get("DRIVETRAIN_TOKEN", "")
    if url and token:
        return _checked(url, token, "DRIVETRAIN_URL")
    if url or token:
        missing = "DRIVETRAIN_TOKEN" if url else "DRIVETRAIN_URL"
        raise Unreachable(f"{missing} is not set", fix="set both, or neither to use this machine's")
    home = environment.get("DRIVETRAIN_HOME") or str(Path.home() / ".drivetrain")
    return _read(Path(home) / "connection.json")


def _read(path: Path) -> Connection:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        url, token = document["gateway_url"], document["token"]
    except FileNotFoundError:
        raise Unreachable(f"no platform found: {path} does not exist", fix=START_FIX) from None
    except OSError as error:
        fix = "run this as the user who started the platform"
        raise Unreachable(f"cannot read {path}: {error.strerror}", fix=fix) from error
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"{path} has no address of a platform", fix=START_FIX) from error
    return _checked(str(url), str(token), str(path))


def _checked(url: str, token: str, source: str) -> Connection:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_address = False
    if not is_address:
        fix = "write http://HOST:PORT or https://HOST"
        raise Unreachable(f"{source}: {url!r} is not an address", fix=fix)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise Unreachable(f"{source}: the token has invalid characters", fix=START_FIX)
    return Connection(url.rstrip("/"), token)


def is_this_machine(url: str) -> bool:
    """Whether the address is on loopback, where no proxy is asked."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
