"""The cluster's network: a bridge in the box, a link to each node, routes to pods, a rule for the API's service."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from hack.cluster.topology import API_ADDRESS, API_PORT, BRIDGE, SERVICE_ADDRESS, Node

FORWARD = Path("/proc/sys/net/ipv4/ip_forward")


def box_batch(nodes: Sequence[Node]) -> str:
    """Return the lines for `ip -batch` in the box, before its nodes exist."""
    # Nobody answers at .254, but the kernel looks at the rule for the API's service only when a route is there.
    lines = [
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        f"addr add {API_ADDRESS}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
        f"route add default via 10.200.0.254 dev {BRIDGE}",
        *(f"route add {node.pod_range} via {node.address}" for node in nodes),
    ]
    return "\n".join(lines) + "\n"


def attach_batch(node: Node) -> str:
    """Return the lines for `ip -batch` in the box that put a node's link on the bridge."""
    return f"link set {node.link} master {BRIDGE}\nlink set {node.link} up\n"


def node_batch(node: Node, nodes: Sequence[Node]) -> str:
    """Return the lines for `ip -batch` in a node; process 1 is the box, which gets the other end of the link."""
    lines = [
        "link set lo up",
        f"link add eth0 type veth peer name {node.link} netns 1",
        f"addr add {node.address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {API_ADDRESS}",
        *(f"route add {other.pod_range} via {other.address}" for other in nodes if other != node),
    ]
    return "\n".join(lines) + "\n"


def service_rules() -> str:
    """Return the input of iptables-restore that leads the API's service address to the API server."""
    rule = f"-d {SERVICE_ADDRESS}/32 -p tcp --dport 443 -j DNAT --to-destination {API_ADDRESS}:{API_PORT}"
    return f"*nat\n-A PREROUTING {rule}\n-A OUTPUT {rule}\nCOMMIT\n"


def apply(batch: str, rules: str = "") -> None:
    """Carry out a batch, then rules, in this process's network namespace."""
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
    if rules:
        subprocess.run(["iptables-restore"], input=rules, text=True, check=True)


def forward() -> None:
    """Let this network namespace, and no other, pass packets on."""
    FORWARD.write_text("1")
