"""A pod of others that comes or goes on one of the cluster's nodes."""

from itertools import count

from services.scheduler.launchers.kubernetes.api import Api
from services.scheduler.launchers.kubernetes.cluster import NodeRules
from services.scheduler.launchers.kubernetes.node_source import KubernetesNodes
from services.scheduler.launchers.kubernetes.others import OtherPods
from tests.costs.counting import Runs, measure
from tests.unit.scheduler.kubernetes.objects import node, with_metadata


async def shared(size: int) -> Runs:
    """So many nodes, each with ten pods."""
    others = OtherPods(Api(), "drivetrain")
    nodes = KubernetesNodes(Api(), NodeRules(), "", others)
    version = count()

    def put(name: str, on: int) -> None:
        metadata = {"name": name, "namespace": "a", "uid": name, "resourceVersion": next(version)}
        requests = {"cpu": f"{next(version)}m"}
        spec = {"nodeName": f"n{on}", "containers": [{"resources": {"requests": requests}}]}
        others._cache._put(others._cache._trim({"metadata": metadata, "spec": spec}))

    for each in range(size):
        found = with_metadata(node(), name=f"n{each}", uid=f"n{each}", resourceVersion="1")
        nodes._cache._put(found)
        for number in range(10):
            put(f"p{each}-{number}", each)
    while True:
        yield lambda: [put(f"p{each}-0", each) for each in range(20)]


async def test_a_change_of_a_pod_costs_its_node_and_no_other() -> None:
    (await measure(shared, 50)).assert_flat()
