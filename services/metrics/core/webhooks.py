"""Which webhook gets which event, when it is tried again, and which addresses may be called."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import NamedTuple

MAX_TRIES = 12
FIRST_WAIT_SECONDS = 5.0
MAX_WAIT_SECONDS = 3600.0

Networks = Sequence[IPv4Network | IPv6Network]

_GLOBAL_UNICAST = ip_network("2000::/3")
# Of NAT64: the last 32 bits are the IPv4 address that a packet goes to.
_TRANSLATED = ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Webhook:
    """`events` are types such as `alert.raised`; `alerts` are kinds. Empty: all of them."""

    name: str
    url: str
    secret: str = ""
    tenants: frozenset[str] = frozenset()
    events: frozenset[str] = frozenset()
    alerts: frozenset[str] = frozenset()

    def wants(self, tenant_id: str, event_type: str, alert: str | None) -> bool:
        """`alert`: its kind, where the event is about one."""
        return (
            (not self.tenants or tenant_id in self.tenants)
            and (not self.events or event_type in self.events)
            and (not self.alerts or alert is None or alert in self.alerts)
        )


class Turn(NamedTuple):
    """One of two deliveries about the same thing: its begin, and then its end."""

    about: str
    is_begin: bool


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """That an alert about a run begins (`is_raised`) or is over."""

    alert: str
    tenant_id: str
    job_id: str
    run_id: str
    is_raised: bool

    @property
    def turn(self) -> Turn:
        return Turn(f"{self.run_id}/{self.alert}", self.is_raised)


def wait_seconds(num_tries: int) -> float | None:
    """How long to wait after so many tries that failed; None: no further one."""
    if num_tries >= MAX_TRIES:
        return None
    return float(min(FIRST_WAIT_SECONDS * 2 ** (num_tries - 1), MAX_WAIT_SECONDS))


def refusal_of(address: str, networks: Networks) -> str | None:
    """Why nothing may be sent to this IP address; None where it may.

    Addresses that are not public (private, loopback, link-local, those of clouds' metadata) must be
    in one of `networks`.
    """
    found = ip_address(address.partition("%")[0])
    reached = _reached(found)
    if _is_public(reached) or any(
        each.version == network.version and each in network
        for network in networks
        for each in (found, reached)
    ):
        return None
    return f"{address} is not a public address: allow its network by DRIVETRAIN_WEBHOOK_NETWORKS"


def _reached(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address inside an IPv6 address that leads to one; else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    is_unicast = isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST
    return is_unicast and address.is_global and not address.is_multicast
