"""Builds the parts of a real Kubernetes into the user's cache: `make kubernetes-tools`.

All or nothing: the folder gets its name only when everything in it is built. Two builds at once
wait for each other. What a later version of this file adds is added to an earlier build.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.kubernetes.tools import (
    BINARIES,
    KUBERNETES_VERSION,
    MODULES,
    OBJECTS,
    STAGES,
    cache_directory,
    openapi_file,
)

GO_VERSION = (1, 26)
NEEDED_MB = 8000  # modules, Go's build cache and the binaries


def main() -> None:
    target = cache_directory()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir():
            print(f"kubernetes-tools: already built, in {target}")
        else:
            _build_all(target)
        for version in OBJECTS:
            if not openapi_file(version).is_file():
                _fetch_openapi(version)


def _build_all(target: Path) -> None:
    _require_go()
    _require_space(target.parent)
    print(
        f"kubernetes-tools: building Kubernetes {KUBERNETES_VERSION}, etcd, kwok, helm and "
        "kubeconform with Go (once; 10-20 minutes on two cores, up to 8 GB)",
        flush=True,
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as directory:
        folder = Path(directory) / "tools"
        folder.mkdir()
        for module in BINARIES:
            _build(module, folder)
        _copy_stages(folder)
        folder.rename(target)
    print(f"kubernetes-tools: ready in {time.monotonic() - began:.0f} s, in {target}")


def _fetch_openapi(version: str) -> None:
    """One file of the module's source; nothing is built."""
    _require_go()
    module = json.loads(_go("mod", "download", "-json", f"k8s.io/kubernetes@v{version}"))
    content = (Path(module["Dir"]) / "api" / "openapi-spec" / "swagger.json").read_bytes()
    if hashlib.sha256(content).hexdigest() != OBJECTS[version]:
        sys.exit(
            f"kubernetes-tools: the objects of Kubernetes {version} are not those that "
            "tests/kubernetes/tools/__init__.py names by SHA-256"
        )
    target = openapi_file(version)
    target.parent.mkdir(exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_bytes(content)
    partial.rename(target)
    print(f"kubernetes-tools: the objects of Kubernetes {version}, in {target}", flush=True)


def _require_go() -> None:
    wanted = ".".join(map(str, GO_VERSION))
    if shutil.which("go") is None:
        sys.exit(
            f"kubernetes-tools: Go {wanted} or newer is missing: install it (https://go.dev/dl)"
        )
    found = _go("env", "GOVERSION").removeprefix("go")
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    # An older Go fetches the one that it needs, unless it was told not to.
    if numbers < GO_VERSION and _go("env", "GOTOOLCHAIN") == "local":
        sys.exit(
            f"kubernetes-tools: Go {wanted} or newer is required, but this is {found}: "
            "install it (https://go.dev/dl), or unset GOTOOLCHAIN=local"
        )


def _require_space(directory: Path) -> None:
    free_mb = shutil.disk_usage(directory).free // 2**20
    if free_mb < NEEDED_MB:
        sys.exit(
            f"kubernetes-tools: {NEEDED_MB} MB of disk space are required, but {free_mb} MB are "
            f"free in {directory}: free some space, or set XDG_CACHE_HOME to another disk"
        )


def _build(module: str, folder: Path) -> None:
    version = "k8s.io/component-base/version"
    major, minor = KUBERNETES_VERSION.split(".")[:2]
    linker = " ".join(
        [
            "-s -w",
            f"-X {version}.gitVersion=v{KUBERNETES_VERSION}",
            f"-X {version}.gitMajor={major} -X {version}.gitMinor={minor}",
        ]
    )
    for name, package in BINARIES[module].items():
        began = time.monotonic()
        print(f"kubernetes-tools: {name} ...", end=" ", flush=True)
        command = ["build", "-mod=readonly", "-buildvcs=false", "-ldflags", linker]
        _go(*command, "-o", str(folder / name), package, module=module)
        print(f"{time.monotonic() - began:.0f} s")


def _copy_stages(folder: Path) -> None:
    source = Path(_go("list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok", module="kwok"))
    for kind in ("node", "pod"):
        destination = folder / STAGES / kind
        destination.mkdir(parents=True)
        for file in (source / "kustomize" / "stage" / kind / "fast").glob(f"{kind}-*.yaml"):
            (destination / file.name).write_bytes(file.read_bytes())


def _go(*arguments: str, module: str = "") -> str:
    environment = {**os.environ, "GOFLAGS": "-modcacherw"}
    result = subprocess.run(
        ["go", *arguments],
        cwd=MODULES / module,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        sys.exit(f"\nkubernetes-tools: go {' '.join(arguments)} failed:\n{result.stderr[-4000:]}")
    return result.stdout.strip()


if __name__ == "__main__":
    main()
