"""planning: what a claim means, given what is there and what is held."""

from pathlib import Path

import pytest

from dra_plugin.checkpoint import Checkpoint, Held, Record
from dra_plugin.errors import ClaimError
from drasim.planning import plan_claim
from tests.driver.builders import claim, gpu_config, inventory, record, result


def held_by(folder: Path, *records: Record) -> Held:
    """Return what a checkpoint holds after these records were written."""
    checkpoint = Checkpoint(folder)
    checkpoint.load(fresh=True)
    for each in records:
        checkpoint.write(each)
    return checkpoint.load(fresh=True)


def test_a_whole_device_needs_no_settings() -> None:
    """A claim without parameters gets its devices as they are, in the allocation's order."""
    plan = plan_claim(claim("a", result("gpu-2", "one"), result("gpu-0", "two")), inventory(), Held())
    assert [(device.published.name, device.requests, device.settings) for device in plan] == [
        ("gpu-2", ("one",), {}),
        ("gpu-0", ("two",), {}),
    ]


def test_a_device_for_two_requests_is_planned_once() -> None:
    """Two results of one device are one device that serves both requests."""
    (device,) = plan_claim(claim("a", result("gpu-0", "one"), result("gpu-0", "two")), inventory(), Held())
    assert device.requests == ("one", "two")


def test_parameters_hold_for_the_requests_they_name() -> None:
    """Only the devices of the named requests get settings, and only the settings that were given."""
    config = (gpu_config(("one",), powerLimitWatts=300),)
    plan = plan_claim(claim("a", result("gpu-0", "one"), result("gpu-1", "two"), config=config), inventory(), Held())
    assert [device.settings for device in plan] == [{"powerLimitWatts": 300}, {}]


def test_the_last_parameters_win_key_by_key() -> None:
    """A later configuration overrides an earlier one in the keys that it has."""
    config = (gpu_config(powerLimitWatts=300, computeMode="Default"), gpu_config(powerLimitWatts=400))
    (device,) = plan_claim(claim("a", result("gpu-0"), config=config), inventory(), Held())
    assert device.settings == {"powerLimitWatts": 400, "computeMode": "Default"}


def test_a_misspelt_parameter_is_named() -> None:
    """An unknown key fails the claim, and the error says which."""
    with pytest.raises(ClaimError, match="powerLimitWats"):
        plan_claim(claim("a", result("gpu-0"), config=(gpu_config(powerLimitWats=300),)), inventory(), Held())


def test_a_device_that_is_gone_is_named() -> None:
    """An allocated device that this node does not have any more fails the claim, and the error says so."""
    with pytest.raises(ClaimError, match="gpu-9 of pool node-a-gpu is gone from this node: it was unplugged"):
        plan_claim(claim("a", result("gpu-9")), inventory(), Held())


def test_a_pool_of_another_node_is_refused() -> None:
    """Only devices of this node's pool are prepared."""
    with pytest.raises(ClaimError, match="pool node-b-gpu is not of this node"):
        plan_claim(claim("a", result("gpu-0", pool="node-b-gpu")), inventory(), Held())


def test_the_holder_is_named(tmp_path: Path) -> None:
    """A device that another claim holds is refused with that claim's namespace and name."""
    held = held_by(tmp_path, record("b", "gpu-0"))
    with pytest.raises(ClaimError, match="gpu-0 is in use by claim default/claim-b"):
        plan_claim(claim("a", result("gpu-0")), inventory(), held)


def test_a_claim_does_not_block_itself(tmp_path: Path) -> None:
    """A claim that holds the device already may have it."""
    assert plan_claim(claim("a", result("gpu-0")), inventory(), held_by(tmp_path, record("a", "gpu-0")))


def test_admin_access_neither_blocks_nor_is_blocked(tmp_path: Path) -> None:
    """Admin access goes beside the holder, in both orders."""
    held = held_by(tmp_path, record("b", "gpu-0"), record("c", "gpu-1", admin_access=True))
    assert plan_claim(claim("a", result("gpu-0", admin_access=True), result("gpu-1")), inventory(), held)


def test_admin_access_changes_nothing() -> None:
    """Parameters for a device that is only looked at are refused."""
    asked = claim("a", result("gpu-0", admin_access=True), config=(gpu_config(powerLimitWatts=300),))
    with pytest.raises(ClaimError, match="admin access cannot change settings"):
        plan_claim(asked, inventory(), Held())


def test_shares_of_one_device_go_together(tmp_path: Path) -> None:
    """A share leaves room for another share, and not for the whole device."""
    held = held_by(tmp_path, record("b", "gpu-0", share_id="share-1"))
    assert plan_claim(claim("a", result("gpu-0", share_id="share-2")), inventory(), held)
    with pytest.raises(ClaimError, match="claim-b"):
        plan_claim(claim("a", result("gpu-0")), inventory(), held)


def test_a_damaged_record_closes_free_devices() -> None:
    """Nobody knows what a damaged record holds: new claims are refused, and told how to settle it."""
    held = Held(damaged={"b": "checksum does not match"})
    with pytest.raises(ClaimError, match=r"record of claim b is damaged .*drasim release b"):
        plan_claim(claim("a", result("gpu-0")), inventory(), held)


def test_a_damaged_record_leaves_known_claims_alone(tmp_path: Path) -> None:
    """A claim with a record of its own, or whose own record is the damaged one, is prepared."""
    known = held_by(tmp_path, record("a", "gpu-0"))
    assert plan_claim(claim("a", result("gpu-0")), inventory(), Held(known.records, {"b": "?"}, known.by_device))
    assert plan_claim(claim("b", result("gpu-1")), inventory(), Held(known.records, {"b": "?"}, known.by_device))
