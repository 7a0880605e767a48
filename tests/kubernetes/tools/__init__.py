"""The parts of a real Kubernetes, built once from pinned Go modules into the user's cache.

`make kubernetes-tools` builds them (`__main__.py`). Each folder here is a Go module that pins one
tool with all that it needs (`go.mod`, `go.sum`). The cache folder's name holds a hash of those
files, so that another version is another folder. Beside them are the descriptions of the objects
of several versions of Kubernetes (`openapi`), which need no build.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

MODULES = Path(__file__).parent
KUBERNETES_VERSION = "1.34.4"
# folder of the Go module -> names of the binaries and the packages that they are built from
BINARIES: Mapping[str, Mapping[str, str]] = {
    "kubernetes": {
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    },
    "kwok": {"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
    "helm": {"helm": "helm.sh/helm/v3/cmd/helm"},
    "helm-unittest": {"untt": "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"},
    "kubeconform": {"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"},
}
STAGES = "kwok-stages"  # what kwok does with nodes and pods: files of its module
# The newest three minor versions, and the SHA-256 of api/openapi-spec/swagger.json of each.
OBJECTS: Mapping[str, str] = {
    "1.35.4": "483500149ee52ce5753d75f5639101d985bb4f5e902cc05b1ba7627465d62446",
    "1.36.3": "dcede2063da1d7ad62ecb5af8adb6d7fabd0b52385a7fa0048afb491dac90450",
    "1.37.2": "465276aedf437726de5a6ed23a41b86d78bb0d347edf251a755ae26a93cdd8a6",
}
MISSING = "the parts of a real Kubernetes are not built: make kubernetes-tools (10-20 min, once)"


def cache_directory() -> Path:
    """Where the binaries of exactly these versions are, or will be."""
    content = hashlib.sha256(repr(BINARIES).encode())
    for file in sorted(MODULES.glob("*/go.*")):
        content.update(file.read_bytes())
    return _cache() / f"{KUBERNETES_VERSION}-{content.hexdigest()[:12]}"


def openapi_file(version: str) -> Path:
    """Where the description of all objects of this version is, or will be."""
    return _cache() / "openapi" / f"{version}.json"


def find_tools() -> Path | None:
    """The folder with all binaries, or None while they are not built."""
    directory = cache_directory()
    return directory if directory.is_dir() else None


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "drivetrain" / "kubernetes"
