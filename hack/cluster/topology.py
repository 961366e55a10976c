"""Names and addresses of a cluster's nodes; every cluster has its own network, so they are always the same."""

from dataclasses import dataclass

API_ADDRESS = "10.200.0.1"
API_PORT = 6443
SERVICE_ADDRESS = "10.96.0.1"
SERVICE_RANGE = "10.96.0.0/16"
BRIDGE = "br-kc"


@dataclass(frozen=True)
class Node:
    """A node, counted from 1."""

    index: int

    @property
    def name(self) -> str:
        """Return the name of the Node object and of the machine inside."""
        return f"node{self.index}"

    @property
    def address(self) -> str:
        """Return the node's address in the cluster's network."""
        return f"10.200.0.{10 + self.index}"

    @property
    def pod_range(self) -> str:
        """Return the addresses of the node's pods."""
        return f"10.244.{self.index}.0/24"

    @property
    def link(self) -> str:
        """Return the name of the box's end of the link to this node."""
        return f"vk{self.index}"


def nodes(count: int) -> tuple[Node, ...]:
    """Return so many nodes."""
    return tuple(Node(index) for index in range(1, count + 1))
