import pytest

from services.gateway.core.hosts import check_host, check_origin

PORT = 8480


@pytest.mark.parametrize(
    "host", ["localhost:8480", "127.0.0.1:8480", "[::1]:8480", "LOCALHOST:8480", "ml.example.org"]
)
def test_our_own_names_are_served(host: str) -> None:
    assert check_host((host,), PORT, ("ml.example.org",)) is None


@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param(("evil.example.com:8480",), id="a name made to point here"),
        pytest.param(("localhost",), id="a loopback name without our port"),
        pytest.param(("localhost:81",), id="a loopback name with another port"),
        pytest.param(("localhost.evil.example:8480",), id="a name that begins like ours"),
        pytest.param(("127.0.0.1.nip.io:8480",), id="an address in a foreign name"),
        pytest.param(("ml.example.org:1",), id="a configured name with a port it was not given"),
        pytest.param(("[::1]x:8480",), id="not an address"),
        pytest.param((), id="none"),
        pytest.param(("localhost:8480", "evil.example"), id="two"),
    ],
)
def test_foreign_hosts_are_refused(hosts: tuple[str, ...]) -> None:
    refusal = check_host(hosts, PORT, ("ml.example.org",))
    assert refusal is not None
    assert refusal.code == "foreign_host"
    assert "DRIVETRAIN_ALLOWED_HOSTS" in refusal.fix


def test_the_default_port_needs_no_number() -> None:
    assert check_host(("localhost",), 80, ()) is None


HOST = "localhost:8480"


@pytest.mark.parametrize(
    ("origin", "fetch_site", "by_cookie"),
    [
        pytest.param("http://localhost:8480", "same-origin", True, id="our page"),
        pytest.param("http://localhost:8480", None, True, id="our page in an old browser"),
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
