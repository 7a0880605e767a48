"""Who may ask, and from where: forged requests, rebound names, links and cookies."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.gateway.core.sessions import CODE_LIFE, SESSION_LIFE, cookie_name, new_session
from tests.fakes import ManualClock
from tests.handlers.gateway.model import BASE_URL, TOKEN, Model, Server, serving, sign_in
from tests.handlers.gateway.story import spec

BODY = {"spec": spec("asked").model_dump(mode="json", exclude_none=True)}
EVIL = "https://evil.example"


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/stream", "/v1/code", "/v1/nothing"])
async def test_the_api_asks_for_the_token(quiet_server: Server, path: str) -> None:
    name = cookie_name(quiet_server.platform.settings.session_secret())
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"cookie": f"{name}=x"}):
        answer = await quiet_server.stranger.get(path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_page_without_credentials_explains_how_to_sign_in(quiet_server: Server) -> None:
    for path in ("/", "/jobs/job_" + "a" * 26, "/nodes", "/parked"):
        answer = await quiet_server.stranger.get(path)
        assert (answer.status_code, "make run" in answer.text) == (401, True)


async def test_a_forged_browser_request_changes_nothing(quiet_server: Server) -> None:
    """A form on another site, sent by the browser of someone who is signed in."""
    cookie = await sign_in(quiet_server)
    forged = [
        {"origin": EVIL, "sec-fetch-site": "cross-site"},
        {"origin": EVIL},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://localhost:3000"},
        {},
    ]
    for headers in forged:
        for path in ("/v1/jobs", "/v1/login-links", f"/jobs/job_{'a' * 26}/cancel"):
            answer = await quiet_server.stranger.post(
                path, json=BODY, headers={**cookie, **headers}
            )
            assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin"), headers
    assert quiet_server.bus.commands() == []
    own = {**cookie, "origin": BASE_URL, "sec-fetch-site": "same-origin"}
    assert (await quiet_server.stranger.post("/v1/login-links", headers=own)).status_code == 201


async def test_a_rebound_host_name_is_not_served(quiet_server: Server) -> None:
    """evil.example points at this machine now: the browser thinks we are that site."""
    for host in ("evil.example:8480", "evil.example", "localhost:1", "localhost:8480.evil.example"):
        for path in ("/v1/jobs", "/", "/login?code=x", "/static/app.js", "/openapi.json"):
            answer = await quiet_server.client.get(path, headers={"host": host})
            assert (answer.status_code, answer.json()["code"]) == (421, "foreign_host"), host


async def test_a_configured_name_is_served(model: Model) -> None:
    async with serving(model, allowed_hosts=("ml.example.org",)) as server:
        answer = await server.client.get("/v1/jobs", headers={"host": "ml.example.org"})
        assert answer.status_code == 200


async def test_a_link_opens_the_pages_once(server: Server) -> None:
    link = (await server.client.post("/v1/login-links")).json()["url"]
    answer = await server.stranger.get(link)
    assert answer.status_code == 200
    cookie = answer.headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word in cookie
    assert TOKEN not in cookie + answer.text
    session = {"cookie": cookie.split(";")[0]}
    server.stranger.cookies.clear()
    assert (await server.stranger.get("/", headers=session)).status_code == 200
    assert (await server.stranger.get("/v1/jobs", headers=session)).status_code == 200
    again = await server.stranger.get(link)
    assert (again.status_code, "set-cookie" in again.headers) == (401, False)
    assert (await server.stranger.get("/login")).status_code == 401


async def test_a_link_to_a_page_signs_in_and_shows_it(server: Server) -> None:
    path = "/jobs/job_" + "a" * 26
    link = (await server.client.post("/v1/login-links", json={"path": path})).json()["url"]
    assert link.partition("?")[0] == BASE_URL + path
    assert len(link.partition("code=")[2]) == 16, "a page link fits on a line"
    answer = await server.stranger.get(link)
    assert answer.status_code == 200
    assert f'content="0; url={path}"' in answer.text
    # The browser follows with the new cookie; the code has no effect for who is signed in.
    again = await server.stranger.get(link)
    assert "set-cookie" not in again.headers
    assert (again.status_code, "there is no job" in again.text) == (404, True)
    server.stranger.cookies.clear()
    late = await server.stranger.get(link)
    assert (late.status_code, "set-cookie" in late.headers) == (401, False)
    assert "drivetrain open job_aaaa" in late.text


@pytest.mark.parametrize(
    "path", ["//evil.example", "https://evil.example", "/a//b", "jobs", "/x?y", "/\\evil.example"]
)
async def test_a_link_leads_to_no_other_server(quiet_server: Server, path: str) -> None:
    refused = await quiet_server.client.post("/v1/login-links", json={"path": path})
    assert refused.status_code == 422
    code = (await quiet_server.client.post("/v1/login-links")).json()["url"].partition("=")[2]
    answer = await quiet_server.stranger.get(f"{BASE_URL}//evil.example?code={code}")
    assert (answer.status_code, 'content="0; url=/"' in answer.text) == (200, True)
    quiet_server.stranger.cookies.clear()


async def test_login_links_need_the_token(quiet_server: Server) -> None:
    wrong = {"Authorization": "Bearer wrong"}
    for headers, status in (({}, 401), (wrong, 401), ({"origin": BASE_URL}, 401)):
        answer = await quiet_server.stranger.post("/v1/login-links", headers=headers)
        assert answer.status_code == status


async def test_links_and_sessions_end(model: Model) -> None:
    clock = ManualClock()
    async with serving(model, clock=clock) as server:
        late = (await server.client.post("/v1/login-links")).json()["url"]
        cookie = await sign_in(server)
        await clock.advance(CODE_LIFE.total_seconds() + 1)
        assert (await server.stranger.get(late)).status_code == 401
        assert (await server.stranger.get("/v1/jobs", headers=cookie)).status_code == 200
        await clock.advance((SESSION_LIFE + timedelta(seconds=1)).total_seconds())
        assert (await server.stranger.get("/v1/jobs", headers=cookie)).status_code == 401


async def test_a_session_ends_with_the_token_that_it_was_made_under(model: Model) -> None:
    async with serving(model) as server:
        cookie = await sign_in(server)
    async with serving(model, api_token="another-token-for-the-tests") as server:
        assert (await server.stranger.get("/v1/jobs", headers=cookie)).status_code == 401


async def test_the_token_alone_signs_no_session(quiet_server: Server) -> None:
    name = cookie_name(quiet_server.platform.settings.session_secret())
    token = TOKEN.encode()
    derived = (
        token,
        hashlib.sha256(token).digest(),
        hmac.digest(token, b"drivetrain session ", "sha256"),
        hmac.digest(b"", b"drivetrain session " + token, "sha256"),
    )
    for secret in derived:
        cookie = f"{name}={new_session(secret, datetime.now(UTC), 'nonce')}"
        answer = await quiet_server.stranger.get("/v1/jobs", headers={"cookie": cookie})
        assert answer.status_code == 401


@pytest.mark.parametrize(
    "others",
    [
        'theme={"dark":true}',
        "a[b]=c; =; ;;",
        "big=" + "x" * 9000,
        "drivetrain_session_0123456789ab=v1.1.another-platform.00",
    ],
)
async def test_a_session_is_seen_among_the_cookies_of_others(server: Server, others: str) -> None:
    """Browsers send the cookies of every port of a host."""
    cookie = (await sign_in(server))["cookie"]
    for text in (f"{others}; {cookie}", f"{cookie}; {others}"):
        answer = await server.stranger.get("/v1/jobs", headers={"cookie": text})
        assert answer.status_code == 200, text


async def test_two_platforms_on_one_host_do_not_end_each_others_sessions(model: Model) -> None:
    jar: dict[str, str] = {}
    tokens = ("the-token-of-the-first", "the-token-of-the-second")
    for token in tokens:
        async with serving(model, api_token=token) as server:
            server.client.headers["Authorization"] = f"Bearer {token}"
            name, _, value = (await sign_in(server))["cookie"].partition("=")
            jar[name] = value
    both = {"cookie": "; ".join(f"{name}={value}" for name, value in jar.items())}
    for token in tokens:
        async with serving(model, api_token=token) as server:
            assert (await server.stranger.get("/v1/jobs", headers=both)).status_code == 200


async def test_every_answer_carries_the_headers(quiet_server: Server) -> None:
    answers: list[Any] = [
        await quiet_server.client.get("/"),
        await quiet_server.client.get("/v1/jobs"),
        await quiet_server.client.get("/static/app.js"),
        await quiet_server.stranger.get("/v1/jobs"),
        await quiet_server.client.get("/v1/jobs", headers={"host": "evil.example"}),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers


async def test_pages_hold_no_script_or_style_of_their_own(quiet_server: Server) -> None:
    """What the policy would block, and what an injected text would need."""
    for path in ("/", "/nodes", "/studies", "/parked"):
        text = (await quiet_server.client.get(path)).text
        assert "style=" not in text
        assert "onclick" not in text
        assert text.count("<script") == text.count('<script src="/')
        assert "http://" not in text.replace(BASE_URL, "")


async def test_what_others_wrote_is_shown_as_text(model: Model) -> None:
    parked_id = await model.park(b"<script>alert(1)</script>", reason="<b>bold</b>")
    async with serving(model) as server:
        for path in ("/parked", f"/parked/{parked_id}"):
            text = (await server.client.get(path)).text
            assert "<script>alert" not in text
            assert "<b>bold" not in text
