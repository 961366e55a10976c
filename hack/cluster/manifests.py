"""Configuration files of the components, as values and text; JSON is written where YAML is read."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hack.cluster import cgroups, images
from hack.cluster.folders import State
from hack.cluster.settings import with_fields
from hack.cluster.topology import API_ADDRESS, API_PORT, Node

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
KUBELET_HEALTH_PORT = 10248


def kubeconfig(pki: Path, user: str) -> dict[str, Any]:
    """Return a kubeconfig with everything in it, so that a copy of the file is enough."""
    server = {"server": f"https://{API_ADDRESS}:{API_PORT}", "certificate-authority-data": _encoded(pki / "ca.crt")}
    credentials = {
        "client-certificate-data": _encoded(pki / f"{user}.crt"),
        "client-key-data": _encoded(pki / f"{user}.key"),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "drasim", "cluster": server}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "drasim", "context": {"cluster": "drasim", "user": user}}],
        "current-context": "drasim",
    }


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def kubelet(state: State, node: Node, gates: Mapping[str, bool], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a KubeletConfiguration; the user's fields win."""
    certificate = state.pki / f"kubelet-{node.index}-serving"
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **_kubelet_groups(state.name, node),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(state.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{certificate}.crt",
        "tlsPrivateKeyFile": f"{certificate}.key",
        "healthzBindAddress": node.address,
        "healthzPort": KUBELET_HEALTH_PORT,
        "resolvConf": "",
        "makeIPTablesUtilChains": False,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "maxOpenFiles": 20000,
        "syncFrequency": "10s",
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "featureGates": dict(gates),
    }
    return with_fields(config, fields)


def _kubelet_groups(cluster: str, node: Node) -> dict[str, Any]:
    # systemCgroups, kubeletCgroups and runtimeCgroups stay unset: with them the kubelet moves processes of the machine.
    return {
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.group(cluster)}/n{node.index}",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "failSwapOn": False,
    }


def scheduler(state: State, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration; fields below `plugin.NAME` are that plugin's arguments."""
    plain = {path: value for path, value in fields.items() if not path.startswith("plugin.")}
    arguments = with_fields({}, {path: value for path, value in fields.items() if path not in plain})
    plugins = [{"name": name, "args": args} for name, args in arguments.get("plugin", {}).items()]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(state.config / "kube-scheduler.kubeconfig")},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": plugins}],
    }
    return with_fields(config, plain)


def network(node: Node) -> dict[str, Any]:
    """Return the CNI configuration of a node: a bridge for its pods, whose other end is the node's routes."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "box", "plugins": [bridge, ports]}


def containerd(cni_plugins: Path, cni_config: Path, runc: Path) -> str:
    """Return containerd's configuration; root and state are the standard folders, which are the node's own."""
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE, as in many virtual machines, every pod fails otherwise.
    return f"""version = 3
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{images.PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{cni_plugins}"]
    conf_dir = "{cni_config}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      SystemdCgroup = false
"""


def write(path: Path, content: Mapping[str, Any] | str) -> None:
    """Write a configuration file that only root can read: some hold keys."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
