"""Builds the Kubernetes launcher and its nodes."""

from pathlib import Path

from services.runtime.stores import open_object_store
from services.scheduler.launchers.kubernetes.api import Api
from services.scheduler.launchers.kubernetes.ends import Ends
from services.scheduler.launchers.kubernetes.launcher import KubernetesLauncher
from services.scheduler.launchers.kubernetes.names import platform_of
from services.scheduler.launchers.kubernetes.node_source import KubernetesNodes
from services.scheduler.launchers.kubernetes.others import OtherPods
from services.scheduler.settings import SchedulerSettings

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def build(settings: SchedulerSettings) -> tuple[KubernetesLauncher, KubernetesNodes]:
    """Raises ConfigurationError."""
    api = Api()
    store = open_object_store(
        settings.object_store_url, settings.object_store_endpoint_url, settings.object_store_id
    )
    namespace = settings.kubernetes_namespace or _own_namespace()
    # Two platforms share none of these together, whatever namespace their pods are in.
    platform = platform_of(
        settings.object_store_url, settings.object_store_endpoint_url or "", settings.topic_prefix
    )
    rules = settings.pod_rules(namespace, platform, settings.cancel_notice_seconds)
    others = OtherPods(api, platform)
    nodes = KubernetesNodes(api, settings.node_rules(), settings.kubernetes_node_selector, others)
    return KubernetesLauncher(api, rules, Ends(store), nodes), nodes


def _own_namespace() -> str:
    try:
        return _NAMESPACE.read_text().strip()
    except OSError:
        return "default"
