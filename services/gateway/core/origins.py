"""From which web pages a change is accepted.

In: the Host, Origin and Sec-Fetch-Site headers of a request. Out: None, or the reason for the
refusal. Keeps web pages of other sites from using the browser of someone who is signed in.
"""

from dataclasses import dataclass

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the request is refused, and the fix."""

    code: str
    detail: str
    fix: str


def check_origin(
    method: str, host: str, origin: str | None, fetch_site: str | None, *, by_cookie: bool
) -> Refusal | None:
    """A change is accepted from our own pages, or from a program that sends the token."""
    if method in SAFE_METHODS:
        return None
    if fetch_site is not None and fetch_site not in ("same-origin", "none"):
        return _foreign(f"Sec-Fetch-Site is {fetch_site[:40]}")
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        return _foreign(f"Origin is {origin[:120]}")
    if by_cookie and origin is None and fetch_site is None:
        return _foreign("it has neither an Origin header nor a token")
    return None


def _foreign(why: str) -> Refusal:
    return Refusal(
        "foreign_origin",
        f"the request does not come from a page of this server: {why}",
        "use the page's own buttons, or a bearer token without an Origin header",
    )
