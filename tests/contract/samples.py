"""A custom resource for the contract suite: its Kind, how fakes serve it, its definition for a real API server."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dra_plugin.resources import Kind, ObjectMeta, Value
from dra_plugin.testing.cluster import Catalog, Resource

__all__ = ["DEFINITION", "SAMPLE", "Definition", "Sample", "SampleSpec", "SampleStatus", "catalog", "definition"]


class SampleSpec(Value, frozen=True, kw_only=True):
    node: str
    note: str | None = None


class SampleStatus(Value, frozen=True, kw_only=True):
    phase: str | None = None
    devices: tuple[str, ...] | None = None


class Sample(Value, frozen=True, kw_only=True):
    """An object with a spec of the user's and a status of a driver's, as DeviceFault is one."""

    api_version: str = msgspec.field(default_factory=lambda: "contract.dra-plugin.example.com/v1")
    kind: str = msgspec.field(default_factory=lambda: "Sample")
    metadata: ObjectMeta
    spec: SampleSpec
    status: SampleStatus | None = None


class Definition(Value, frozen=True, kw_only=True):
    """A CustomResourceDefinition, as far as it is needed here."""

    metadata: ObjectMeta
    spec: dict[str, Any]


SAMPLE = Kind("contract.dra-plugin.example.com", "v1", "samples", "Sample", False, Sample)
DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, Definition
)


def catalog() -> Catalog:
    """Return what a fake has to serve for the suite."""
    return Catalog(extra=(Resource.custom(SAMPLE, "spec.node"),))


def definition() -> Mapping[str, Any]:
    """Return the CustomResourceDefinition of the sample."""
    text = {"type": "string"}
    properties = {
        "spec": {"type": "object", "required": ["node"], "properties": {"node": text, "note": text}},
        "status": {"type": "object", "properties": {"phase": text, "devices": {"type": "array", "items": text}}},
    }
    version = {
        "name": SAMPLE.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": ".spec.node"}],
        "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": properties}},
    }
    names = {"plural": SAMPLE.plural, "singular": "sample", "kind": SAMPLE.name}
    spec = {"group": SAMPLE.group, "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{SAMPLE.plural}.{SAMPLE.group}"}, "spec": spec}
