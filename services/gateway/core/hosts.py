"""Who may be addressed, and from where a change may be asked for.

In: the Host, Origin and Sec-Fetch-Site headers of a request and the port it arrived on. Out: None,
or the reason for the refusal. Keeps web pages of other sites, and other names that were made to
point at this machine (DNS rebinding), from using the browser of someone who is signed in.
"""

from collections.abc import Collection
from dataclasses import dataclass

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the request is not served, and what would mend it."""

    code: str
    detail: str
    fix: str


def check_host(
    hosts: tuple[str, ...], port: int | None, allowed: Collection[str]
) -> Refusal | None:
    """Loopback names need the port that the request arrived on; other names must be configured."""
    if len(hosts) == 1 and _is_ours(hosts[0].lower(), port, allowed):
        return None
    named = hosts[0] if len(hosts) == 1 else f"{len(hosts)} Host headers"
    return Refusal(
        "foreign_host",
        f"this server does not answer to {named:.120}",
        "open it under the address it printed, or add this name to DRIVETRAIN_ALLOWED_HOSTS",
    )


def check_origin(
    method: str, host: str, origin: str | None, fetch_site: str | None, *, by_cookie: bool
) -> Refusal | None:
    """A change is taken from our own pages, or from a program that shows the token."""
    if method in SAFE_METHODS:
        return None
    if fetch_site is not None and fetch_site not in ("same-origin", "none"):
        return _foreign(f"the browser calls this request {fetch_site[:40]}")
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        return _foreign(f"it comes from {origin[:120]}")
    if by_cookie and origin is None and fetch_site is None:
        return _foreign("it names no origin and shows no token")
    return None


def _is_ours(host: str, port: int | None, allowed: Collection[str]) -> bool:
    if host in {name.lower() for name in allowed}:
        return True
    name, separator, port_text = host.rpartition(":")
    if not separator or host.endswith("]"):
        name, port_text = host, "80"
    return name in _LOOPBACK_NAMES and port_text == str(port)


def _foreign(why: str) -> Refusal:
    return Refusal(
        "foreign_origin",
        f"this change was not asked for by a page of this server: {why}",
        "use the page's own buttons, or a bearer token without an Origin header",
    )
