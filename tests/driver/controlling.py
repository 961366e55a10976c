"""Slices, claims, Nodes and policies of a small cluster, and a server for rules that is a mapping."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from dra_plugin.claims import ConsumerReference
from dra_plugin.resources import DeviceTaint, DeviceTaintRule, Node, ObjectMeta, OwnerReference, ResourcePool
from drasim.config.controller import Budget, ControllerConfig, Eviction
from drasim.config.strict import Delay
from drasim.controller.decision import Decision, decide
from drasim.controller.objects import (
    AllocatedDevice,
    Claim,
    Place,
    Slice,
    SliceDevice,
    SliceSpec,
    Toleration,
    allocated_claim,
)
from drasim.controller.policy import Policy
from drasim.controller.rules import rule_name
from drasim.controller.times import stamp
from drasim.controller.world import Index, World

GPU, NIC = "gpu.dra.example.com", "nic.dra.example.com"
DRIVERS = (GPU, NIC)
T0 = 1_800_000_000
"""A Unix time to start from."""

EVICT = (
    Eviction(problem="lost", after=Delay(0), recover_after=Delay(30)),
    Eviction(problem="xid", codes=("79", "48"), after=Delay(10), recover_after=Delay(60)),
    Eviction(problem="ecc-uncorrectable", after=Delay(0), recover_after=Delay(0)),
)


def policy(evict: tuple[Eviction, ...] = EVICT, budget: Budget | None = None, **more: object) -> Policy:
    """Return a policy of both drivers without a budget."""
    told = Policy(drivers=DRIVERS, evict=evict, budget=budget or Budget(per_cluster=None))
    return replace(told, **more)


def place(device: str = "gpu-0", node: str = "node-a") -> Place:
    """Return a device of a Node; the kind is in its name."""
    return Place(GPU if device.startswith("gpu") else NIC, f"{node}-{device[:3]}", device)


def taint(problem: str, since: float = T0, effect: str = "NoSchedule", driver: str = GPU) -> DeviceTaint:
    """Return the taint of a problem, written as in ``problems.effects``: ``xid/79``."""
    kind, _, code = problem.partition("/")
    return DeviceTaint(key=f"{driver}/{kind}", value=code or None, effect=effect, time_added=stamp(since))


def part(
    node: str, devices: Mapping[str, Iterable[DeviceTaint]], *, generation: int = 1, count: int = 1, name: str = "s"
) -> Slice:
    """Return a slice of a Node's pool, of the kind that its devices have."""
    where = place(next(iter(devices), "gpu-0"), node)
    listed = tuple(SliceDevice(name=device, taints=tuple(taints) or None) for device, taints in devices.items())
    pool = ResourcePool(name=where.pool, generation=generation, resource_slice_count=count)
    meta = ObjectMeta(name=f"{where.pool}-{name}", uid=f"{where.pool}-{name}-{generation}", resource_version="1")
    return Slice(metadata=meta, spec=SliceSpec(driver=where.driver, pool=pool, node_name=node, devices=listed))


def claim(
    name: str,
    *places: Place,
    owner: str = "Pod",
    tolerations: tuple[Toleration, ...] = (),
    pods: Iterable[str] = (),
    admin: bool = False,
) -> Claim:
    """Return an allocated claim; ``owner`` is a Pod (made for it), a PodGroup, or empty: people made it."""
    owners = (OwnerReference(api_version=_API[owner], kind=owner, name="x", uid="x"),) if owner else None
    results = tuple(
        AllocatedDevice(
            driver=each.driver,
            pool=each.pool,
            device=each.device,
            admin_access=admin or None,
            tolerations=tolerations or None,
        )
        for each in places
    )
    consumers = tuple(ConsumerReference(resource="pods", name=pod, uid=f"uid-{pod}") for pod in pods)
    meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", owner_references=owners)
    return allocated_claim(meta, results, consumers)


_API = {"Pod": "v1", "PodGroup": "scheduling.k8s.io/v1beta1"}


class Cluster:
    """What the views show, changed by tests; rules are stored as the server would."""

    def __init__(self, told: Policy | None = None) -> None:
        self.policy = told or policy()
        self.slices: dict[str, Slice] = {}
        self.claims: dict[str, Claim] = {}
        self.nodes: dict[str, Node] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        self.now = float(T0)
        self._index = Index(self.policy, "rack")

    def publish(self, *parts: Slice) -> None:
        """Store slices, and their Nodes if they are not there."""
        for each in parts:
            self.slices[each.metadata.name or ""] = each
            self.add_node(each.spec.node_name or "")

    def add_node(self, name: str, rack: str = "") -> None:
        """Store a Node, unless it is there."""
        labels = {"rack": rack} if rack else None
        self.nodes.setdefault(name, Node(metadata=ObjectMeta(name=name, labels=labels)))

    def hold(self, *claims: Claim) -> None:
        """Store claims."""
        self.claims |= {each.name: each for each in claims}

    def world(self) -> World:
        """Return what the decision is made from."""
        return self._index.world(dict(self.slices), dict(self.claims), dict(self.nodes), dict(self.rules))

    def decide(self) -> Decision:
        """Decide, and write nothing."""
        return decide(self.world(), self.policy, self.now)

    def settle(self) -> Decision:
        """Decide and carry it out."""
        decision = self.decide()
        for _, change in decision.changes:
            name = change.rule.metadata.name or ""
            if change.verb == "delete":
                del self.rules[name]
            else:
                self.rules[name] = self._stored(change.rule)
        return decision

    def restart(self) -> None:
        """Have another instance decide, which knows what is stored and nothing else."""
        self._index = Index(self.policy, "rack")

    def rule(self, device: str = "gpu-0", node: str = "node-a") -> DeviceTaintRule | None:
        """Return the rule of a device."""
        return self.rules.get(rule_name(place(device, node)))

    def _stored(self, rule: DeviceTaintRule) -> DeviceTaintRule:
        added = rule.spec.taint.time_added or stamp(self.now)
        taint = replace(rule.spec.taint, time_added=added)
        return replace(rule, spec=replace(rule.spec, taint=taint), metadata=replace(rule.metadata, uid="u"))


def config(**more: object) -> ControllerConfig:
    """Return the configuration of a controller with the tests' policy."""
    told = ControllerConfig(namespace="drasim", evict=EVICT, budget=Budget(per_cluster=None))
    return replace(told, **more)
