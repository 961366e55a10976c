"""What Events are about: the Node, claims, and the Pods that use them."""

from collections.abc import AsyncIterator

from dra_plugin.checkpoint import Record
from dra_plugin.claims import RESOURCE_CLAIM, ConsumerReference
from dra_plugin.cluster import Cluster, Selector
from dra_plugin.resources import POD, ObjectReference

__all__ = ["claim_reference", "node_reference", "pod_reference", "pods_of"]


def node_reference(name: str) -> ObjectReference:
    """Refer to the Node as the kubelet does: by name and name as UID, so that `kubectl describe node` shows it."""
    return ObjectReference(api_version="v1", kind="Node", name=name, uid=name)


def claim_reference(namespace: str | None, name: str, uid: str | None) -> ObjectReference:
    """Refer to a ResourceClaim."""
    kind = RESOURCE_CLAIM
    return ObjectReference(api_version=kind.api_version, kind=kind.name, namespace=namespace, name=name, uid=uid)


def pod_reference(namespace: str, name: str, uid: str) -> ObjectReference:
    """Refer to a Pod."""
    return ObjectReference(api_version=POD.api_version, kind=POD.name, namespace=namespace, name=name, uid=uid)


async def pods_of(cluster: Cluster, node_name: str, record: Record) -> tuple[ObjectReference, ...]:
    """Return the Pods for which the recorded claim is reserved; none when the claim is gone or another one.

    A PodGroup stands for its Pods on this node: the devices of the record are nowhere else. Raises ClusterError.
    """
    claim = await cluster.get(RESOURCE_CLAIM, record.name, record.namespace)
    if claim is None or claim.metadata.uid != record.uid or claim.status is None:
        return ()
    consumers = claim.status.reserved_for or ()
    named = [pod_reference(record.namespace, each.name, each.uid) for each in consumers if _is_pod(each)]
    groups = {each.name for each in consumers if each.resource == "podgroups"}
    members = [pod async for pod in _members(cluster, node_name, record.namespace, groups)] if groups else []
    return tuple(dict.fromkeys((*named, *members)))


async def _members(
    cluster: Cluster, node_name: str, namespace: str, groups: set[str]
) -> AsyncIterator[ObjectReference]:
    selector = Selector(namespace=namespace, fields={"spec.nodeName": node_name})
    for pod in (await cluster.list(POD, selector)).items:
        group = pod.spec.scheduling_group
        if group and group.pod_group_name in groups:
            yield pod_reference(namespace, pod.metadata.name or "", pod.metadata.uid or "")


def _is_pod(consumer: ConsumerReference) -> bool:
    return consumer.resource == "pods" and not consumer.api_group
