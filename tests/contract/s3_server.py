"""A real S3 server for tests: versitygw over a directory.

The binary is looked for on the path and in the user's cache. In CI it is built there when Go is at
hand (a few minutes, once); elsewhere the tests that need it are skipped and say how to get it.
"""

import os
import shutil
import subprocess
from pathlib import Path

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "drivetrain" / "bin"
BUILD_SECONDS = 900


def find_binary() -> Path | str:
    """Where it is, or why it is not there."""
    found = shutil.which("versitygw") or shutil.which("versitygw", path=str(CACHE))
    if found:
        return Path(found)
    recipe = f"GOBIN={CACHE} go install {MODULE}"
    if not os.environ.get("CI"):
        return f"no S3 server: {recipe}"
    if shutil.which("go") is None:
        return f"no S3 server, and no Go to build it: {recipe}"
    return _built(recipe)


def _built(recipe: str) -> Path | str:
    CACHE.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(CACHE), "GOFLAGS": "-modcacherw"}
    try:
        subprocess.run(
            ["go", "install", MODULE],
            env=environment,
            capture_output=True,
            timeout=BUILD_SECONDS,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        return f"no S3 server: {recipe} failed: {error}"
    return CACHE / "versitygw"
