"""TLS for clients whose certificates are renewed while they run.

In: paths of PEM files. Out: an SSL context that reads them again for each new connection, so that
a renewed file counts without a restart. Names of servers are always verified.
"""

import ssl
from pathlib import Path
from typing import Any, NamedTuple

from services.runtime.errors import ConfigurationError


class TlsFiles(NamedTuple):
    """`ca`: the CAs that may sign a server's certificate; None for the system's."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def read(self) -> ssl.SSLContext:
        """Raises OSError, of which ssl.SSLError is one."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        return context


class TlsNames(NamedTuple):
    """What the settings of these files are called."""

    ca: str
    certificate: str
    key: str


class RenewedContext(ssl.SSLContext):
    """Each connection has a context of its own, made of what the files hold then."""

    _files: TlsFiles

    def __new__(cls, files: TlsFiles) -> "RenewedContext":
        context = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        context._files = files
        return context

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self._files.read().wrap_bio(*args, **options)


class _EncryptedKey(OSError):
    """A key that needs a password."""


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal.
    raise _EncryptedKey("it is encrypted: store it without a password, readable by this user only")


def check_files(files: TlsFiles, names: TlsNames) -> None:
    """Raises ConfigurationError that names the setting and the fix."""
    problems = []
    for path, name in zip(files, names, strict=True):
        if path is None:
            continue
        try:
            if "-----BEGIN " not in path.read_text("latin-1"):
                problems.append(f"{name}: {path} is not PEM: convert it with openssl")
        except OSError as error:
            problems.append(f"{name}: cannot read {path}: {error.strerror}")
    if not problems:
        problems = [*_unusable_ca(files, names), *_unusable_pair(files, names)]
    if problems:
        raise ConfigurationError("\n".join(problems))


def _unusable_ca(files: TlsFiles, names: TlsNames) -> list[str]:
    try:
        ssl.create_default_context(cafile=files.ca)
    except OSError as error:
        return [f"{names.ca}: {files.ca} holds no CA certificate that can be read: {error}"]
    return []


def _unusable_pair(files: TlsFiles, names: TlsNames) -> list[str]:
    try:
        TlsFiles(None, files.certificate, files.key).read()
    except _EncryptedKey as error:
        return [f"{names.key}: {files.key}: {error}"]
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return [f"{names.key}: {files.key} is not the key of {names.certificate}"]
        return [f"{names.certificate} and {names.key} are no certificate with its key: {error}"]
    return []
