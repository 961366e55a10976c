"""A claim's parameters: strictly decoded into typed settings, or a ClaimError that names the key.

The parameters stand in ``spec.devices.config[].opaque.parameters`` of claims and classes; what applies to a device is
given least important first, and a later one overrides an earlier one key by key.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from dra_plugin.errors import ClaimError
from drasim.config.strict import Misfit, decode_strictly
from drasim.hardware import Kind, Setting, Step

__all__ = ["API_VERSION", "GpuSettings", "NicSettings", "gpu_settings", "nic_settings", "settings_for", "step_for"]

API_VERSION = "dra.example.com/v1alpha1"

_Watts = Annotated[int, msgspec.Meta(ge=100, le=700)]
_Mtu = Annotated[int, msgspec.Meta(ge=1280, le=9216)]
_InterfaceName = Annotated[
    str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,15}\Z", description="1 to 15 characters of a-z, 0-9 and -")
]


class GpuSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a claim sets on a GPU; None is left as it is."""

    power_limit_watts: int | None = None
    compute_mode: Literal["Default", "ExclusiveProcess"] | None = None


class NicSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a claim sets on a NIC; None is left as it is."""

    mtu: int | None = None
    interface_name: str | None = None


class _Parameters(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    api_version: Literal["dra.example.com/v1alpha1"]


class _GpuConfig(
    _Parameters, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    kind: Literal["GpuConfig"]
    power_limit_watts: _Watts | None = None
    compute_mode: Literal["Default", "ExclusiveProcess"] | None = None


class _NicConfig(
    _Parameters, frozen=True, kw_only=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    kind: Literal["NicConfig"]
    mtu: _Mtu | None = None
    interface_name: _InterfaceName | None = None


S = TypeVar("S", GpuSettings, NicSettings)


def settings_for(kind: Kind, configs: Iterable[Mapping[str, Any]]) -> GpuSettings | NicSettings:
    """Return the settings for a device of that kind. Raises ClaimError."""
    return gpu_settings(configs) if kind == "gpu" else nic_settings(configs)


def gpu_settings(configs: Iterable[Mapping[str, Any]]) -> GpuSettings:
    """Return the settings that the parameters of kind GpuConfig add up to. Raises ClaimError."""
    return _merged(configs, _GpuConfig, GpuSettings)


def nic_settings(configs: Iterable[Mapping[str, Any]]) -> NicSettings:
    """Return the settings that the parameters of kind NicConfig add up to. Raises ClaimError."""
    return _merged(configs, _NicConfig, NicSettings)


def step_for(device: str, settings: GpuSettings | NicSettings) -> Step | None:
    """Return the step that makes the settings hold on the device of that hardware identity; None for no settings."""
    given: dict[str, Setting] = msgspec.to_builtins(settings)
    return Step(device=device, settings=given) if given else None


def _merged(configs: Iterable[Mapping[str, Any]], form: type[_Parameters], into: type[S]) -> S:
    merged: dict[str, Any] = {}
    for config in configs:
        merged |= {
            key: value for key, value in msgspec.to_builtins(_decoded(config, form)).items() if value is not None
        }
    return msgspec.convert(merged, into)


def _decoded(parameters: Mapping[str, Any], form: type[_Parameters]) -> _Parameters:
    try:
        return decode_strictly(dict(parameters), form)
    except Misfit as misfit:
        raise ClaimError(f"opaque parameters: {misfit}") from None
