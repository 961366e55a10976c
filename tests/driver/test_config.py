"""Configuration: strict, with errors that say what to write instead."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drasim.config import Config, ConfigError, Seconds, dump_yaml, for_node, load, load_yaml, schema, show


def written(folder: Path, text: str) -> Path:
    file = folder / "config.yaml"
    file.write_text(text)
    return file


def refused(folder: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(written(folder, text))
    return caught.value


def test_nothing_written_gives_the_defaults(tmp_path: Path) -> None:
    """No file and an empty file both mean the defaults."""
    assert load() == load(written(tmp_path, "")) == Config()


def test_folders_follow_from_the_kubelets(tmp_path: Path) -> None:
    """Folders that are left empty stand below the kubelet's."""
    paths = load(written(tmp_path, "paths: {kubelet: /k, cdi: /c, bootID: /b}")).paths
    assert paths.registry_folder == Path("/k/plugins_registry")
    assert paths.plugins_folder == Path("/k/plugins")
    assert paths.state_folder == Path("/k/plugins/drasim")
    assert (paths.cdi_folder, paths.boot_id_file) == (Path("/c"), Path("/b"))


def test_folders_can_be_given_one_by_one(tmp_path: Path) -> None:
    """A folder that is given is used as it is."""
    paths = load(written(tmp_path, "paths: {registry: /r, plugins: /p, state: /s}")).paths
    assert (paths.registry_folder, paths.plugins_folder, paths.state_folder) == (Path("/r"), Path("/p"), Path("/s"))


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("gpu: {hardwar: simulated}", "gpu.hardwar", 'did you mean "hardware"?); allowed: hardware, driver'),
        ("podUid: x", "podUid", 'did you mean "podUID"?'),
        ("gpu: {hardware: simulatd}", "gpu.hardware", '"simulatd" is not allowed (did you mean "simulated"?)'),
        ("gpu: {hardware: nvml}", "gpu.hardware", "NVML comes with a later version"),
        ("gpu: {hardware: false}", "gpu.hardware", 'write "off" in quotes'),
        ("gpu: {driver: A_b}", "gpu.driver", '"A_b" is not allowed; allowed: a DNS name'),
        ("gpu: simulated", "gpu", "allowed: a mapping with the keys hardware, driver"),
        ("nodeName: 3", "nodeName", "3 is not allowed"),
        ("log: {level: loud}", "log.level", "allowed: debug, error, info, warning"),
        ("paths: {cdi: cdi}", "paths.cdi", '"cdi" is not allowed; allowed: an absolute path'),
        ("probes: {address: here}", "probes.address", "allowed: host:port"),
        ("probes: {address: ':70000'}", "probes.address", "allowed: a port from 1 to 65535"),
        ("simulation: {profile: ./mine.yaml}", "simulation.profile", "the absolute path of a YAML file"),
        ("drain: 0", "drain", "0 is not allowed; allowed: 1ms to 24h"),
        ("drain: true", "drain", "true is not allowed"),
        ("periods: {look: soon}", "periods.look", '"soon" is not allowed'),
        ("gpu: {driver: x.y}\nnic: {driver: x.y}", "nic.driver", "allowed: another one"),
    ],
)
def test_refusals_name_the_key_the_value_and_what_is_allowed(tmp_path: Path, text: str, key: str, says: str) -> None:
    """An unknown key, a wrong type or an impossible value names file, key, value and the allowed ones."""
    error = refused(tmp_path, text)
    assert error.key == key
    assert says in str(error)
    assert str(error).startswith(f"{tmp_path}/config.yaml: {key}: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu: {driver: x", "line"),
        ("drain: 1\ndrain: 2", 'line 2, column 1: key "drain" is given twice'),
        ("[1, 2]", "not a mapping"),
        ("just text", "not a mapping"),
        ("drain: 2026-13-45", "month must be in 1..12"),
        ("drain: 2026-12-24", '"2026-12-24" is not allowed'),
        ("{[1, 2]: 3}", "line 1"),
        ("drain: " + "[" * 3000, "config.yaml: "),
        ("drain: &a [*a]", "line 1, column 8: found unconstructable recursive node"),
        ("drain: !!int ''", "config.yaml: "),
        ("drain: !!timestamp x", "config.yaml: "),
    ],
)
def test_what_is_no_mapping_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    """Broken YAML, a key given twice and other documents name the file, and the line where there is one."""
    assert says in str(refused(tmp_path, text))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A configuration file that was named but is not there is an error, not the defaults."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.yaml")


def test_off_needs_no_quotes(tmp_path: Path) -> None:
    """`off` is text: only true and false are booleans."""
    assert load(written(tmp_path, "gpu: {hardware: off}")).gpu.hardware == "off"


@pytest.mark.parametrize(
    ("text", "seconds"), [("5", 5), ("0.5", 0.5), ("5s", 5), ("500ms", 0.5), ("2m", 120), ("1h", 3600)]
)
def test_durations_are_numbers_or_text(tmp_path: Path, text: str, seconds: float) -> None:
    """A duration is a number of seconds or a text with its unit."""
    assert load(written(tmp_path, f"drain: {text}")).drain == seconds


def test_flags_override_the_file(tmp_path: Path) -> None:
    """A flag replaces one key of the file and leaves its neighbours."""
    file = written(tmp_path, "gpu: {hardware: off, driver: a.b}\nperiods: {look: 1}")
    config = load(file, {"gpu.driver": "x.y", "periods.look": "2s", "drain": "7", "nodeName": "n1"})
    assert (config.gpu.hardware, config.gpu.driver) == ("off", "x.y")
    assert (float(config.periods.look), float(config.drain), config.node_name) == (2, 7, "n1")


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"gpu.drive": "x"}, "gpu.drive"),
        ({"drain": "soon"}, "drain"),
        ({"gpu": "x"}, "gpu"),
        ({"gpu": "x", "gpu.driver": "y"}, "gpu.driver"),
        ({"gpu.driver": "nic.dra.example.com"}, "nic.driver"),
    ],
)
def test_flags_are_as_strict_as_the_file(flags: dict[str, str], key: str) -> None:
    """A flag that does not fit is refused under its key."""
    with pytest.raises(ConfigError) as caught:
        load(None, flags)
    assert (caught.value.file, caught.value.key) == ("flags", key)


def test_serving_a_node_needs_its_name() -> None:
    """Without a node name there is nothing to publish for."""
    with pytest.raises(ConfigError, match="nodeName: missing"):
        for_node(Config())
    assert for_node(Config(node_name="n")).node_name == "n"


def test_serving_a_node_needs_a_driver() -> None:
    """Both drivers switched off is a mistake, not an idle process."""
    with pytest.raises(ConfigError, match="nothing to do"):
        for_node(load(None, {"nodeName": "n", "gpu.hardware": "off", "nic.hardware": "off"}))


def test_what_is_shown_can_be_read_back(tmp_path: Path) -> None:
    """The printed configuration is a configuration file with the same meaning."""
    config = load(None, {"gpu.driver": "x.y", "drain": "500ms", "log.level": "debug"})
    assert load(written(tmp_path, dump_yaml([show(config)]))) == config


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    """The JSON schema has every key with its default, and allows no other."""
    described = schema()
    parts = described["$defs"]
    assert all(part["additionalProperties"] is False for part in parts.values())
    assert set(parts["Config"]["properties"]) == set(show(Config()))
    assert parts["Periods"]["properties"]["look"]["default"] == "5s"
    assert "Z" not in parts["GpuConfig"]["properties"]["driver"]["pattern"]
    json.dumps(described)


def test_a_name_does_not_end_in_a_line_end(tmp_path: Path) -> None:
    """A line end at the end of a value is not overlooked."""
    assert refused(tmp_path, 'gpu: {driver: "a.b\\n"}').key == "gpu.driver"


@given(st.floats(min_value=0.001, max_value=86_400))
def test_a_duration_reads_back_what_it_prints(seconds: float) -> None:
    """The text form of a duration is within rounding of the duration."""
    assert Seconds.parse(str(Seconds(seconds))) == pytest.approx(seconds, rel=1e-5)


@given(st.text())
def test_any_text_is_yaml_or_a_config_error(text: str) -> None:
    """Whatever stands in the file, the answer is a mapping or a ConfigError."""
    try:
        assert isinstance(load_yaml(text, "f"), dict)
    except ConfigError as error:
        assert error.file == "f"  # noqa: PT017 - either outcome is right
