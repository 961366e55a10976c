"""What the configuration is made of: frozen sections, keys in camel case, unknown keys refused."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from drasim.config.strict import Seconds

__all__ = [
    "DriverName",
    "Duration",
    "GpuConfig",
    "LogConfig",
    "NicConfig",
    "NodeName",
    "OptionalPath",
    "Paths",
    "Periods",
    "Probes",
    "Section",
    "Simulation",
    "Uid",
]

_DNS = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
DriverName = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^{_DNS}(\.{_DNS})*\Z",
        max_length=63,
        description="a DNS name of lower-case letters, digits, - and dots, at most 63 characters",
    ),
]
NodeName = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^({_DNS}(\.{_DNS})*)?\Z",
        max_length=253,
        description="the Node's name (a DNS name of at most 253 characters), or empty",
    ),
]
_Folder = Annotated[str, msgspec.Meta(pattern="^/", description="an absolute path")]
OptionalPath = Annotated[str, msgspec.Meta(pattern=r"^(/.*)?\Z", description="an absolute path, or empty")]
Uid = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{0,64}\Z", description="a UID, or empty")]
_Profile = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^([a-z0-9-]+|/.*)\Z", description="the name of a shipped profile, or the absolute path of a YAML file"
    ),
]
_Address = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(([^:\s]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5})?\Z",
        description="host:port, :port for all addresses, or empty for none",
    ),
]
Duration = Annotated[
    Seconds, msgspec.Meta(description="1ms to 24h: a number of seconds, or text such as 5s, 500ms, 2m, 1h")
]


class Section(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What every part of the configuration is."""


class LogConfig(Section, frozen=True, kw_only=True):
    """Logs go to stderr. ``auto`` is console on a terminal, else json."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class Paths(Section, frozen=True, kw_only=True, rename={"boot_id": "bootID"}):
    """Folders and files of the host, as this process sees them. Empty ones follow from ``kubelet``."""

    kubelet: _Folder = "/var/lib/kubelet"
    registry: OptionalPath = ""
    plugins: OptionalPath = ""
    state: OptionalPath = ""
    cdi: _Folder = "/var/run/cdi"
    boot_id: _Folder = "/proc/sys/kernel/random/boot_id"

    @property
    def registry_folder(self) -> Path:
        """Where registration sockets go: ``registry``, else the kubelet's ``plugins_registry``."""
        return Path(self.registry or f"{self.kubelet}/plugins_registry")

    @property
    def plugins_folder(self) -> Path:
        """Where each driver has its folder: ``plugins``, else the kubelet's ``plugins``."""
        return Path(self.plugins or f"{self.kubelet}/plugins")

    @property
    def state_folder(self) -> Path:
        """Where the simulated machine keeps its state: ``state``, else ``drasim`` among the plugins."""
        return Path(self.state) if self.state else self.plugins_folder / "drasim"

    @property
    def cdi_folder(self) -> Path:
        """Where CDI specs go."""
        return Path(self.cdi)

    @property
    def boot_id_file(self) -> Path:
        """The file that names this boot of the machine."""
        return Path(self.boot_id)


class GpuConfig(Section, frozen=True, kw_only=True):
    """The GPU driver: what it drives and what it is called."""

    hardware: Literal["simulated", "off"] = "simulated"
    driver: DriverName = "gpu.dra.example.com"


class NicConfig(Section, frozen=True, kw_only=True):
    """The NIC driver: what it drives and what it is called."""

    hardware: Literal["simulated", "off"] = "simulated"
    driver: DriverName = "nic.dra.example.com"


class Simulation(Section, frozen=True, kw_only=True):
    """The simulated machine behind both drivers; ``faults`` is a YAML file of DeviceFaults, read as it changes."""

    profile: _Profile = "dgx"
    faults: OptionalPath = ""


class Probes(Section, frozen=True, kw_only=True):
    """Where /healthz, /readyz and /metrics are served."""

    address: _Address = "0.0.0.0:8080"


class Periods(Section, frozen=True, kw_only=True):
    """How often things are done: ``look`` at the hardware."""

    look: Duration = msgspec.field(default_factory=lambda: Seconds(5))
