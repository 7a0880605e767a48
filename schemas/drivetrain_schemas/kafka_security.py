"""How a client of Kafka is secured: the words of its settings, which contradict each other, and
what a failed connection means.

Used by services and by pods, whose settings have other names. Everything here is pure: text and
errors in, text out.
"""

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

SecurityProtocol = Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
DEFAULT_MECHANISM: SaslMechanism = "PLAIN"


@dataclass(frozen=True, slots=True)
class SettingNames:
    """What the settings are called where they are made."""

    servers: str
    protocol: str
    mechanism: str
    username: str
    password: str
    ca: str
    certificate: str
    key: str


def _names(prefix: str, login: str) -> SettingNames:
    return SettingNames(
        servers=f"{prefix}_BOOTSTRAP_SERVERS",
        protocol=f"{prefix}_SECURITY_PROTOCOL",
        mechanism=f"{prefix}_SASL_MECHANISM",
        username=f"{login}_USERNAME",
        password=f"{login}_PASSWORD",
        ca=f"{prefix}_CA_PATH",
        certificate=f"{prefix}_CERTIFICATE_PATH",
        key=f"{prefix}_KEY_PATH",
    )


OF_SERVICES = _names("DRIVETRAIN_KAFKA", "DRIVETRAIN_KAFKA_SASL")
OF_PODS = _names("DRIVETRAIN_PODS_KAFKA", "DRIVETRAIN_PODS_KAFKA")


def effective_protocol(protocol: SecurityProtocol | None, username: str | None) -> SecurityProtocol:
    """The one that is used: without a word, a login where there is a user name."""
    return protocol or ("PLAINTEXT" if username is None else "SASL_PLAINTEXT")


def contradictions(given: Mapping[str, Any], names: SettingNames) -> Iterator[str]:
    """Each with the fix. `given`: value by field of SettingNames, None where it is not set."""
    protocol = effective_protocol(given["protocol"], given["username"])
    for one, other in (("username", "password"), ("certificate", "key")):
        for is_set, lacks in ((one, other), (other, one)):
            if given[is_set] is not None and given[lacks] is None:
                has, needs = getattr(names, is_set), getattr(names, lacks)
                yield f"{has} is set without {needs}: set both, or neither"
    if protocol.startswith("SASL_"):
        if given["username"] is None:
            yield f"{names.protocol} is {protocol}, which needs a login: set {names.username}"
    else:
        for field in ("username", "mechanism"):
            if given[field] is not None:
                yield (
                    f"{getattr(names, field)} is set, but {names.protocol} is {protocol}, which "
                    f"has no login: write SASL_{protocol}, or remove it"
                )
    if not protocol.endswith("SSL"):
        secured = "SASL_SSL" if protocol == "SASL_PLAINTEXT" else "SSL"
        for field in ("ca", "certificate", "key"):
            if given[field] is not None:
                yield (
                    f"{getattr(names, field)} is set, but {names.protocol} is {protocol}, which "
                    f"is without TLS: write {secured}, or remove it"
                )


# OpenSSL's codes for a certificate that no known CA signed.
_UNTRUSTED = (2, 18, 19, 20, 21, 27)
_EXPIRED, _NOT_YET_VALID, _WRONG_NAMES = 10, 9, (62, 64)


def explain_at(host: str, port: int, error: BaseException, names: SettingNames) -> str:
    """Why the connection to this broker failed, with its address."""
    return f"{f'[{host}]' if ':' in host else host}:{port}: {explain(error, names)}"


def explain(error: BaseException, names: SettingNames) -> str:
    """What a failed connection means, in words that name the setting and the fix."""
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _of_certificate(cause, names)
        if isinstance(cause, ssl.SSLError):
            return _of_tls(cause, names)
        if isinstance(cause, OSError) and cause.filename is not None:
            return (
                f"{cause.filename} cannot be read ({cause.strerror}): it is a file of {names.ca}, "
                f"{names.certificate} or {names.key}"
            )
        found = _of_login(cause, names)
        if found:
            return found
    if isinstance(error, TimeoutError):
        return f"there was no answer in time: is {names.protocol} that of this port?"
    return f"{error!r}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The innermost first: it is the most precise."""
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return reversed(found)


def _of_certificate(error: ssl.SSLCertVerificationError, names: SettingNames) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "the broker's certificate has expired: renew it"
    if code == _NOT_YET_VALID:
        return "the broker's certificate is not valid yet: check the clocks of both machines"
    if code in _WRONG_NAMES:
        return (
            f"the broker's certificate is for another name ({error.verify_message}): use a name "
            f"that it contains in {names.servers} and in the broker's advertised.listeners"
        )
    if code in _UNTRUSTED:
        return (
            f"the broker's certificate is not signed by a known CA ({error.verify_message}): give "
            f"the CA that signed it in {names.ca}"
        )
    return f"the broker's certificate is refused: {error.verify_message}"


def _of_tls(error: ssl.SSLError, names: SettingNames) -> str:
    reason = error.reason or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"{names.key} is not the key of the certificate in {names.certificate}"
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:  # of the broker: it is not sent one, too
        return (
            f"the broker requires a client certificate that is valid and signed by a CA that it "
            f"trusts: set {names.certificate} and {names.key}"
        )
    return f"TLS failed ({error}): is {names.protocol} that of the port in {names.servers}?"


def _of_login(error: BaseException, names: SettingNames) -> str | None:
    """aiokafka's errors by name: what is installed beside the contracts is not their matter."""
    kind = type(error).__name__
    if kind in ("SaslAuthenticationFailed", "AuthenticationFailedError"):
        return (
            f"the broker refuses the login: check {names.username} and {names.password}, and "
            f"that the user exists for the mechanism of {names.mechanism}"
        )
    if kind == "UnsupportedSaslMechanismError":
        return f"the broker does not take the mechanism of {names.mechanism}: {error}"
    if kind.endswith("AuthorizationFailedError"):
        return (
            f"the broker refuses what this user may not do ({error!r}): give it its rights with "
            "python -m services.runtime.access kafka"
        )
    if kind == "IllegalSaslStateError":
        return (
            f"the port has no login: name the SASL port in {names.servers}, or change "
            f"{names.protocol}"
        )
    if isinstance(error, EOFError | ConnectionResetError):
        return (
            f"the broker closed the connection: is {names.protocol} that of the port in "
            f"{names.servers}?"
        )
    return None
