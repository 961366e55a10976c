"""Who is affected: the Pods behind the claims that hold a device, and how long they tolerate its rule."""

import math
from collections.abc import Collection, Iterable, Sequence

import msgspec

from dra_plugin.claims import ConsumerReference
from dra_plugin.cluster import Cluster, Selector
from dra_plugin.resources import POD, ObjectReference
from drasim.controller.objects import Claim, Place, Toleration
from drasim.notices.references import pod_reference

__all__ = ["PodRef", "grace", "pods_named", "pods_of"]


class PodRef(msgspec.Struct, frozen=True, order=True):
    """A Pod by its names."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def reference(self) -> ObjectReference:
        """What an Event about it names."""
        return pod_reference(self.namespace, self.name, self.uid)


def grace(claim: Claim, place: Place, key: str, value: str) -> float:
    """Return for how many seconds a claim's Pods may stay under a NoExecute taint of a device: 0 none, inf for ever.

    The rules are those of the eviction controller: only tolerations of that very effect count, and of several the
    shortest; a claim that has got the device more than once needs one for each time.
    """
    ours = (result for result in claim.results if result.place == place)
    return min((_tolerated(result.tolerations or (), key, value) for result in ours), default=math.inf)


def _tolerated(tolerations: Sequence[Toleration], key: str, value: str) -> float:
    fitting = [each for each in tolerations if each.effect == "NoExecute" and _matches(each, key, value)]
    if not fitting:
        return 0.0
    return min(math.inf if each.toleration_seconds is None else max(0, each.toleration_seconds) for each in fitting)


def _matches(toleration: Toleration, key: str, value: str) -> bool:
    if toleration.key and toleration.key != key:
        return False
    return toleration.operator == "Exists" or (toleration.value or "") == value


def pods_named(claims: Iterable[Claim]) -> tuple[PodRef, ...]:
    """Return the Pods that claims name themselves, those of PodGroups apart."""
    consumers = {(claim.metadata.namespace or "", each) for claim in claims for each in claim.consumers}
    pods = (PodRef(namespace, each.name, each.uid) for namespace, each in consumers if each.resource == "pods")
    return tuple(sorted(pods))


async def pods_of(cluster: Cluster, claims: Collection[Claim], node: str) -> tuple[PodRef, ...]:
    """Return the Pods for which claims are reserved; of a PodGroup those on that Node. Raises ClusterError."""
    found = set(pods_named(claims))
    for claim in claims:
        for consumer in claim.consumers:
            if consumer.resource == "podgroups":
                found.update(await _pods_of_group(cluster, claim.metadata.namespace or "", consumer, node))
    return tuple(sorted(found))


async def _pods_of_group(cluster: Cluster, namespace: str, group: ConsumerReference, node: str) -> Iterable[PodRef]:
    """Return the Pods of a PodGroup on a Node: the group's claim may be in use on others, with devices of those."""
    pods = (await cluster.list(POD, Selector(namespace=namespace, fields={"spec.nodeName": node}))).items
    return [
        PodRef(namespace, pod.metadata.name or "", pod.metadata.uid or "")
        for pod in pods
        if pod.spec.scheduling_group and pod.spec.scheduling_group.pod_group_name == group.name
    ]
