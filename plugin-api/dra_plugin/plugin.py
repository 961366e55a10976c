"""Plugin: what the author of a DRA driver implements. The text of the contract lives here.

The kubelet's rules behind it (Kubernetes 1.37, ``pkg/kubelet/cm/dra``):

* A call has 45 seconds for its whole batch. An error costs the Pod 60 to 90 seconds, so retry transient faults inside.
* Prepare may come again for a claim that is prepared and in use (kubelet restart); it must answer the same.
* Unprepare may come for a claim that this process never saw, more than once, or after a failed Prepare; the claim
  object may be gone. An unknown claim is a success.
* Two instances of a driver may run at once (rolling update); Prepare and Unprepare of a claim may reach different ones.
* The driver is the last defence against double use: refuse a device that is prepared for another claim.
"""

from typing import Protocol

import msgspec

from dra_plugin.claims import Claim, ClaimRef

__all__ = ["Plugin", "PreparedDevice"]


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device of a prepared claim, as the kubelet is told.

    Attributes:
        requests: the requests of the claim that it serves; ``main/sub`` is allowed, the kubelet is told ``main``.
            Empty means all requests.
        pool: name of the pool, as in the allocation.
        device: name of the device, as in the allocation.
        cdi_ids: fully qualified CDI names ``vendor/class=name``; the first one must be this device's own.
        share_id: as in the allocation, for a share of a multi-allocatable device.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...] = ()
    share_id: str | None = None


class Plugin(Protocol):
    """Prepares and unprepares single claims. Calls for one UID never overlap; a repeated call joins the running one."""

    async def prepare(self, claim: Claim) -> tuple[PreparedDevice, ...]:
        """Make the claim's devices ready for containers and say how they get in.

        Raises ClaimError for what the user must know; any other exception becomes the claim's error as well.
        """
        ...

    async def unprepare(self, ref: ClaimRef) -> None:
        """Take back everything that prepare made. Raises ClaimError when that failed; the kubelet asks again."""
        ...
