"""The components of a cluster: which programs, with which flags, after which others."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.cluster import certificates
from hack.cluster.folders import State
from hack.cluster.gates import Choice
from hack.cluster.manifests import CONTAINERD_SOCKET, KUBELET_HEALTH_PORT
from hack.cluster.plan import BOX, Component, Plan, identity
from hack.cluster.settings import Settings
from hack.cluster.topology import API_ADDRESS, API_PORT, SERVICE_RANGE, Node, nodes

ETCD = "http://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"
Flags = dict[str, str]


@dataclass(frozen=True)
class Layout:
    """Everything command lines depend on."""

    state: State
    binaries: Mapping[str, Path]
    """The folder of each product."""
    gates: Choice
    settings: Mapping[str, Settings]
    nodes: int

    @property
    def path(self) -> str:
        """Return PATH with the products before what the machine has."""
        return ":".join(
            [*map(str, self.binaries.values()), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        )


def plan(layout: Layout) -> Plan:
    """Return what the box has to run."""
    control = (_etcd(layout), _apiserver(layout), _controllers(layout), _scheduler(layout))
    per_node = [part for node in nodes(layout.nodes) for part in (_containerd(layout, node), _kubelet(layout, node))]
    kept = sorted({str(folder) for folder in layout.binaries.values()})
    return Plan(layout.nodes, tuple(kept), (*control, *per_node))


def _component(
    layout: Layout, name: str, flags: Flags, *, probe: str, after: tuple[str, ...] = (), node: int = BOX
) -> Component:
    every = {**flags, **layout.settings[name].flags}
    argv = (_binary(layout, name), *(f"--{flag}={value}" for flag, value in every.items()))
    log = str(layout.state.log(identity(name, node)))
    return Component(name, argv, log, probe, node, after, {"PATH": layout.path, "HOME": "/root"})


def _binary(layout: Layout, name: str) -> str:
    product = name if name in layout.binaries else "kube"
    return str(layout.binaries[product] / name)


def _gates(layout: Layout) -> Flags:
    return {"feature-gates": layout.gates.flag} if layout.gates.gates else {}


def _etcd(layout: Layout) -> Component:
    flags = {
        "name": "m",
        "data-dir": str(layout.state.root / "etcd"),
        "unsafe-no-fsync": "true",  # the data ends with the cluster
        "listen-client-urls": ETCD,
        "advertise-client-urls": ETCD,
        "listen-peer-urls": ETCD_PEER,
        "initial-advertise-peer-urls": ETCD_PEER,
        "initial-cluster": f"m={ETCD_PEER}",
    }
    return _component(layout, "etcd", flags, probe=f"{ETCD}/health")


def _apiserver(layout: Layout) -> Component:
    served = {"runtime-config": layout.gates.runtime_config} if layout.gates.apis else {}
    flags = {
        "etcd-servers": ETCD,
        "advertise-address": API_ADDRESS,
        "bind-address": "0.0.0.0",  # noqa: S104  of the cluster's own network
        "secure-port": str(API_PORT),
        **_apiserver_identity(layout.state.pki),
        **_front_proxy(layout.state.pki),
        "kubelet-preferred-address-types": "InternalIP",  # makes logs and exec work without names
        "service-cluster-ip-range": SERVICE_RANGE,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "endpoint-reconciler-type": "master-count",
        "cert-dir": str(layout.state.root / "apiserver"),
        **_gates(layout),
        **served,
    }
    probe = f"https://127.0.0.1:{API_PORT}/readyz"
    return _component(layout, "kube-apiserver", flags, probe=probe, after=("etcd",))


def _apiserver_identity(pki: Path) -> Flags:
    return {
        "tls-cert-file": f"{pki}/apiserver.crt",
        "tls-private-key-file": f"{pki}/apiserver.key",
        "client-ca-file": f"{pki}/ca.crt",
        "kubelet-client-certificate": f"{pki}/apiserver-kubelet.crt",
        "kubelet-client-key": f"{pki}/apiserver-kubelet.key",
        "kubelet-certificate-authority": f"{pki}/ca.crt",
        "service-account-key-file": f"{pki}/sa.pub",
        "service-account-signing-key-file": f"{pki}/sa.key",
        "service-account-issuer": "https://kubernetes.default.svc",
    }


def _front_proxy(pki: Path) -> Flags:
    return {
        "requestheader-client-ca-file": f"{pki}/{certificates.FRONT_CA}.crt",
        "requestheader-allowed-names": "front-proxy",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": f"{pki}/front-proxy.crt",
        "proxy-client-key-file": f"{pki}/front-proxy.key",
    }


def _credentials(state: State, name: str) -> Flags:
    file = str(state.config / f"{name}.kubeconfig")
    return {"authentication-kubeconfig": file, "authorization-kubeconfig": file}


def _controllers(layout: Layout) -> Component:
    state, name = layout.state, "kube-controller-manager"
    flags = {
        "kubeconfig": str(state.config / f"{name}.kubeconfig"),
        **_credentials(state, name),
        "service-account-private-key-file": f"{state.pki}/sa.key",
        "root-ca-file": f"{state.pki}/ca.crt",
        "cluster-signing-cert-file": f"{state.pki}/ca.crt",
        "cluster-signing-key-file": f"{state.pki}/ca.key",
        "use-service-account-credentials": "true",
        "leader-elect": "false",
        "bind-address": "127.0.0.1",
        "cert-dir": str(state.root / name),
        # One account for each controller is made through this limit; with the default pods can be made 5 s later.
        "kube-api-qps": "200",
        "kube-api-burst": "400",
        "flex-volume-plugin-dir": str(state.root / "volumeplugins"),  # the default lies in /usr
        **_gates(layout),
    }
    return _component(layout, name, flags, probe="https://127.0.0.1:10257/healthz", after=("kube-apiserver",))


def _scheduler(layout: Layout) -> Component:
    state, name = layout.state, "kube-scheduler"
    flags = {
        "config": str(state.config / f"{name}.json"),
        **_credentials(state, name),
        "bind-address": "127.0.0.1",
        "cert-dir": str(state.root / name),
        **_gates(layout),
    }
    return _component(layout, name, flags, probe="https://127.0.0.1:10259/healthz", after=("kube-apiserver",))


def _containerd(layout: Layout, node: Node) -> Component:
    flags = {"config": str(layout.state.config / f"containerd-{node.index}.toml")}
    return _component(layout, "containerd", flags, probe=f"unix:{CONTAINERD_SOCKET}", node=node.index)


def _kubelet(layout: Layout, node: Node) -> Component:
    config = layout.state.config
    flags = {
        "config": str(config / f"kubelet-{node.index}.json"),
        "kubeconfig": str(config / f"kubelet-{node.index}.kubeconfig"),
        "hostname-override": node.name,
        "node-ip": node.address,
    }
    probe = f"http://{node.address}:{KUBELET_HEALTH_PORT}/healthz"
    after = ("kube-apiserver", identity("containerd", node.index))
    return _component(layout, "kubelet", flags, probe=probe, after=after, node=node.index)
