"""A claim's parameters: strictly decoded into settings, or a ClaimError that names the key.

The parameters stand in ``spec.devices.config[].opaque.parameters`` of claims and classes; what applies to a device is
given least important first, and a later one overrides an earlier one key by key.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from dra_plugin.errors import ClaimError
from drasim.config.strict import Misfit, decode_strictly
from drasim.hardware import Kind, Setting

__all__ = ["API_VERSION", "settings_for"]

API_VERSION = "dra.example.com/v1alpha1"

_Watts = Annotated[int, msgspec.Meta(ge=100, le=700)]
_Mtu = Annotated[int, msgspec.Meta(ge=1280, le=9216)]
_InterfaceName = Annotated[
    str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,15}\Z", description="1 to 15 characters of a-z, 0-9 and -")
]


class _Parameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What all parameters begin with; None in the others means that a setting is left as it is."""

    api_version: Literal["dra.example.com/v1alpha1"]


class _GpuConfig(_Parameters, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    kind: Literal["GpuConfig"]
    power_limit_watts: _Watts | None = None
    compute_mode: Literal["Default", "ExclusiveProcess"] | None = None


class _NicConfig(_Parameters, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    kind: Literal["NicConfig"]
    mtu: _Mtu | None = None
    interface_name: _InterfaceName | None = None


_TYPE = ("apiVersion", "kind")
_FORMS: Mapping[Kind, type[_Parameters]] = {"gpu": _GpuConfig, "nic": _NicConfig}


def settings_for(kind: Kind, configs: Iterable[Mapping[str, Any]]) -> dict[str, Setting]:
    """Return what a claim sets on a device of that kind, by the parameters' names; what is not given is not in it.

    Raises ClaimError.
    """
    settings: dict[str, Setting] = {}
    for config in configs:
        given = msgspec.to_builtins(_decoded(config, _FORMS[kind]))
        settings |= {key: value for key, value in given.items() if key not in _TYPE and value is not None}
    return settings


def _decoded(parameters: Mapping[str, Any], form: type[_Parameters]) -> _Parameters:
    try:
        return decode_strictly(dict(parameters), form)
    except Misfit as misfit:
        raise ClaimError(f"opaque parameters: {misfit}") from None
