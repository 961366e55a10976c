"""What this API server can do: which version of a kind it serves, and whether it keeps what a feature gate guards.

Versions are asked for, gates are tried out: a gate that is off shows in nothing but the fields that vanish.
"""

from collections.abc import Sequence
from typing import TypeVar

from dra_plugin.cluster import Cluster
from dra_plugin.errors import Rejected, Retryable
from dra_plugin.resources import (
    RESOURCE_SLICE,
    Device,
    DeviceTaint,
    Kind,
    ObjectMeta,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

__all__ = ["keeps_taints", "served"]

T = TypeVar("T")


async def served(cluster: Cluster, kinds: Sequence[Kind[T]]) -> Kind[T] | None:
    """Return the first of ``kinds`` that the API server serves, None when it serves none of them.

    The kinds are one kind in several versions, the preferred one first: ``resources.DEVICE_TAINT_RULES``. Raises
    Retryable when the server cannot be asked, or does not answer this client (yet).
    """
    try:
        for kind in kinds:
            if await cluster.served(kind):
                return kind
    except Rejected as error:
        raise Retryable(str(error), code=error.code) from error
    return None


async def keeps_taints(cluster: Cluster, driver: str, node_name: str) -> bool:
    """Tell whether the API server keeps the taints of devices (gate DRADeviceTaints; off by default up to 1.35).

    A slice with one tainted device is created as a dry run, in the name of this driver and node, so that whoever may
    publish may ask this as well; nobody else sees it. Raises ClusterError when the server does not answer or refuses.
    """
    taint = DeviceTaint(key=f"{driver}/probe", effect="NoSchedule")
    spec = ResourceSliceSpec(
        driver=driver,
        node_name=node_name,
        pool=ResourcePool(name=node_name, generation=1, resource_slice_count=1),
        devices=(Device(name="probe", taints=(taint,)),),
    )
    probe = ResourceSlice(metadata=ObjectMeta(generate_name="taints-probe-"), spec=spec)
    answer = await cluster.create(RESOURCE_SLICE, probe, dry_run=True)
    return any(device.taints for device in answer.spec.devices or ())
