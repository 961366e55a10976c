"""Config: read once, strict, frozen, printable; one schema for the file, the flags and the chart. The YAML door.

Keys are camel case; the chart's value ``config`` is this very object. A flag overrides the file. Nothing here reads
the environment.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from dra_plugin.errors import PluginError
from drasim.config.controller import ControllerConfig, check_policy
from drasim.config.problems import ProblemsConfig
from drasim.config.sections import (
    Duration,
    GpuConfig,
    LogConfig,
    NicConfig,
    NodeName,
    OptionalPath,
    Paths,
    Periods,
    Probes,
    Section,
    Simulation,
    Uid,
)
from drasim.config.strict import Misfit, Seconds, decode_strictly

__all__ = [
    "Config",
    "ConfigError",
    "ControllerConfig",
    "GpuConfig",
    "LogConfig",
    "NicConfig",
    "Paths",
    "Periods",
    "Probes",
    "ProblemsConfig",
    "Seconds",
    "Simulation",
    "decode_file",
    "dump_yaml",
    "for_controller",
    "for_node",
    "load",
    "load_yaml",
    "load_yaml_documents",
    "schema",
    "show",
]

T = TypeVar("T")

_LAST_PORT = 65_535


class ConfigError(PluginError):
    """What the user wrote cannot be used: the file (or ``flags``), the key, the value and what is allowed."""

    def __init__(self, file: str, key: str, problem: str) -> None:
        """Keep the parts; ``key`` is empty when the whole file is meant."""
        super().__init__(f"{file}: {key}: {problem}" if key else f"{file}: {problem}")
        self.file = file
        self.key = key
        self.problem = problem


class Config(Section, frozen=True, kw_only=True, rename={"node_name": "nodeName", "pod_uid": "podUID"}):
    """The whole configuration. ``kubeconfig`` empty means in the cluster; ``drain`` is the time to finish calls."""

    node_name: NodeName = ""
    pod_uid: Uid = ""
    kubeconfig: OptionalPath = ""
    log: LogConfig = LogConfig()
    paths: Paths = Paths()
    gpu: GpuConfig = GpuConfig()
    nic: NicConfig = NicConfig()
    simulation: Simulation = Simulation()
    probes: Probes = Probes()
    problems: ProblemsConfig = msgspec.field(default_factory=ProblemsConfig)
    controller: ControllerConfig = msgspec.field(default_factory=ControllerConfig)
    periods: Periods = msgspec.field(default_factory=Periods)
    drain: Duration = msgspec.field(default_factory=lambda: Seconds(20))


def load(file: Path | None = None, flags: Mapping[str, str] | None = None) -> Config:
    """Return the configuration of ``file`` (None: all defaults), overridden by ``flags``.

    A flag is a dotted key (``gpu.driver``) and its value as text. Raises ConfigError.
    """
    config = decode_file(file, Config) if file else Config()
    source = str(file or "flags")
    if flags:
        config = _overlaid(config, flags, source="flags")
        source = "flags" if file is None else f"{file} and flags"
    return _coherent(config, source)


def for_node(config: Config) -> Config:
    """Return ``config`` if it is enough to serve a node, else raise ConfigError."""
    if not config.node_name:
        raise ConfigError("flags", "nodeName", "missing; needed: the name of this Node, as in NODE_NAME")
    if config.gpu.hardware == config.nic.hardware == "off":
        raise ConfigError("config", "gpu.hardware", '"off" for both drivers leaves nothing to do; allowed: simulated')
    return config


def for_controller(config: Config) -> Config:
    """Return ``config`` if `drasim controller` can do what it says, else raise ConfigError."""
    sections: dict[Literal["gpu", "nic"], GpuConfig | NicConfig] = {"gpu": config.gpu, "nic": config.nic}
    drivers = {section.driver: kind for kind, section in sections.items() if section.hardware != "off"}
    if not config.controller.namespace:
        needed = "missing; needed: the namespace of its Lease and its ConfigMap"
        raise ConfigError("config", "controller.namespace", needed)
    try:
        check_policy(config.controller, config.problems, drivers)
    except Misfit as misfit:
        raise ConfigError("config", misfit.key, misfit.problem) from None
    return config


def show(config: msgspec.Struct) -> dict[str, Any]:
    """Return the configuration (or a part of it) as plain values under the keys of the file, for logs and YAML."""
    shown: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    return shown


def schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of the file, which is that of the chart's ``config`` as well."""
    import json

    described = msgspec.json.schema(Config, schema_hook=_schema_of)
    for part in (Config(), Periods()):
        properties = described["$defs"][type(part).__name__]["properties"]
        for key, value in show(part).items():
            properties[key].setdefault("default", value)
    plain: dict[str, Any] = json.loads(json.dumps(described).replace(r"\\Z", "$"))  # \Z is Python's only
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "drasim configuration", **plain}


def decode_file(file: Path, into: type[T]) -> T:
    """Return a YAML file as ``into``, strictly decoded. Raises ConfigError that names the file and the key."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(file), "", f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        return decode_strictly(load_yaml(text, str(file)), into)
    except Misfit as misfit:
        raise ConfigError(str(file), misfit.key, misfit.problem + _hint(misfit)) from None


def load_yaml(text: str, file: str) -> dict[str, Any]:
    """Return the mapping that the YAML text is; empty text is an empty one. Raises ConfigError naming ``file``.

    Booleans are ``true`` and ``false`` only (YAML 1.2: ``off`` is text), and a key given twice is an error.
    """
    import yaml

    with _translated(file):
        document = yaml.load(text, Loader=_loader())  # noqa: S506 - derived from the safe loader
    return _mapping(document, file)


def load_yaml_documents(text: str, file: str) -> list[dict[str, Any]]:
    """Return the mappings that the documents of the YAML text are, without empty ones; else as ``load_yaml``."""
    import yaml

    with _translated(file):
        documents = list(yaml.load_all(text, Loader=_loader()))
    return [_mapping(document, file) for document in documents if document is not None]


def dump_yaml(documents: Iterable[object]) -> str:
    """Return plain values (mappings, lists, scalars) as YAML documents, keys in the order given."""
    import yaml

    return yaml.safe_dump_all(documents, sort_keys=False, default_flow_style=False, width=110)


@contextmanager
def _translated(file: str) -> Iterator[None]:
    """Raise as ConfigError what the YAML library finds wrong with a text."""
    import yaml

    try:
        yield
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        # a ValueError for a date such as 2026-13-45, others for texts that are tagged as what they are not
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())  # PyYAML's may have several lines
        raise ConfigError(file, "", place + problem) from None


def _mapping(document: object, file: str) -> dict[str, Any]:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(file, "", f"not a mapping of keys but {type(document).__name__}")
    return document


def _loader() -> type[Any]:
    import yaml

    fast: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    boolean = "tag:yaml.org,2002:bool"
    resolvers = {
        first: [(tag, form) for tag, form in forms if tag != boolean]
        for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    hooks = {"construct_mapping": _construct_mapping, "construct_object": _construct_object}
    loader = type("_Loader", (fast,), {"yaml_implicit_resolvers": resolvers, **hooks})
    loader.add_implicit_resolver(boolean, re.compile("^(?:true|false)$"), ["t", "f"])  # type: ignore[attr-defined] # made by type()
    return loader


def _construct_object(loader: Any, node: Any, deep: bool = True) -> object:  # noqa: ANN401, ARG001, FBT001, FBT002 - PyYAML's hook
    import yaml

    return yaml.SafeLoader.construct_object(loader, node, True)  # noqa: FBT003 - refuses what contains itself


def _construct_mapping(loader: Any, node: Any, deep: bool = False) -> dict[Hashable, Any]:  # noqa: ANN401, FBT001, FBT002 - PyYAML's hook
    import yaml

    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue  # the loader refuses it
        if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
            raise yaml.constructor.ConstructorError(None, None, f'key "{key.value}" is given twice', key.start_mark)
        seen.add(key.value)
    mapping: dict[Hashable, Any] = yaml.SafeLoader.construct_mapping(loader, node, deep)
    return mapping


S = TypeVar("S", bound=Section)


def _overlaid(config: Config, flags: Mapping[str, str], source: str) -> Config:
    """Decode the flags alone, so that errors name the flag, then lay them over what the file said."""
    given = _nested(flags, source)
    try:
        decoded = decode_strictly(given, Config, texts=True)
    except Misfit as misfit:
        raise ConfigError(source, misfit.key, misfit.problem + _hint(misfit)) from None
    return _merged(config, decoded, given)


def _nested(flags: Mapping[str, str], source: str) -> dict[str, Any]:
    """Return dotted keys as mappings of mappings."""
    nested: dict[str, Any] = {}
    for dotted, text in flags.items():
        *sections, key = dotted.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError(source, dotted, f'"{section}" was given a value of its own; allowed: one of both')
        place[key] = text
    return nested


def _merged(config: S, decoded: S, given: Mapping[str, Any]) -> S:
    """Return ``config`` with what was ``given`` taken from ``decoded``."""
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(config):
        if field.encode_name in given:
            old, new, inner = getattr(config, field.name), getattr(decoded, field.name), given[field.encode_name]
            changes[field.name] = _merged(old, new, inner) if isinstance(old, Section) else new
    return msgspec.structs.replace(config, **changes)


def _coherent(config: Config, source: str) -> Config:
    if config.gpu.driver == config.nic.driver:
        raise ConfigError(
            source, "nic.driver", f'"{config.nic.driver}" is the GPU driver\'s name; allowed: another one'
        )
    address = config.probes.address
    if address and not 0 < int(address.rpartition(":")[2]) <= _LAST_PORT:
        raise ConfigError(source, "probes.address", f'"{address}" is not allowed; allowed: a port from 1 to 65535')
    return config


def _hint(misfit: Misfit) -> str:
    """Say more of two mistakes that are easily made."""
    if not misfit.key.endswith(".hardware"):
        return ""
    if misfit.problem.startswith("false "):
        return ' (write "off" in quotes: Helm reads it as false)'
    return " (NVML comes with a later version)" if misfit.problem.startswith('"nvml"') else ""


def _schema_of(kind: type) -> dict[str, Any]:
    if issubclass(kind, Seconds):
        return {
            "anyOf": [
                {"type": "number", "minimum": kind.shortest, "maximum": 86400},
                {"type": "string", "pattern": r"^\d+(\.\d+)?(ms|s|m|h)?$"},
            ]
        }
    raise NotImplementedError(f"{kind.__name__} has no JSON schema")
