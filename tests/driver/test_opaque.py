"""Claim parameters: strict, later ones win key by key."""

from typing import Any

import pytest

from dra_plugin.errors import ClaimError
from drasim.opaque import API_VERSION, settings_for


def gpu(**keys: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {"apiVersion": API_VERSION, "kind": "GpuConfig", **keys}


def nic(**keys: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {"apiVersion": API_VERSION, "kind": "NicConfig", **keys}


def test_a_later_configuration_overrides_key_by_key() -> None:
    """What a later configuration does not mention, or gives as null, stays as the earlier one said."""
    first, second = gpu(powerLimitWatts=300, computeMode="ExclusiveProcess"), gpu(powerLimitWatts=400, computeMode=None)
    assert settings_for("gpu", [first, second]) == {"powerLimitWatts": 400, "computeMode": "ExclusiveProcess"}


def test_no_parameters_are_no_settings() -> None:
    """Without parameters nothing is set; a configuration that only says its kind sets nothing either."""
    assert settings_for("gpu", []) == settings_for("nic", [nic()]) == {}


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        (gpu(powerLimitWats=300), 'powerLimitWats: unknown key (did you mean "powerLimitWatts"?)'),
        (gpu(powerLimitWats=300), "allowed: apiVersion, kind, powerLimitWatts, computeMode"),
        (gpu(powerLimitWatts=99), "powerLimitWatts: 99 is not allowed; allowed: a whole number from 100 to 700"),
        (gpu(powerLimitWatts="300"), 'powerLimitWatts: "300" is not allowed'),
        (gpu(powerLimitWatts=300.5), "powerLimitWatts: 300.5 is not allowed"),
        (gpu(computeMode="Shared"), "computeMode: "),
        (nic(mtu=1500), 'kind: "NicConfig" is not allowed'),
        ({"kind": "GpuConfig"}, "apiVersion: missing; needed: dra.example.com/v1alpha1"),
        (gpu() | {"apiVersion": "dra.example.com/v2"}, "allowed: dra.example.com/v1alpha1"),
        ({}, "missing"),
    ],
)
def test_gpu_parameters_that_do_not_fit_name_the_key(parameters: dict[str, Any], says: str) -> None:
    """A misspelt key, a wrong type, a value out of range and another kind are refused with what is allowed."""
    with pytest.raises(ClaimError) as caught:
        settings_for("gpu", [gpu(), parameters])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "keys", [{"mtu": 1279}, {"mtu": 9217}, {"interfaceName": "A"}, {"interfaceName": "a" * 16}, {"interfaceName": ""}]
)
def test_nic_parameters_have_limits(keys: dict[str, Any]) -> None:
    """MTU and interface name are held to what the kernel takes."""
    with pytest.raises(ClaimError, match=next(iter(keys))):
        settings_for("nic", [nic(**keys)])


@pytest.mark.parametrize("name", ["eth0\n", "a/b", "..", "a b"])
def test_an_interface_name_has_no_odd_characters(name: str) -> None:
    """No line end, slash or blank gets into an interface name."""
    with pytest.raises(ClaimError, match="interfaceName"):
        settings_for("nic", [nic(interfaceName=name)])
