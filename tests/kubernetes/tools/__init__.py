"""The parts of a real Kubernetes, built once from pinned Go modules into the user's cache.

`make kubernetes-tools` builds them (`__main__.py`). Each folder here is a Go module that pins one
tool with all that it needs (`go.mod`, `go.sum`). The cache folder's name holds a hash of those
files, so that another version is another folder.
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
MISSING = "the parts of a real Kubernetes are not built: make kubernetes-tools (10-20 min, once)"


def cache_directory() -> Path:
    """Where the binaries of exactly these versions are, or will be."""
    content = hashlib.sha256(repr(BINARIES).encode())
    for file in sorted(MODULES.glob("*/go.*")):
        content.update(file.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = f"{KUBERNETES_VERSION}-{content.hexdigest()[:12]}"
    return cache / "drivetrain" / "kubernetes" / key


def find_tools() -> Path | None:
    """The folder with all binaries, or None while they are not built."""
    directory = cache_directory()
    return directory if directory.is_dir() else None
