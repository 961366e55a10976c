"""The wire contract: what the kubelet calls, field by field, as the generated code has it."""

from types import ModuleType

import pytest
from google.protobuf.descriptor import FieldDescriptor, FileDescriptor
from google.protobuf.message import Message

from dra_plugin._proto import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    pluginregistration_v1_pb2,
)

DRA_METHODS = {
    "NodePrepareResources": ("NodePrepareResourcesRequest", "NodePrepareResourcesResponse", False),
    "NodeUnprepareResources": ("NodeUnprepareResourcesRequest", "NodeUnprepareResourcesResponse", False),
}
HEALTH_METHODS = {"NodeWatchResources": ("NodeWatchResourcesRequest", "NodeWatchResourcesResponse", True)}
REGISTRATION_METHODS = {
    "GetInfo": ("InfoRequest", "PluginInfo", False),
    "NotifyRegistrationStatus": ("RegistrationStatus", "RegistrationStatusResponse", False),
}
SERVICES = [
    (dra_v1_pb2, "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", DRA_METHODS),
    (dra_v1beta1_pb2, "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", DRA_METHODS),
    (dra_health_v1_pb2, "v1.DRAResourceHealth", HEALTH_METHODS),
    (dra_health_v1alpha1_pb2, "v1alpha1.DRAResourceHealth", HEALTH_METHODS),
    (pluginregistration_v1_pb2, "pluginregistration.Registration", REGISTRATION_METHODS),
]

V1BETA1_DEVICE = {
    "request_names": (1, "string*"),
    "pool_name": (2, "string"),
    "device_name": (3, "string"),
    "cdi_device_ids": (4, "string*"),
}
V1_DEVICE = V1BETA1_DEVICE | {"share_id": (5, "string?")}
DRA = {
    "NodePrepareResourcesRequest": {"claims": (1, "Claim*")},
    "NodePrepareResourcesResponse": {"claims": (1, "{string: NodePrepareResourceResponse}")},
    "NodePrepareResourceResponse": {"devices": (1, "Device*"), "error": (2, "string")},
    "NodeUnprepareResourcesRequest": {"claims": (1, "Claim*")},
    "NodeUnprepareResourcesResponse": {"claims": (1, "{string: NodeUnprepareResourceResponse}")},
    "NodeUnprepareResourceResponse": {"error": (1, "string")},
    "Claim": {"namespace": (1, "string"), "uid": (2, "string"), "name": (3, "string")},
}
HEALTH = {
    "NodeWatchResourcesRequest": {},
    "NodeWatchResourcesResponse": {"devices": (1, "DeviceHealth*")},
    "DeviceHealth": {
        "device": (1, "DeviceIdentifier"),
        "health": (2, "HealthStatus"),
        "last_updated_time": (3, "int64"),
        "health_check_timeout_seconds": (4, "int64"),
        "message": (5, "string"),
    },
    "DeviceIdentifier": {"pool_name": (1, "string"), "device_name": (2, "string")},
}
REGISTRATION = {
    "InfoRequest": {},
    "PluginInfo": {
        "type": (1, "string"),
        "name": (2, "string"),
        "endpoint": (3, "string"),
        "supported_versions": (4, "string*"),
    },
    "RegistrationStatus": {"plugin_registered": (1, "bool"), "error": (2, "string")},
    "RegistrationStatusResponse": {},
}
MESSAGES = [
    (dra_v1_pb2, DRA | {"Device": V1_DEVICE}),
    (dra_v1beta1_pb2, DRA | {"Device": V1BETA1_DEVICE}),
    (dra_health_v1_pb2, HEALTH),
    (dra_health_v1alpha1_pb2, HEALTH),
    (pluginregistration_v1_pb2, REGISTRATION),
]
SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_INT64: "int64",
}


def kind(field: FieldDescriptor) -> str:
    """Return a field's type as the tables above write it: `*` repeated, `?` optional, `{key: value}` map."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (kind(part) for part in field.message_type.fields)
        return f"{{{key}: {value}}}"
    named = field.message_type or field.enum_type
    base = SCALARS[field.type] if named is None else named.name
    optional = field.containing_oneof is not None
    return base + "*" * field.is_repeated + "?" * optional


def services(file: FileDescriptor) -> dict[str, dict[str, tuple[str, str, bool]]]:
    """Return each service of a file by its full name, with input, output and server streaming of its methods."""
    return {
        service.full_name: {
            method.name: (method.input_type.name, method.output_type.name, method.server_streaming)
            for method in service.methods
        }
        for service in file.services_by_name.values()
    }


@pytest.mark.parametrize(("module", "service", "methods"), SERVICES)
def test_services_have_the_names_the_kubelet_calls(
    module: ModuleType, service: str, methods: dict[str, tuple[str, str, bool]]
) -> None:
    """The package line and method names make up the path on the wire."""
    assert services(module.DESCRIPTOR) == {service: methods}


@pytest.mark.parametrize(("module", "messages"), MESSAGES)
def test_messages_have_the_kubelets_fields(module: ModuleType, messages: dict[str, dict[str, tuple[int, str]]]) -> None:
    """Every message has exactly the field names, numbers and types of the kubelet's API."""
    found = module.DESCRIPTOR.message_types_by_name
    assert {
        name: {field.name: (field.number, kind(field)) for field in message.fields} for name, message in found.items()
    } == messages


@pytest.mark.parametrize("module", [dra_health_v1_pb2, dra_health_v1alpha1_pb2])
def test_health_values(module: ModuleType) -> None:
    """The enum's values have no prefix and the kubelet's numbers."""
    assert module.HealthStatus.items() == [("UNKNOWN", 0), ("HEALTHY", 1), ("UNHEALTHY", 2)]


def test_share_id_has_presence() -> None:
    """An absent share id differs from an empty one, on the wire too."""
    absent, empty = dra_v1_pb2.Device(), dra_v1_pb2.Device(share_id="")
    assert (absent.HasField("share_id"), empty.HasField("share_id")) == (False, True)
    assert (absent.SerializeToString(), empty.SerializeToString()) == (b"", b"\x2a\x00")


def test_v1beta1_passes_over_a_share_id() -> None:
    """An older reader takes the same bytes and leaves the share id unread."""
    device: Message = dra_v1beta1_pb2.Device()
    device.ParseFromString(dra_v1_pb2.Device(device_name="gpu-0", share_id="x").SerializeToString())
    assert [field.name for field, _ in device.ListFields()] == ["device_name"]


def test_file_names_are_unique_in_the_pool() -> None:
    """Each file is registered under a path of this package, so that no other api.proto can clash with it."""
    names = [module.DESCRIPTOR.name for module, _ in MESSAGES]
    assert all(name.startswith("dra_plugin/_proto/") for name in names)
    assert len(set(names)) == len(names)
