"""What rank 0 says of its surroundings, so that the run can be repeated and compared.

In: this process, its devices, and the data that the script names. Out: a message, sent by a thread
when training begins, and again with each use of data. Values of the environment are not read, and
those of arguments that look like secrets are left out.
"""

import hashlib
import logging
import math
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from drivetrain import started
from drivetrain.environment import Environment
from drivetrain.messages import Described
from drivetrain_schemas.descriptions import (
    MAX_ARGUMENTS,
    MAX_DATA,
    MAX_HYPERPARAMETERS,
    MAX_NAME,
    MAX_PACKAGES,
    MAX_TEXT,
    DataUsed,
    Package,
    Surroundings,
)

# Larger files are known by their size alone.
MAX_HASHED_BYTES = 4 * 1024**3
MAX_LISTED_FILES = 100_000
_WORDS = r"(?:token|secret|passw|credential|api[-_]?key|private[-_]?key|auth)"
_SECRET = re.compile(rf"(?i){_WORDS}")
_USER_OF_URL = re.compile(r"://[^/\s]*@")
# As in signed addresses: ?X-Amz-Signature=..., &sig=...
_SECRET_OF_QUERY = re.compile(
    rf"(?i)([?&;](?:[^?=&;\s]*(?:{_WORDS}|signature)[^?=&;\s]*|sig)=)[^&;#\s]*"
)
_SECRET_HEADER = re.compile(rf"(?i)((?<![\w-])[\w-]*{_WORDS}[\w-]*:(?!//)\s*)\S.*", re.DOTALL)
# More of a text is not looked at.
_MAX_LOOKED_AT = 4096
_NAME_OR_VERSION = re.compile(r"(?mi)^(name|version):[ \t]*(\S.*?)[ \t\r]*$")
HIDDEN = "***"
_logger = logging.getLogger("drivetrain")


class Description:
    """Of rank 0. `send` passes a message on; it is called by the thread."""

    def __init__(
        self,
        environment: Environment,
        seed: int,
        hyperparameters: Mapping[str, Any],
        send: Callable[[Described], None],
    ) -> None:
        self._environment = environment
        self._seed = seed
        self._hyperparameters = hyperparameters
        self._send = send
        self._data: list[tuple[str, str | None]] = []
        self._number = 0
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    @property
    def has_begun(self) -> bool:
        return bool(self._threads)

    def begin(self) -> None:
        """Describe, in a thread: reading about the packages takes a while on a slow file system."""
        thread = threading.Thread(target=self._describe, name="drivetrain-describe", daemon=True)
        self._threads.append(thread)
        thread.start()

    def use_data(self, path_or_uri: "str | os.PathLike[str]", version: str | None) -> bool:
        """False where there is no place for more."""
        used = (os.fspath(path_or_uri), version)
        if used in self._data:
            return True
        if len(self._data) >= MAX_DATA:
            return False
        self._data.append(used)
        if self.has_begun:
            self.begin()
        return True

    def close(self, seconds: float) -> None:
        for thread in self._threads:
            thread.join(seconds / len(self._threads))

    def _describe(self) -> None:
        try:
            with self._lock:
                self._number += 1
                content = describe(self._environment, self._seed, self._data, self._hyperparameters)
                self._send(Described(self._number, msgspec.Raw(content.model_dump_json().encode())))
        except Exception:  # training continues
            _logger.exception("the surroundings of the run are not recorded; training continues")


def describe(
    environment: Environment,
    seed: int,
    data: Sequence[tuple[str, str | None]],
    hyperparameters: Mapping[str, Any],
) -> Surroundings:
    is_script = sys.argv[0] not in ("", "-c") and "ipykernel" not in sys.modules
    script = started.relative(sys.argv[0]) if is_script else "interactive"
    return Surroundings(
        python=platform.python_version(),
        platform=platform.platform()[:MAX_TEXT],
        packages=tuple(_packages())[:MAX_PACKAGES],
        entry_point=script[-MAX_TEXT:],
        arguments=without_secrets(sys.argv[1:] if is_script else [])[:MAX_ARGUMENTS],
        seed=seed,
        world_size=environment.world_size,
        device_type=environment.device_type,
        device_name=_device_name(),
        data=tuple(
            DataUsed(uri=_plain(uri)[:1024], version=version, checksum=_checksum(uri))
            for uri, version in data
        ),
        hyperparameters={
            str(name)[:MAX_NAME]: _as_scalar(name, value)
            for name, value in sorted(hyperparameters.items())[:MAX_HYPERPARAMETERS]
        },
    )


def _as_scalar(name: str, value: Any) -> bool | int | float | str:
    """As JSON has it: what is not finite, or no scalar, as text."""
    if _SECRET.search(name):
        return HIDDEN
    is_number = isinstance(value, int) and abs(value) < 2**63
    if is_number or (isinstance(value, float) and math.isfinite(value)):
        return value  # type: ignore[no-any-return]
    return _plain(str(value))[:MAX_TEXT]


def without_secrets(arguments: Sequence[str]) -> tuple[str, ...]:
    """Without the values of options whose names look secret."""
    shown = []
    hides_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        looks_secret = _SECRET.search(name) is not None
        if hides_next and not argument.startswith("-"):
            shown.append(HIDDEN)
        elif looks_secret and equals:
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(_plain(argument)[:MAX_TEXT])
        hides_next = looks_secret and not equals and argument.startswith("-")
    return tuple(shown)


def _plain(text: str) -> str:
    """Without the user and password of an address, signatures in its query, secret headers."""
    without_user = _USER_OF_URL.sub("://", text[:_MAX_LOOKED_AT])
    without_query = _SECRET_OF_QUERY.sub(rf"\g<1>{HIDDEN}", without_user)
    return _SECRET_HEADER.sub(rf"\g<1>{HIDDEN}", without_query)


def _packages() -> Iterator[Package]:
    known: dict[str, str] = {}
    for one in metadata.distributions():
        headers = _headers(one)
        if headers.get("name") and headers.get("version"):
            known.setdefault(headers["name"], headers["version"])
    for name in sorted(known, key=str.lower):
        yield Package(name=name[:100], version=known[name][:60])


def _headers(one: metadata.Distribution) -> dict[str, str]:
    """Its name and version. `one.metadata` parses the whole description, which takes 15 times as
    long; on a CPU this is taken from the first steps."""
    files = (one.read_text(name) for name in ("METADATA", "PKG-INFO", ""))
    headers, _, _ = next(filter(None, files), "").partition("\n\n")
    return {name.lower(): value for name, value in _NAME_OR_VERSION.findall(headers)}


def _device_name() -> str | None:
    """Of a device that the program uses already: this must not be what begins its use."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return platform.processor() or platform.machine() or None
    return str(torch.cuda.get_device_name())[:MAX_TEXT]


def _checksum(uri: str) -> str | None:
    """Of a file or a directory of this machine; None for what is elsewhere, or not there."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return None
    path = Path(parts.path if parts.scheme else uri)
    try:
        if path.is_dir():
            return f"listing:{_listing(path)}"
        if path.stat().st_size > MAX_HASHED_BYTES:
            return f"size:{path.stat().st_size}"
        with path.open("rb") as opened:
            return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"
    except OSError:
        return None


def _listing(directory: Path) -> str:
    digest = hashlib.sha256()
    num_files = 0
    for root, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            path = Path(root, name)
            size = path.lstat().st_size
            digest.update(f"{path.relative_to(directory)}\0{size}\n".encode("utf-8", "replace"))
            num_files += 1
            if num_files >= MAX_LISTED_FILES:
                return digest.hexdigest()
    return digest.hexdigest()
