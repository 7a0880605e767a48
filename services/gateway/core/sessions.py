"""Proof of identity in a browser: one-time codes for links, and signed session cookies.

In: secrets, texts and the time. Out: signed values, or whether one holds. No secret is in
a cookie: it carries when it ends and a signature over that, and ends with the secret's change.
"""

import hashlib
import hmac
import re
from datetime import UTC, datetime, timedelta

SESSION_LIFE = timedelta(days=14)
CODE_LIFE = timedelta(minutes=10)
# Short, so that a link with it fits on a line: 96 bits cannot be guessed in ten minutes.
CODE_BYTES = 12
# Pages that a link may show: a path of this server, and never the name of another one.
PAGE_PATH = r"^/([A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*)?$"
_VERSION = "v1"


def session_secret(api_token: str, cookie_secret: str) -> bytes:
    """The signing key. Neither secret is enough to compute it, and a change of either ends every
    session.
    """
    return hmac.digest(
        cookie_secret.encode(), b"drivetrain session " + api_token.encode(), "sha256"
    )


def cookie_name(secret: bytes) -> str:
    """One name per platform: browsers share cookies among all ports of a host, so that two
    platforms on one machine would end each other's sessions under a common name."""
    return f"drivetrain_session_{_signature(secret, 'cookie name')[:12]}"


def new_session(secret: bytes, now: datetime, nonce: str) -> str:
    """`nonce` makes sessions of one second differ; it is URL-safe and holds no dot."""
    body = f"{_VERSION}.{int((now + SESSION_LIFE).timestamp())}.{nonce}"
    return f"{body}.{_signature(secret, body)}"


def holds(secret: bytes, cookie: str, now: datetime) -> bool:
    """True for a session of ours that has not ended."""
    body, _, signature = cookie.rpartition(".")
    if not hmac.compare_digest(_signature(secret, body).encode(), signature.encode()):
        return False
    parts = body.split(".")
    if len(parts) != 3 or parts[0] != _VERSION:
        return False
    return now < datetime.fromtimestamp(int(parts[1]), UTC)


def shown_page(path: str) -> str:
    """Where the browser goes once it is signed in."""
    is_page = len(path) <= 128 and re.fullmatch(PAGE_PATH, path) and path != "/login"
    return path if is_page else "/"


def code_digest(code: str) -> str:
    """What is stored of a code: reading the table gives no access."""
    return hashlib.sha256(code.encode()).hexdigest()


def _signature(secret: bytes, body: str) -> str:
    return hmac.digest(secret, body.encode(), "sha256").hex()
