"""Nodes and their devices as they are published: what a fault can be done to."""

from collections.abc import Iterator, Mapping

from dra_plugin.cluster import Cluster, Selector
from dra_plugin.quantity import Quantity
from dra_plugin.resources import NODE, RESOURCE_SLICE, Device, DeviceAttribute
from drasim.config import Config, ConfigError
from drasim.config.strict import suggestion
from drasim.devices import STANDARD
from drasim.hardware import Gpu, Nic, Pci
from drasim.hardware.simulated import Machine

__all__ = ["check_node", "chosen_node", "published_machine"]

_MOST_LISTED = 16
_NONE = DeviceAttribute()


async def chosen_node(cluster: Cluster, config: Config, node: str) -> str:
    """Return ``node``, else the configured one, else the only one that publishes devices. Raises ConfigError."""
    if node or config.node_name:
        return node or config.node_name
    nodes = await _publishing(cluster, config)
    if len(nodes) == 1:
        return nodes[0]
    raise ConfigError("flags", "--node", f"missing; allowed: {_listed(nodes)}")


async def published_machine(cluster: Cluster, config: Config, node: str) -> Machine:
    """Return the devices that the node publishes now. Raises ConfigError for a node that is none, or has none."""
    gpus = tuple(_gpu(device) for device in await _devices(cluster, config.gpu.driver, node))
    nics = tuple(_nic(device) for device in await _devices(cluster, config.nic.driver, node))
    if gpus or nics:
        return Machine(gpus=gpus, nics=nics)
    await check_node(cluster, config, node)
    raise await _unusable(cluster, config, node, "publishes no devices of these drivers")


async def check_node(cluster: Cluster, config: Config, node: str) -> None:
    """Raise ConfigError unless that is a Node of the cluster."""
    if await cluster.get(NODE, node) is None:
        raise await _unusable(cluster, config, node, "is no Node of this cluster")


async def _unusable(cluster: Cluster, config: Config, node: str, problem: str) -> ConfigError:
    nodes = await _publishing(cluster, config)
    return ConfigError("flags", "--node", f'"{node}" {problem}{suggestion(node, nodes)}; allowed: {_listed(nodes)}')


def _listed(nodes: list[str]) -> str:
    """Return the nodes for people; of many the first ones, and how many there are."""
    more = f" and {len(nodes) - _MOST_LISTED} more" if len(nodes) > _MOST_LISTED else ""
    return ", ".join(nodes[:_MOST_LISTED]) + more or "none yet: no node publishes devices"


async def _publishing(cluster: Cluster, config: Config) -> list[str]:
    found: set[str] = set()
    for driver in (config.gpu.driver, config.nic.driver):
        listing = await cluster.list(RESOURCE_SLICE, Selector(fields={"spec.driver": driver}))
        found.update(each.spec.node_name for each in listing.items if each.spec.node_name)
    return sorted(found)


async def _devices(cluster: Cluster, driver: str, node: str) -> Iterator[Device]:
    selector = Selector(fields={"spec.driver": driver, "spec.nodeName": node})
    listing = await cluster.list(RESOURCE_SLICE, selector)
    return (device for each in listing.items for device in each.spec.devices or ())


def _gpu(device: Device) -> Gpu:
    attributes = device.attributes or {}
    return Gpu(
        id=_text(attributes, "uuid"),
        index=attributes.get("index", _NONE).integer or 0,
        model=_text(attributes, "model"),
        memory=Quantity("0"),
        driver_version="",
        pci=_pci(attributes),
    )


def _nic(device: Device) -> Nic:
    attributes = device.attributes or {}
    pci = _pci(attributes)
    return Nic(
        id=pci.bus_id,
        index=attributes.get("index", _NONE).integer or 0,
        model=_text(attributes, "model"),
        mac=_text(attributes, "mac"),
        link_up=True,
        speed_gbps=0,
        rdma=False,
        driver_version="",
        pci=pci,
    )


def _pci(attributes: Mapping[str, DeviceAttribute]) -> Pci:
    return Pci(bus_id=_text(attributes, f"{STANDARD}/pciBusID"), root=_text(attributes, f"{STANDARD}/pcieRoot"))


def _text(attributes: Mapping[str, DeviceAttribute], name: str) -> str:
    return attributes.get(name, _NONE).string or ""
