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
import stat
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
from drivetrain_schemas.redaction import HIDDEN, looks_secret, plain, without_secrets

# Larger files are known by their size alone.
MAX_HASHED_BYTES = 4 * 1024**3
MAX_LISTED_FILES = 100_000
_NAME_OR_VERSION = re.compile(r"(?mi)^(name|version):[ \t]*(\S.*?)[ \t\r]*$")
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

    def use_data(self, path_or_uri: "str | os.PathLike[str]", version: object = None) -> str | None:
        """What of it is not recorded, for people; None where all is."""
        text = None if version is None else str(version)
        used = (os.fspath(path_or_uri), None if text is None else text[:MAX_TEXT])
        if used not in self._data:
            if len(self._data) >= MAX_DATA:
                return f"{used[0]:.200} is not recorded: a run records {MAX_DATA} uses of data"
            self._data.append(used)
            if self.has_begun:
                self.begin()
        if text is not None and len(text) > MAX_TEXT:
            return (
                f"of the version of {used[0]:.200} only the first {MAX_TEXT} of {len(text):,} "
                "characters are recorded: give a shorter one, such as its SHA-256"
            )
        return None

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
        arguments=tuple(
            one[:MAX_TEXT] for one in without_secrets(sys.argv[1:] if is_script else [])
        )[:MAX_ARGUMENTS],
        seed=seed,
        world_size=environment.world_size,
        device_type=environment.device_type,
        device_name=_device_name(),
        data=tuple(
            DataUsed(uri=plain(uri)[:1024], version=version, checksum=_checksum(uri))
            for uri, version in data
        ),
        hyperparameters={
            str(name)[:MAX_NAME]: _as_scalar(name, value)
            for name, value in sorted(hyperparameters.items())[:MAX_HYPERPARAMETERS]
        },
    )


def _as_scalar(name: str, value: Any) -> bool | int | float | str:
    """As JSON has it: what is not finite, or no scalar, as text."""
    if looks_secret(str(name), value):
        return HIDDEN
    is_number = isinstance(value, int) and abs(value) < 2**63
    if is_number or (isinstance(value, float) and math.isfinite(value)):
        return value  # type: ignore[no-any-return]
    return plain(str(value))[:MAX_TEXT]


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
    """Of a file or a directory of this machine; None for what is elsewhere, not there, or neither:
    opening a pipe waits for its writer, and a device may never end."""
    try:
        parts = urlsplit(uri)  # refuses a half of a bracket, as in s3://[x
        if parts.scheme not in ("", "file"):
            return None
        path = Path(parts.path if parts.scheme else uri)
        if path.is_dir():
            return f"listing:{_listing(path)}"
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            if status.st_size > MAX_HASHED_BYTES:
                return f"size:{status.st_size}"
            return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"
    except (OSError, ValueError):
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
