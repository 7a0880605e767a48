"""Fetch the locked Java archives once, check each by SHA-256 and keep them in a cache.

In: `jars.lock.toml` (coordinates, size, SHA-256) and a cache directory. Out: paths of archives
whose bytes are those of the lock. A file enters the cache by rename after the check, and is
checked again at each start, so neither a broken download nor a bad disk affects the class path.
"""

import hashlib
import os
import shutil
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

LOCK_FILE = Path(__file__).with_name("jars.lock.toml")
NUM_THREADS = 8
NUM_TRIES = 3

_WEBJARS = "META-INF/resources/webjars"
# What the pages load: name it is served under -> archive and path in it.
WEB_ASSETS = {
    "chart.umd.js": ("chart.js", f"{_WEBJARS}/chart.js/4.4.1/dist/chart.umd.js"),
    "chartjs-plugin-zoom.min.js": (
        "chartjs-plugin-zoom",
        f"{_WEBJARS}/chartjs-plugin-zoom/2.2.0/dist/chartjs-plugin-zoom.min.js",
    ),
}


class JarUnavailable(RuntimeError):
    """A locked archive is neither in the cache nor could it be fetched with the right bytes."""


@dataclass(frozen=True, slots=True)
class Jar:
    bundle: str
    group: str
    artifact: str
    version: str
    size_bytes: int
    sha256: str

    @property
    def filename(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def default_cache() -> Path:
    """One cache for all data directories of a user."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "drivetrain" / "jars"


def locked_jars(bundle: str | None = None) -> tuple[Jar, ...]:
    with LOCK_FILE.open("rb") as file:
        jars = tuple(Jar(**entry) for entry in tomllib.load(file)["jar"])
    return tuple(jar for jar in jars if bundle in (None, jar.bundle))


def missing_jars(jars: Iterable[Jar], cache: Path) -> tuple[Jar, ...]:
    return tuple(jar for jar in jars if not _is_good(cache / jar.filename, jar))


def fetch_jars(
    jars: Iterable[Jar], cache: Path, on_fetched: Callable[[Jar], None] = lambda jar: None
) -> tuple[Path, ...]:
    """Bring all archives into the cache and return their paths, in the order of the lock."""
    wanted = tuple(jars)
    missing = missing_jars(wanted, cache)
    if missing:
        cache.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".fetching-", dir=cache))
        try:
            with ThreadPoolExecutor(NUM_THREADS) as threads:
                for jar in threads.map(lambda jar: _fetch(jar, staging, cache), missing):
                    on_fetched(jar)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return tuple(cache / jar.filename for jar in wanted)


def unpack_web_assets(cache: Path, directory: Path) -> None:
    """Write the scripts of the pages, out of their archives, into one directory."""
    archives = {jar.artifact: cache / jar.filename for jar in locked_jars("web")}
    directory.mkdir(parents=True, exist_ok=True)
    for name, (artifact, member) in WEB_ASSETS.items():
        with zipfile.ZipFile(archives[artifact]) as archive:
            content = archive.read(member)
        partial = directory / f".{name}.partial"
        partial.write_bytes(content)
        partial.replace(directory / name)


def _fetch(jar: Jar, staging: Path, cache: Path) -> Jar:
    # Imported here: it is slow to import, and a warm cache never needs it.
    import requests
    from jgo.maven import MavenContext

    cause: Exception | None = None
    for _ in range(NUM_TRIES):
        try:
            context = MavenContext(repo_cache=staging, timeout=60)
            component = context.project(jar.group, jar.artifact).at_version(jar.version)
            path = component.artifact().resolve()
        except (RuntimeError, OSError, requests.RequestException) as error:
            cause = error
            # An interrupted download leaves its file, which would be mistaken for a complete one.
            partial = staging / jar.group.replace(".", "/") / jar.artifact / jar.version
            shutil.rmtree(partial, ignore_errors=True)
            continue
        if _is_good(path, jar):
            path.replace(cache / jar.filename)
            return jar
        path.unlink()
        cause = RuntimeError("its bytes are not those of the lock file")
    raise JarUnavailable(
        f"Cannot fetch {jar.group}:{jar.artifact}:{jar.version} ({cause}). "
        f"Check the network (and HTTPS_PROXY), or put {jar.filename} into {cache}."
    ) from cause


def _is_good(path: Path, jar: Jar) -> bool:
    try:
        if path.stat().st_size != jar.size_bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except FileNotFoundError:
        return False


def main(arguments: list[str]) -> int:
    """`python -m services.standalone.jars DIRECTORY`: the scripts of the pages, for an image."""
    if len(arguments) != 1:
        print("usage: python -m services.standalone.jars DIRECTORY", file=sys.stderr)
        return 2
    cache = default_cache()
    try:
        fetch_jars(locked_jars("web"), cache)
    except JarUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    unpack_web_assets(cache, Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
