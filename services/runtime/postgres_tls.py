"""TLS and the login of Postgres: settings refused at the start, failures in words.

The settings are libpq's own: in the address (`?sslmode=verify-full&sslrootcert=/ca.crt`), or as
`PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY`. asyncpg reads them, and the files, again for
each new connection, so that certificates may be renewed.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg

from services.runtime.errors import ConfigurationError
from services.runtime.tls import TlsFiles, TlsNames, check_files

DSN = "DRIVETRAIN_POSTGRES_DSN"
MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
VERIFYING = ("require", "verify-ca", "verify-full")
_EXPIRED, _WRONG_NAMES = 10, (62, 64)


def check(dsn: str, environment: Mapping[str, str]) -> None:
    """Raises ConfigurationError that names the setting and the fix."""
    words = {name: values[-1] for name, values in parse_qs(urlsplit(dsn).query).items()}

    def given(word: str) -> tuple[str, str | None]:
        """Name and value of a setting: the address counts before the environment."""
        if word in words:
            return f"{word} of {DSN}", words[word]
        variable = f"PG{word.upper()}"
        return variable, environment.get(variable) or None

    mode_name, mode = given("sslmode")
    ca_name, ca = given("sslrootcert")
    certificate_name, certificate = given("sslcert")
    key_name, key = given("sslkey")
    if mode is not None and mode not in MODES:
        raise ConfigurationError(f"{mode_name}: {mode!r}: write one of {', '.join(MODES)}")
    if ca is not None and mode not in VERIFYING:
        raise ConfigurationError(
            f"{ca_name} is set, but {mode_name} is {mode or 'not set'}, which verifies nothing: "
            "write verify-full"
        )
    if mode in ("verify-ca", "verify-full") and ca is None:
        raise ConfigurationError(
            f"{mode_name} is {mode}, which needs the CA of the server: set PGSSLROOTCERT"
        )
    if (certificate is None) != (key is None):
        raise ConfigurationError(
            f"{certificate_name} and {key_name} belong together: set both, or neither"
        )
    files = TlsFiles(*(Path(path) if path else None for path in (ca, certificate, key)))
    check_files(files, TlsNames(ca_name, certificate_name, key_name))


def explain(error: BaseException) -> str | None:
    """Why Postgres refuses a connection, with the fix; None for what only time may mend."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(error)
    if isinstance(error, ssl.SSLError):
        return f"TLS with Postgres failed ({error}): check PGSSLCERT and PGSSLKEY, and the server"
    if isinstance(error, ConnectionError) and "rejected SSL upgrade" in str(error):
        return (
            f"the server has no TLS ({error}): switch it on there (ssl = on), or change PGSSLMODE "
            f"or sslmode in {DSN}"
        )
    if isinstance(error, FileNotFoundError | PermissionError | asyncpg.ClientConfigurationError):
        return f"a file of PGSSLROOTCERT, PGSSLCERT or PGSSLKEY cannot be read: {error}"
    if isinstance(
        error, asyncpg.InvalidAuthorizationSpecificationError | asyncpg.InvalidCatalogNameError
    ):
        # InvalidPasswordError is one of them.
        return f"Postgres refuses the login: {error}: check role, password and database in {DSN}"
    return None


def _of_certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == _EXPIRED:
        return "the certificate of Postgres has expired: renew it"
    if error.verify_code in _WRONG_NAMES:
        return (
            f"the certificate of Postgres is for another name ({error.verify_message}): use a name "
            f"that it contains in {DSN}"
        )
    return (
        f"the certificate of Postgres is not signed by a known CA ({error.verify_message}): give "
        f"the CA that signed it in PGSSLROOTCERT, or as sslrootcert in {DSN}"
    )
