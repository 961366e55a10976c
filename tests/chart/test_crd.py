"""The CustomResourceDefinition of DeviceFaults: valid, and the same as the code says."""

import re
from typing import Any

import msgspec
import pytest

from drasim.faults import DEVICE_FAULT, DeviceFaultSpec, DeviceFaultStatus
from drasim.faults.objects import PHASES
from drasim.faults.wanted import seconds_of
from drasim.hardware.simulated.faults import FAULT_KINDS, ROOT, FaultRefused
from tests.chart.conftest import Render

Json = dict[str, Any]


@pytest.fixture
def crd(render: Render) -> Json:
    """Return the CRD that the chart installs."""
    (found,) = [each for each in render() if each["kind"] == "CustomResourceDefinition"]
    return found


def version(crd: Json) -> Json:
    (found,) = crd["spec"]["versions"]
    return dict(found)


def part(crd: Json, name: str) -> Json:
    return dict(version(crd)["schema"]["openAPIV3Schema"]["properties"][name])


def rules(crd: Json) -> list[Json]:
    return list(part(crd, "spec")["x-kubernetes-validations"])


def rule_about(crd: Json, *words: str) -> Json:
    (found,) = [rule for rule in rules(crd) if all(word in rule["rule"] for word in words)]
    return found


def listed(text: str) -> set[str]:
    return set(re.findall(r"'([a-z-]+)'", re.search(r"in \[(.*?)\]", text, re.DOTALL)[1]))  # type: ignore[index]  # it is there


def test_names_are_the_kinds(crd: Json) -> None:
    """Group, version and names are those by which the driver asks for it; cluster-scoped, with a short name."""
    spec = crd["spec"]
    assert (spec["group"], version(crd)["name"], spec["scope"]) == (DEVICE_FAULT.group, DEVICE_FAULT.version, "Cluster")
    assert spec["names"] == {
        "kind": DEVICE_FAULT.name,
        "listKind": "DeviceFaultList",
        "plural": DEVICE_FAULT.plural,
        "singular": "devicefault",
        "shortNames": ["dfault"],
    }
    assert crd["metadata"]["name"] == f"{DEVICE_FAULT.plural}.{DEVICE_FAULT.group}"
    assert (version(crd)["served"], version(crd)["storage"]) == (True, True)


def test_it_stays_at_uninstall(crd: Json) -> None:
    """A template, so that upgrades reach it; kept, since all DeviceFaults would go with it."""
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_a_node_selects_its_own_and_writes_the_status(crd: Json) -> None:
    """The field selector that each node watches with, and the subresource."""
    assert version(crd)["selectableFields"] == [{"jsonPath": ".spec.node"}]
    assert version(crd)["subresources"] == {"status": {}}


def test_columns(crd: Json) -> None:
    """What `kubectl get dfault` shows; the reason with -o wide."""
    columns = {column["name"]: column for column in version(crd)["additionalPrinterColumns"]}
    assert list(columns) == ["Node", "Device", "Kind", "Code", "Phase", "Age", "Reason"]
    assert [name for name, column in columns.items() if column.get("priority")] == ["Reason"]
    assert columns["Age"] == {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


@pytest.mark.parametrize(("name", "struct"), [("spec", DeviceFaultSpec), ("status", DeviceFaultStatus)])
def test_fields_are_the_structs(crd: Json, name: str, struct: type[msgspec.Struct]) -> None:
    """The schema has the fields that the code has, by the same names, and needs the same of them."""
    fields = msgspec.structs.fields(struct)
    found = part(crd, name)
    assert set(found["properties"]) == {field.encode_name for field in fields}
    assert set(found.get("required", ())) == {field.encode_name for field in fields if field.required}


def test_kinds_and_phases_are_the_codes(crd: Json) -> None:
    """The enums are the tables of the code, in their order."""
    assert part(crd, "spec")["properties"]["kind"]["enum"] == list(FAULT_KINDS)
    assert part(crd, "status")["properties"]["phase"]["enum"] == list(PHASES)


def test_rules_know_which_devices_a_kind_befalls(crd: Json) -> None:
    """Kinds for GPUs only and for NICs only are refused for the other ones; the message lists what is allowed there."""
    for kind, other, allowed in (("gpu", "== 'nic'", "nic"), ("nic", "== 'gpu'", "gpu")):
        rule = rule_about(crd, other)
        assert listed(rule["rule"]) == {name for name, each in FAULT_KINDS.items() if each.devices == (kind,)}
        names = {name for name, each in FAULT_KINDS.items() if allowed in each.devices and not each.root}
        assert set(rule["message"].partition(": ")[2].split(", ")) == names


def test_rules_know_the_codes(crd: Json) -> None:
    """Each form of code in the rules is the code's, and kinds without a code take none."""
    seconds = {name for name, each in FAULT_KINDS.items() if each.code and each.code.seconds}
    rule = rule_about(crd, "'link-flap'", "self.code.matches")["rule"]
    assert listed(rule) == seconds
    (form,) = {each.code.form for each in FAULT_KINDS.values() if each.code and each.code.seconds}
    assert rule.endswith(time_in("self.code", form, "1ms"))
    xid = FAULT_KINDS["xid"].code
    assert xid is not None
    assert quoted(rule_about(crd, "self.kind != 'xid'")["rule"]) == [xid.form]
    coded = {name for name, each in FAULT_KINDS.items() if each.code}
    assert listed(rule_about(crd, "!has(self.code)", "'xid',")["rule"]) == coded


def test_times_are_the_codes(crd: Json) -> None:
    """What the driver would refuse as a time, the server refuses when the object is created, and says what it takes."""
    (form,) = {each.code.form for each in FAULT_KINDS.values() if each.code and each.code.seconds}
    for field, least in (("after", "0s"), ("duration", "1ms")):
        (rule,) = part(crd, "spec")["properties"][field]["x-kubernetes-validations"]
        assert rule["rule"] == time_in("self", form, least)
        with pytest.raises(FaultRefused) as caught:
            seconds_of(field, "soon")
        assert rule["message"] == caught.value.problem.partition("; ")[2]


def test_the_kinds_are_described(crd: Json) -> None:
    """`kubectl explain` shows only the first ones of an enum: the description has all, by what they befall."""
    text = part(crd, "spec")["properties"]["kind"]["description"]
    for title, devices in (("For GPUs", ("gpu",)), ("for NICs", ("nic",)), ("for both", ("gpu", "nic"))):
        (found,) = re.findall(f"{title}: ([^;]+);", text)
        names = {name for name, each in FAULT_KINDS.items() if each.devices == devices and not each.root}
        assert set(found.split(", ")) == names
    assert text.endswith("below it: down.")


def time_in(text: str, form: str, least: str) -> str:
    """Return the CEL that says whether a text is a time from ``least`` to 24h."""
    value = f"duration({text}.matches('[0-9]$') ? {text} + 's' : {text})"
    return f"{text}.matches('{form}') && {value} >= duration('{least}') && {value} <= duration('24h')"


def quoted(rule: str) -> list[str]:
    return re.findall(r"matches\('(.*?)'\)", rule)


def test_rules_know_the_roots(crd: Json) -> None:
    """Only `down` is done to a PCIe root, whose name is checked in the form that the code knows."""
    assert quoted(rule_about(crd, "self.kind != 'down'")["rule"]) == [f"^{ROOT.pattern}$"]
    assert [name for name, each in FAULT_KINDS.items() if each.root] == ["down"]


def test_one_of_device_and_all(crd: Json) -> None:
    """Exactly one, and the node never changes."""
    assert rules(crd)[0]["rule"] == "has(self.device) != has(self.all)"
    assert part(crd, "spec")["properties"]["node"]["x-kubernetes-validations"][0]["rule"] == "self == oldSelf"


def test_every_text_is_bounded(crd: Json) -> None:
    """The server estimates what the rules cost from the longest texts and lists: without bounds it refuses the CRD."""
    for name in ("spec", "status"):
        for field in part(crd, name)["properties"].values():
            assert field["type"] != "string" or field.keys() & {"maxLength", "enum", "format"}
            assert field["type"] != "array" or ("maxItems" in field and "maxLength" in field["items"])


def test_messages_fit_and_are_one_line(crd: Json) -> None:
    """A message has at most 2048 characters and no line breaks; each field that it is about exists."""
    fields = part(crd, "spec")["properties"]
    for rule in rules(crd):
        assert len(rule["message"]) <= 2048
        assert "\n" not in rule["message"].strip()
        assert rule.get("fieldPath", ".node")[1:] in fields
