"""MLflow, TensorBoard, pandas and OpenLineage in an environment of their own, never in `.venv`.

`make exchange-tools` builds it (`__main__.py`) from `requirements.lock`, which holds the hash of
every file. The folder is in the user's cache; its name holds a hash of the lock, so that another
version is another folder. Tests and benchmarks run its programs: `find_tools() / "bin" / "mlflow"`.
"""

import hashlib
import os
from pathlib import Path

LOCK = Path(__file__).with_name("requirements.lock")
MISSING = (
    "MLflow, TensorBoard and pandas are not installed: make exchange-tools (1 min, 1 GB, once)"
)


def cache_directory() -> Path:
    """Where the environment of exactly these versions is, or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    return cache / "drivetrain" / "exchange" / digest


def find_tools() -> Path | None:
    """The environment, or None while it is not built: its Python is `bin/python`."""
    directory = cache_directory()
    return directory if (directory / "complete").is_file() else None
