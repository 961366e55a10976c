"""Where things lie: the cache of built binaries, and the state of one cluster."""

import os
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent
CHECKOUT = SOURCE.parent.parent


def cache_root() -> Path:
    """Return the folder of everything that can be made again, outside the checkout so that clones share it."""
    named = os.environ.get("DRASIM_CACHE")
    if named:
        return Path(named).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).resolve() / "drasim"


def state_root() -> Path:
    """Return the folder that holds one folder for each running cluster."""
    return Path(os.environ.get("DRASIM_STATE", "/var/lib/drasim-cluster")).resolve()


@dataclass(frozen=True)
class State:
    """The files of one cluster; the path is the same inside its namespaces and outside."""

    name: str
    root: Path

    @classmethod
    def of(cls, name: str) -> "State":
        """Return the state of the cluster of this name, whether it runs or not."""
        return cls(name, state_root() / name)

    @property
    def plan(self) -> Path:
        """Return the file with what the first process of the box has to run."""
        return self.root / "plan.json"

    @property
    def record(self) -> Path:
        """Return the file that says which processes the cluster consists of."""
        return self.root / "box.json"

    @property
    def socket(self) -> Path:
        """Return the socket on which the first process of the box takes requests."""
        return self.root / "control.sock"

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def pki(self) -> Path:
        """Return the folder of keys and certificates."""
        return self.root / "pki"

    @property
    def config(self) -> Path:
        """Return the folder of the components' configuration files."""
        return self.root / "config"

    @property
    def logs(self) -> Path:
        """Return the folder of the components' logs."""
        return self.root / "log"

    def log(self, component: str) -> Path:
        """Return the log of one component, for example `kubelet-1`."""
        return self.logs / f"{component}.log"

    def node(self, index: int) -> Path:
        """Return what a node keeps on disk: its kubelet's and its container runtime's folders."""
        return self.root / "nodes" / str(index)
