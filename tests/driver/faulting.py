"""DeviceFaults and sites for the tests of faults."""

from typing import Any

from dra_plugin.resources import ObjectMeta
from dra_plugin.testing.cluster import Catalog, FakeCluster, Resource
from drasim.faults import DEVICE_FAULT, DeviceFault, DeviceFaultSpec, Site
from drasim.faults.wanted import moment
from drasim.hardware import Kind
from tests.driver.machines import NODE, machine

CREATED = "2026-03-01T12:00:00Z"
T0 = moment(CREATED) or 0.0
BOTH: frozenset[Kind] = frozenset({"gpu", "nic"})


def site(*running: Kind, profile: str = "small") -> Site:
    """Return the place of a shipped machine, on which both drivers run unless some are named."""
    return Site(node=NODE, machine=machine(profile), running=frozenset(running) or BOTH)


def spec(**members: Any) -> DeviceFaultSpec:  # noqa: ANN401 - members of the spec
    """Return a spec: ``gpu-1`` of the node is lost, but for what is given."""
    place = {} if "all" in members else {"device": "gpu-1"}
    return DeviceFaultSpec(**{"node": NODE, "kind": "lost", **place, **members})


def fault(name: str = "a", **members: Any) -> DeviceFault:  # noqa: ANN401 - members of the spec
    """Return an object as the API server has it."""
    meta = ObjectMeta(name=name, uid=f"uid-{name}", generation=1, creation_timestamp=CREATED, resource_version="1")
    return DeviceFault(metadata=meta, spec=spec(**members))


def fresh(name: str = "a", **members: Any) -> DeviceFault:  # noqa: ANN401 - members of the spec
    """Return an object as a user creates it."""
    return DeviceFault(metadata=ObjectMeta(name=name), spec=spec(**members))


def cluster() -> FakeCluster:
    """Return a cluster with the CRD."""
    return FakeCluster(catalog=Catalog(extra=(Resource.custom(DEVICE_FAULT, "spec.node"),)))
