"""Claims reduced to one driver, and which configuration applies to which device."""

import json
from typing import Any

from dra_plugin.claims import Claim, ClaimRef, ResourceClaim, config_for, main_request
from dra_plugin.resources import decode


def config(value: int, *, source: str = "FromClaim", requests: list[str] | None = None, driver: str = "gpu") -> Any:  # noqa: ANN401 - JSON
    return {"source": source, "requests": requests, "opaque": {"driver": driver, "parameters": {"value": value}}}


def claim(configs: list[Any], requests: list[str], *, annotations: dict[str, str] | None = None) -> ResourceClaim:
    results = [
        {
            "request": request,
            "driver": driver,
            "pool": "node-a",
            "device": f"{driver}-{n}",
            "shareID": "s" if n else None,
        }
        for n, request in enumerate(requests)
        for driver in ("gpu", "nic")
    ]
    meta = {"namespace": "ns", "name": "c", "uid": "u", "annotations": annotations}
    status = {"allocation": {"devices": {"results": results, "config": configs}}}
    return decode(json.dumps({"metadata": meta, "status": status}).encode(), ResourceClaim)


def values(got: Claim, position: int = 0) -> list[int]:
    return [parameters["value"] for parameters in config_for(got, got.results[position])]


def test_only_what_belongs_to_the_driver_is_kept() -> None:
    """Devices and configurations of other drivers are left out; share IDs are kept."""
    got = Claim.for_driver(claim([config(1), config(2, driver="nic")], ["a", "b"]), "gpu")
    assert got.ref == ClaimRef("ns", "c", "u")
    assert str(got.ref) == "ns/c"
    assert [(result.device, result.share_id) for result in got.results] == [("gpu-0", None), ("gpu-1", "s")]
    assert values(got) == [1]


def test_the_class_comes_first_and_later_entries_win() -> None:
    """Parameters are ordered from the least important to the most important."""
    configs = [config(1), config(2, source="FromClass"), config(3), config(4, source="FromClass")]
    assert values(Claim.for_driver(claim(configs, ["a"]), "gpu")) == [2, 4, 1, 3]


def test_configurations_apply_to_their_requests() -> None:
    """No requests means all; the main request includes its alternatives, an alternative only itself."""
    configs = [config(1), config(2, requests=["a"]), config(3, requests=["a/x"]), config(4, requests=["a/y", "b"])]
    got = Claim.for_driver(claim(configs, ["a/x", "b"]), "gpu")
    assert (values(got), values(got, 1)) == ([1, 2, 3], [1, 4])


def test_a_claim_without_allocation_has_no_devices() -> None:
    """An unallocated claim reduces to nothing, whatever of the status is missing."""
    empty: list[dict[str, Any]] = [{}, {"status": None}, {"status": {}}]
    for status in [*empty, {"status": {"allocation": {"devices": {"results": None}}}}]:
        raw = {"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, **status}
        got = Claim.for_driver(decode(json.dumps(raw).encode(), ResourceClaim), "gpu")
        assert (got.results, got.config, got.pod_claim_name) == ((), (), None)


def test_the_name_in_the_pod_is_known_for_claims_from_templates() -> None:
    """The annotation of the claim controller tells the name in the Pod's spec."""
    made = claim([], ["a"], annotations={"resource.kubernetes.io/pod-claim-name": "gpu"})
    assert Claim.for_driver(made, "gpu").pod_claim_name == "gpu"


def test_the_main_request_is_what_stands_before_the_slash() -> None:
    """The kubelet knows main requests only."""
    assert [main_request(each) for each in ("a", "a/b")] == ["a", "a"]
