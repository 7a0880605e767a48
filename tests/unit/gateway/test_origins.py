import pytest

from services.gateway.core.origins import check_origin

HOST = "localhost:8480"


@pytest.mark.parametrize(
    ("origin", "fetch_site", "by_cookie"),
    [
        pytest.param("http://localhost:8480", "same-origin", True, id="our page"),
        pytest.param("http://localhost:8480", None, True, id="our page in an old browser"),
        pytest.param("HTTPS://LOCALHOST:8480", None, True, id="our page by TLS in capitals"),
        pytest.param(None, "same-origin", True, id="our page without an origin"),
        pytest.param(None, "none", True, id="typed by the user"),
        pytest.param(None, None, False, id="a program with the token"),
    ],
)
def test_changes_from_us_are_taken(
    origin: str | None, fetch_site: str | None, by_cookie: bool
) -> None:
    assert check_origin("POST", HOST, origin, fetch_site, by_cookie=by_cookie) is None


@pytest.mark.parametrize(
    ("origin", "fetch_site", "by_cookie"),
    [
        pytest.param("https://evil.example", "cross-site", True, id="a form on another site"),
        pytest.param("https://evil.example", None, True, id="without fetch metadata"),
        pytest.param("null", None, True, id="a sandboxed frame"),
        pytest.param("http://localhost:3000", "same-site", True, id="another port of this machine"),
        pytest.param("http://localhost:8480", "cross-site", True, id="the browser disagrees"),
        pytest.param("https://evil.example", None, False, id="even with the token"),
        pytest.param(None, None, True, id="a cookie and no origin"),
    ],
)
def test_changes_from_elsewhere_are_refused(
    origin: str | None, fetch_site: str | None, by_cookie: bool
) -> None:
    refusal = check_origin("POST", HOST, origin, fetch_site, by_cookie=by_cookie)
    assert refusal is not None
    assert refusal.code == "foreign_origin"


def test_reads_are_left_to_the_same_site_cookie() -> None:
    assert check_origin("GET", HOST, "https://evil.example", "cross-site", by_cookie=True) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_every_change_is_checked(method: str) -> None:
    refusal = check_origin(method, HOST, "x" * 500, None, by_cookie=True)
    assert refusal is not None
    assert refusal.detail.endswith(f": Origin is {'x' * 120}")
    refusal = check_origin(method, HOST, None, "y" * 500, by_cookie=True)
    assert refusal is not None
    assert refusal.detail.endswith(f": Sec-Fetch-Site is {'y' * 40}")
