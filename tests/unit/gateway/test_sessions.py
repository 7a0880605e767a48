from datetime import UTC, datetime, timedelta

import pytest

from services.gateway.core.sessions import (
    SESSION_LIFE,
    _signature,
    code_digest,
    cookie_name,
    holds,
    new_session,
    session_secret,
    shown_page,
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


@pytest.mark.parametrize("body", ["v2.9999999999.x", "v1.9999999999", "v1.9999999999.x.y", "v1"])
def test_only_the_form_of_this_version_is_a_session_even_signed(body: str) -> None:
    assert not holds(SECRET, f"{body}.{_signature(SECRET, body)}", NOW)


def test_each_platform_has_a_cookie_of_its_own_and_keeps_no_code() -> None:
    other = session_secret(TOKEN, "another-cookie-secret")
    assert cookie_name(SECRET) == cookie_name(SECRET) != cookie_name(other)
    assert len(cookie_name(SECRET)) == len("drivetrain_session_") + 12
    assert code_digest("code") == code_digest("code") != code_digest("cod")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/", "/"),
        ("/jobs/job_a", "/jobs/job_a"),
        ("/" + "a" * 127, "/" + "a" * 127),
        ("/" + "a" * 128, "/"),
        ("/login", "/"),
        ("//other.example", "/"),
        ("https://other.example/", "/"),
        ("/jobs/", "/"),
        ("/a?b", "/"),
        ("", "/"),
    ],
)
def test_after_a_login_only_a_page_of_this_server_is_shown(path: str, shown: str) -> None:
    assert shown_page(path) == shown
