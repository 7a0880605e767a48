from datetime import UTC, datetime, timedelta

from services.gateway.core.sessions import (
    SESSION_LIFE,
    holds,
    new_session,
    session_secret,
)

NOW = datetime(2026, 11, 21, tzinfo=UTC)
TOKEN = "a-token-of-some-length"
SECRET = session_secret(TOKEN, "a-cookie-secret-of-some-length")


def test_a_session_holds_until_it_ends() -> None:
    cookie = new_session(SECRET, NOW, "nonce")
    assert holds(SECRET, cookie, NOW)
    assert holds(SECRET, cookie, NOW + SESSION_LIFE - timedelta(seconds=1))
    assert not holds(SECRET, cookie, NOW + SESSION_LIFE)


def test_a_session_cannot_be_forged_or_extended() -> None:
    version, ends, nonce, signature = new_session(SECRET, NOW, "nonce").split(".")
    longer = f"{version}.{int(ends) + 1000}.{nonce}.{signature}"
    other = new_session(
        session_secret("another-token-here", "a-cookie-secret-of-some-length"), NOW, "nonce"
    )
    for forged in ("", "....", "v1.9999999999.x.", longer, other, "v1.é.x.y"):
        assert not holds(SECRET, forged, NOW)


def test_a_new_token_or_cookie_secret_ends_every_session() -> None:
    cookie = new_session(SECRET, NOW, "nonce")
    for token, cookie_secret in ((TOKEN, "another"), ("another", "a-cookie-secret-of-some-length")):
        assert not holds(session_secret(token, cookie_secret), cookie, NOW)
