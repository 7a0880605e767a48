"""Which webhook gets what, when it is tried again, and what its file and addresses may be."""

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from drivetrain_schemas.metrics import AlertKind
from services.metrics.core import lineage
from services.metrics.core.lineage import Endpoint, outcome_of
from services.metrics.core.webhooks import (
    MAX_TRIES,
    AlertEvent,
    Turn,
    Webhook,
    refusal_of,
    wait_seconds,
)
from services.metrics.settings import MetricsSettings
from services.metrics.webhooks.file import read_endpoints, read_networks, read_webhooks
from services.runtime.errors import ConfigurationError

ONCALL = "https://hooks.example.com/x"


def settings(tmp_path: Path, text: str, **more: Any) -> MetricsSettings:
    path = tmp_path / "webhooks.yaml"
    path.write_text(text)
    given = {"webhook_hosts": ("hooks.example.com",), **more}
    return MetricsSettings(
        kafka_bootstrap_servers="unused:1", postgres_dsn="unused", webhooks=path, **given
    )


def test_a_webhook_gets_what_it_names_and_without_names_everything() -> None:
    every = Webhook("every", ONCALL)
    assert every.wants("a", "alert.raised", "stalled")
    assert every.wants("b", "budget.reached", None)
    some = Webhook(
        "some",
        ONCALL,
        tenants=frozenset({"a"}),
        events=frozenset({"alert.raised", "budget.reached"}),
        alerts=frozenset({"diverging"}),
    )
    assert some.wants("a", "alert.raised", "diverging")
    assert some.wants("a", "budget.reached", None)
    assert not some.wants("a", "alert.raised", "stalled")
    assert not some.wants("a", "alert.cleared", "diverging")
    assert not some.wants("b", "alert.raised", "diverging")


def test_tries_are_farther_and_farther_apart_and_end() -> None:
    waits = [wait_seconds(num_tries) for num_tries in range(1, MAX_TRIES + 1)]
    assert waits[:3] == [5, 10, 20]
    assert waits[-2:] == [3600, None]


@pytest.mark.parametrize(
    ("address", "is_refused"),
    [
        ("93.184.216.34", False),
        ("2606:2800:220:1:248:1893:25c8:1946", False),
        ("10.1.2.3", False),
        ("11.0.0.1", False),
        ("ff0e::1", True),
        ("2002:0a01:0203::1", False),
        ("2002:5db8:d822::1", False),
        ("64:ff9b::127.0.0.1", True),
        ("127.0.0.1", True),
        ("192.168.1.1", True),
        ("169.254.169.254", True),
        ("100.64.0.1", True),
        ("0.0.0.0", True),
        ("224.0.0.1", True),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("fd00::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.1.2.3", False),
        # IPv6 addresses that lead to an IPv4 address: NAT64, 6to4, and forms that are obsolete.
        ("64:ff9b::169.254.169.254", True),
        ("64:ff9b::10.1.2.3", False),
        ("64:ff9b::93.184.216.34", False),
        ("64:ff9b:1::127.0.0.1", True),
        ("2002:a9fe:a9fe::1", True),
        ("::127.0.0.1", True),
        ("::ffff:0:127.0.0.1", True),
        ("fec0::1", True),
    ],
)
def test_only_public_addresses_and_allowed_networks_are_called(
    address: str, is_refused: bool
) -> None:
    assert (refusal_of(address, [ip_network("10.0.0.0/8")]) is not None) == is_refused


def test_a_file_is_read_with_the_secret_of_its_variable(tmp_path: Path) -> None:
    text = f"webhooks: [{{name: oncall, url: '{ONCALL}', secret_variable: HOOK, alerts: [slower]}}]"
    [hook] = read_webhooks(settings(tmp_path, text), {"HOOK": "s"})
    assert hook == Webhook("oncall", ONCALL, "s", alerts=frozenset({"slower"}))


@pytest.mark.parametrize("kind", AlertKind)
def test_a_webhook_may_name_every_kind_of_alert(tmp_path: Path, kind: AlertKind) -> None:
    text = f"webhooks: [{{name: oncall, url: '{ONCALL}', alerts: [{kind}]}}]"
    [hook] = read_webhooks(settings(tmp_path, text), {})
    assert hook.alerts == {str(kind)}


def test_lineage_endpoints_are_read_with_their_key_and_checked_as_webhooks_are(
    tmp_path: Path,
) -> None:
    text = f"lineage: [{{name: marquez, url: '{ONCALL}', key_variable: KEY, tenants: [a]}}]"
    given = settings(tmp_path, text)
    [endpoint] = read_endpoints(given, {"KEY": "k"})
    assert endpoint == Endpoint("marquez", ONCALL, "k", frozenset({"a"}))
    assert read_webhooks(given, {}) == ()
    with pytest.raises(ConfigurationError, match=r"lineage\[0\].key_variable: KEY is not set"):
        read_endpoints(given, {})
    with pytest.raises(ConfigurationError, match=r"lineage\[0\].url: .* is not allowed"):
        read_endpoints(settings(tmp_path, text, webhook_hosts=()), {"KEY": "k"})


@pytest.mark.parametrize(
    ("status", "num_tries", "age_seconds", "outcome"),
    [
        (204, 1, 0.0, "sent"),
        (199, 1, 0.0, "failed"),
        (200, 1, 8 * 86_400.0, "sent"),
        (299, 1, 0.0, "sent"),
        (300, 1, 0.0, "failed"),
        (None, 1, 7 * 86_400.0, "failed"),
        (None, 1, 7 * 86_400.0 + 1, "given_up"),
        (413, 5, 0.0, "refused"),
        (None, 1000, 86_400.0, "failed"),
        (503, 1000, 86_400.0, "failed"),
        (None, 1, 8 * 86_400.0, "given_up"),
        (422, 3, 0.0, "failed"),
        (422, 4, 0.0, "refused"),
        (401, 1000, 0.0, "failed"),
    ],
)
def test_lineage_is_given_up_by_age_alone_unless_the_event_is_refused(
    status: int | None, num_tries: int, age_seconds: float, outcome: str
) -> None:
    assert outcome_of(status, num_tries, age_seconds) == outcome


def test_lineage_is_tried_again_after_growing_pauses_of_a_minute_at_most() -> None:
    waits = [lineage.wait_seconds(num_tries) for num_tries in (1, 2, 3, 5, 6, 10_000)]
    assert waits == [2, 4, 8, 32, 60, 60]


ENDLESS = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{ENDLESS}webhooks: *a11", "line 2: the alias *a0 is not taken: write it out"),
        ("webhooks: &all [*all]", "the alias *all is not taken"),
        ("webhooks: " + "[" * 100_000, "line 1: nested deeper than 32 levels"),
        ("#" * (5 * 2**20), "has more than 4 MiB"),
        ("webhooks: [", "is not YAML"),
        ("\x00", "is not YAML"),
    ],
    ids=["grows", "in itself", "deep", "large", "not ended", "NUL"],
)
def test_a_hostile_file_is_refused_at_once(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_webhooks(settings(tmp_path, text), {})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{name: a, url: 'ftp://hooks.example.com'}", "webhooks[0].url: "),
        ("{name: a, url: 'https://other.example.com'}", "add it to DRIVETRAIN_WEBHOOK_HOSTS"),
        ("{name: a, url: 'https://169.254.169.254/x'}", "169.254.169.254 is not allowed"),
        ("{name: a, url: 'https://u:p@hooks.example.com'}", "holds a password"),
        ("{name: a, url: 'https://hooks.example.com:99999'}", "webhooks[0].url: Port out of range"),
        ("{name: a, url: 'https://hooks..example.com/x'}", "'hooks..example.com' is no name of a"),
        ("{name: a, url: 'https://hooks.example.com/ü'}", "write them as %XX"),
        ('{name: a, url: "https://hooks.example.com/x\\r\\nA: b"}', "write them as %XX"),
        (f"{{name: a, url: '{ONCALL}', secret_variable: NONE}}", "NONE is not set"),
        (f"{{name: a, url: '{ONCALL}'}}, {{name: a, url: '{ONCALL}'}}", "is used twice"),
        (f"{{name: a, url: '{ONCALL}', alerts: [sometimes]}}", "alerts"),
        (f"{{name: a, url: '{ONCALL}', retries: 3}}", "retries"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_field(tmp_path: Path, entry: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_webhooks(settings(tmp_path, f"webhooks: [{entry}]"), {})
    assert said in str(refused.value)


def test_a_wrong_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"DRIVETRAIN_WEBHOOK_NETWORKS: .*10\.0\.0\.0/8"):
        read_networks(settings(tmp_path, "", webhook_networks=("10.0.0.0/99",)))


def test_the_begin_and_the_end_of_an_alert_are_two_turns_about_the_same() -> None:
    begin = AlertEvent("stalled", "team", "job_a", "run_a", is_raised=True)
    end = AlertEvent("stalled", "team", "job_a", "run_a", is_raised=False)
    assert (begin.turn, end.turn) == (Turn("run_a/stalled", True), Turn("run_a/stalled", False))
    assert wait_seconds(MAX_TRIES - 1) is not None
    assert wait_seconds(MAX_TRIES) is wait_seconds(MAX_TRIES + 1) is None


def test_the_address_inside_of_another_is_that_one_exactly() -> None:
    allowed = [ip_network("10.1.2.3/32")]
    for inside, is_refused in (("10.1.2.3", False), ("10.1.2.2", True)):
        for address in (inside, f"::ffff:{inside}", f"64:ff9b::{inside}"):
            assert (refusal_of(address, allowed) is not None) == is_refused
