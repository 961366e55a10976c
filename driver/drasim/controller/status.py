"""What the controller says of itself: one JSON document in a ConfigMap, for `drasim status` and for people.

It stands in the ConfigMap ``<controller.name>-status`` of the controller's namespace, under the key ``status.json``.
The leader alone writes it, when something changed.
"""

from typing import Literal

import msgspec

__all__ = [
    "STATUS_KEY",
    "BudgetUse",
    "ControllerStatus",
    "DeviceState",
    "DeviceStatus",
    "decode_status",
    "encode_status",
    "status_name",
]

STATUS_KEY = "status.json"
"""The key of the ConfigMap's ``data``."""

_LONGEST = 900_000
"""Bytes of the document; all of a ConfigMap is 1 MiB at most."""

DeviceState = Literal["evicting", "recovering", "missing", "waiting", "budget", "named-claim", "would-evict"]
"""What becomes of a sick device.

- ``evicting``: its rule stands and evicts.
- ``recovering``: its rule stands and evicts nobody, the problem is gone; the rule goes at ``until``.
- ``missing``: its rule stands, the device is not published; the rule goes at ``until`` unless a claim holds the device.
- ``waiting``: no rule; the problem will have stood for long enough at ``until``.
- ``budget``: no rule; the budget is used up.
- ``named-claim``: no rule; a claim would outlive its Pods and bring the next ones to this very device.
- ``would-evict``: dry run; ``pods`` would go.
"""


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One device that the policy speaks of.

    Attributes:
        driver, pool, device: the device, as in slices and claims.
        node: its Node.
        problem, code: what the policy looks at (``xid``, ``79``): of the rule where there is one.
        since: since when it stands, RFC 3339 in whole seconds; empty when it does not stand any more.
        state: see ``DeviceState``.
        reason: one line for people: what is waited for, or why nothing happens.
        until: when that ends by time alone, RFC 3339; empty when it does not.
        rule: the name of its DeviceTaintRule; empty when there is none.
        claims: who holds the device or looks into it (admin access), ``namespace/name``.
        pods: whose Pods go, would go or stay, ``namespace/name``; of a PodGroup its Pods.
    """

    driver: str
    pool: str
    device: str
    node: str = ""
    problem: str
    code: str = ""
    since: str = ""
    state: DeviceState
    reason: str = ""
    until: str = ""
    rule: str = ""
    claims: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


class BudgetUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A budget that is in use.

    Attributes:
        scope: what it is counted in.
        name: the Node, the rack's label, or empty for the cluster.
        limit: devices that may be under eviction at once; None: no limit.
        used: devices that have a rule of this controller now.
        held: devices that wait for this budget.
    """

    scope: Literal["node", "rack", "cluster"]
    name: str = ""
    limit: int | None = None
    used: int = 0
    held: int = 0


class ControllerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The controller as a whole.

    Attributes:
        leader: which instance wrote this.
        written: when, RFC 3339.
        rules_api: the version in which rules are kept (``resource.k8s.io/v1``); empty: the server serves none, so
            no Pod is evicted; devices are isolated all the same.
        dry_run: no rule is made; ``devices`` has the Pods that would go.
        problems: what keeps the controller from its work, for people.
        budgets: those that are in use.
        devices: those that the policy speaks of, at most ``LISTED``.
        omitted: how many more there are.
    """

    leader: str = ""
    written: str = ""
    rules_api: str = msgspec.field(name="rulesAPI", default="")
    dry_run: bool = False
    problems: tuple[str, ...] = ()
    budgets: tuple[BudgetUse, ...] = ()
    devices: tuple[DeviceStatus, ...] = ()
    omitted: int = 0


def status_name(controller: str) -> str:
    """Return the name of the ConfigMap of the controller of that name (``controller.name``)."""
    return f"{controller}-status"


def encode_status(status: ControllerStatus) -> str:
    """Return the document. One that is too long for a ConfigMap loses devices from its end, and counts them."""
    text = msgspec.json.encode(status)
    while len(text) > _LONGEST and status.devices:
        kept = len(status.devices) // 2
        omitted = status.omitted + len(status.devices) - kept
        status = msgspec.structs.replace(status, devices=status.devices[:kept], omitted=omitted)
        text = msgspec.json.encode(status)
    return text.decode()


def decode_status(text: str) -> ControllerStatus:
    """Read a document of this or another version: unknown members are ignored. Raises ``msgspec.ValidationError``."""
    return msgspec.json.decode(text, type=ControllerStatus)
