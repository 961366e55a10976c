"""Scenarios: the file, and the events that are made of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drasim.config import ConfigError, Seconds
from drasim.faults.scenario import Clear, Inject, Range, Scenario, Step, load_scenario
from drasim.faults.timeline import Event, events_of, nodes_of
from drasim.hardware.simulated import Machine
from drasim.hardware.simulated.faults import resolve
from tests.driver.machines import machine

FILE = "story.yaml"
MACHINES: Mapping[str, Machine] = {"node-a": machine("dgx"), "node-b": machine("small", "node-b")}


def loaded(folder: Path, text: str) -> Scenario:
    file = folder / FILE
    file.write_text(text)
    return load_scenario(file)


def events(scenario: Scenario) -> tuple[Event, ...]:
    return events_of(scenario, MACHINES, "node-a", FILE, "story")


def lines(scenario: Scenario) -> list[str]:
    return [str(event) for event in events(scenario)]


def test_a_story(tmp_path: Path) -> None:
    """Injections and repairs in the order of their times; a code may be a number."""
    scenario = loaded(
        tmp_path,
        """
node: node-a
steps:
  - {at: 0s, inject: {device: gpu-3, kind: xid, code: 79}}
  - {at: 500ms, inject: {all: nic, kind: link-flap, node: node-b, duration: 20s}}
  - {at: 10, clear: {device: gpu-3}}
""",
    )
    assert lines(scenario) == [
        "+0.0s inject node-a gpu-3 xid 79",
        "+0.5s inject node-b all nic link-flap",
        "+10.0s clear node-a gpu-3 xid 79",
        "+20.5s clear node-b all nic link-flap",
    ]
    assert [event.name for event in events(scenario)][:2] == [
        "node-a-gpu-3-xid-79-story-1",
        "node-b-all-nic-link-flap-story-2",
    ]


CHANCE = """
seed: 7
steps:
  - at: 1s
    times: 20
    every: 5s
    jitter: 4s
    inject: {any: gpu, count: 2, kind: [xid, thermal], code: [48, 79], duration: {least: 5s, most: 20s}}
  - {at: 1s, inject: {any: root, kind: down}}
  - {at: 2s, clear: {kind: down}}
"""


def test_the_same_seed_gives_the_same_events(tmp_path: Path) -> None:
    """Repeatable to the event, on any Python; another seed is another story."""
    scenario = loaded(tmp_path, CHANCE)
    found = lines(scenario)
    assert found == lines(loaded(tmp_path, CHANCE))
    assert found[:6] == PINNED
    assert lines(msgspec.structs.replace(scenario, seed=8)) != found


PINNED = [
    "+1.0s inject node-a pci0000:b7 down",
    "+2.0s clear node-a pci0000:b7 down",
    "+3.0s inject node-a gpu-0 xid 48",
    "+3.0s inject node-a gpu-3 thermal",
    "+8.2s inject node-a gpu-2 xid 79",
    "+8.2s inject node-a gpu-6 thermal",
]


def test_chance_uses_what_there_is(tmp_path: Path) -> None:
    """Of several devices, kinds, codes and times all come up, each within its bounds."""
    found = [
        event for event in events(loaded(tmp_path, CHANCE.partition("  - {at: 1s")[0])) if event.action == "inject"
    ]
    ends = {each.name: each.at for each in events(loaded(tmp_path, CHANCE.partition("  - {at: 1s")[0]))}
    assert len(found) == 40
    assert len({event.spec.device for event in found}) == 8
    assert {(event.spec.kind, event.spec.code) for event in found} == {("xid", "48"), ("xid", "79"), ("thermal", None)}
    assert all(1 <= event.at % 5 <= 5 or event.at % 5 == 0 for event in found)
    assert all(5 <= ends[event.name] - event.at <= 20 for event in found)
    pairs = [{event.spec.device for event in found[i : i + 2]} for i in range(0, 40, 2)]
    assert {len(pair) for pair in pairs} == {2}


def test_a_changed_step_changes_no_other(tmp_path: Path) -> None:
    """Chance of one step does not depend on the steps before it."""
    first = [line for line in lines(loaded(tmp_path, CHANCE)) if "down" in line]
    fewer = CHANCE.replace("times: 20", "times: 2")
    assert [line for line in lines(loaded(tmp_path, fewer)) if "down" in line] == first


def test_two_faults_on_one_device_clear_alone(tmp_path: Path) -> None:
    """Each injection is an object of its own, so the end of one does not end the other."""
    text = "node: node-a\nsteps: [{at: 0s, times: 2, every: 5s, inject: {device: gpu-0, kind: lost, duration: 7s}}]"
    found = events(loaded(tmp_path, text))
    assert [(event.at, event.action) for event in found] == [(0, "inject"), (5, "inject"), (7, "clear"), (12, "clear")]
    assert (found[0].name, found[1].name) == (found[2].name, found[3].name)
    assert found[0].name != found[1].name


def test_a_clear_ends_what_it_names_and_no_more(tmp_path: Path) -> None:
    """By node, device, all or kind; an end by duration is not waited for."""
    text = """
node: node-a
steps:
  - {at: 0s, inject: {device: gpu-0, kind: lost, duration: 1h}}
  - {at: 0s, inject: {device: gpu-0, kind: thermal}}
  - {at: 0s, inject: {device: gpu-1, kind: lost}}
  - {at: 1s, clear: {device: gpu-0, kind: lost}}
  - {at: 2s, clear: {}}
"""
    assert lines(loaded(tmp_path, text))[3:] == [
        "+1.0s clear node-a gpu-0 lost",
        "+2.0s clear node-a gpu-0 thermal",
        "+2.0s clear node-a gpu-1 lost",
    ]


def test_the_nodes_are_known_before_anything_is_done(tmp_path: Path) -> None:
    """Each node once; one that nobody names is a mistake of the step."""
    text = "steps: [{at: 0s, inject: {device: gpu-0, kind: lost}}, {at: 1s, inject: {node: n, all: gpu, kind: lost}}]"
    scenario = loaded(tmp_path, text)
    assert nodes_of(scenario, "m", FILE) == ("m", "n")
    with pytest.raises(ConfigError, match=r"story.yaml: steps\[0\].inject.node: missing"):
        nodes_of(scenario, "", FILE)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("[]", ["steps: empty"]),
        ("[{at: 5s, clear: {}}, {at: 4s, clear: {}}]", ['steps[1].at: "4s" goes back behind "5s" of steps[0]']),
        ("[{at: soon, clear: {}}]", ['steps[0].at: "soon" is not allowed; allowed: 0s to 24h']),
        ("[{at: -1, clear: {}}]", ["steps[0].at"]),
        ("[{clear: {}}]", ["steps[0].at: missing"]),
        ("[{at: 0s}]", ["steps[0]: exactly one of inject and clear"]),
        ("[{at: 0s, clear: {}, inject: {device: a, kind: lost}}]", ["steps[0]: exactly one of inject and clear"]),
        ("[{at: 0s, injekt: {}}]", ['steps[0].injekt: unknown key (did you mean "inject"?)']),
        ("[{at: 0s, inject: {kind: lost}}]", ["steps[0].inject: none given; allowed: one of device, all, any"]),
        ("[{at: 0s, inject: {any: gpu, all: gpu, kind: lost}}]", ["all and any given"]),
        ("[{at: 0s, inject: {device: a}}]", ["steps[0].inject.kind: missing"]),
        (
            "[{at: 0s, inject: {any: tpu, kind: lost}}]",
            ['steps[0].inject.any: "tpu" is not allowed (did you mean "gpu"?); allowed: gpu, nic, root'],
        ),
        ("[{at: 0s, inject: {device: a, kind: lots}}]", ['steps[0].inject.kind: "lots"', 'did you mean "lost"']),
        ("[{at: 0s, inject: {device: a, kind: []}}]", ["steps[0].inject.kind: empty"]),
        ("[{at: 0s, inject: {device: a, kind: lost, code: 3}}]", ["steps[0].inject.code: not allowed with lost"]),
        ("[{at: 0s, inject: {device: a, kind: [lost, xid]}}]", ["steps[0].inject.code: missing; xid needs the number"]),
        ("[{at: 0s, inject: {device: a, kind: xid, code: [79, 0]}}]", ['steps[0].inject.code: "0" is not allowed']),
        ("[{at: 0s, inject: {device: a, kind: lost, count: 2}}]", ["steps[0].inject.count", "allowed: 1"]),
        ("[{at: 0s, inject: {device: a, kind: lost, duration: 0}}]", ["steps[0].inject.duration", "1ms to 24h"]),
        (
            "[{at: 0s, inject: {device: a, kind: lost, duration: {least: 5s, most: 4s}}}]",
            ["steps[0].inject.duration.most: 4s is less than least; allowed: 5s or more"],
        ),
        ("[{at: 0s, times: 2, clear: {}}]", ["steps[0].every: missing; needed with times 2"]),
        ("[{at: 0s, every: 5s, clear: {}}]", ["steps[0].every: 5s is not allowed without times above 1"]),
        ("[{at: 0s, times: 0, clear: {}}]", ["steps[0].times", "from 1 to 10000"]),
        ("[{at: 0s, clear: {kind: lots}}]", ["steps[0].clear.kind"]),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, steps: str, words: list[str]) -> None:
    """The file and the key, what is wrong, and what is allowed."""
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, f"node: node-a\nsteps: {steps}")
    assert [word for word in (FILE, *words) if word not in str(caught.value)] == [], caught.value


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("inject: {device: gpu-8, kind: lost}", ['steps[0].inject.device: on node-a: "gpu-8" is no device', "gpu-7"]),
        ("inject: {device: nic-0, kind: thermal}", ['steps[0].inject.kind: on node-a: "thermal" cannot befall nic-0']),
        ("inject: {any: gpu, count: 9, kind: lost}", ["steps[0].inject.count: 9 is more than node-a has", "most 8"]),
        ("inject: {any: root, kind: lost}", ["steps[0].inject.any: on node-a:", "is a PCIe root"]),
        ("inject: {any: gpu, kind: [lost, down]}", ["steps[0].inject.any: on node-a:", "is no PCIe root"]),
        ("inject: {all: gpu, kind: [lost, link-down]}", ['steps[0].inject.kind: on node-a: "link-down" cannot befall']),
        ("inject: {any: nic, kind: down}", ["steps[0].inject.any: on node-a:", "is no PCIe root"]),
        ("clear: {device: gpu-0}", ["steps[0].clear: finds nothing", "stands at 0s"]),
    ],
)
def test_what_the_machine_cannot_do_is_refused(tmp_path: Path, step: str, words: list[str]) -> None:
    """The whole time line is checked against the devices before anything happens."""
    with pytest.raises(ConfigError) as caught:
        events(loaded(tmp_path, f"node: node-a\nsteps: [{{at: 0s, {step}}}]"))
    assert [word for word in words if word not in str(caught.value)] == [], caught.value


_KINDS: st.SearchStrategy[tuple[str | tuple[str, ...], tuple[int, ...]]] = st.sampled_from(
    [("xid", (79, 48)), ("lost", ()), (("thermal", "nvlink"), ()), (("xid", "lost"), (31,))]
)
_PLACES: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"any": "gpu"}, {"any": "gpu", "count": 3}, {"all": "gpu"}, {"device": "gpu-5"}]
)
_SPANS = st.sampled_from([None, "3s", 8, Range(least=Seconds(1), most=Seconds(9))])


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    steps, at = [], 0
    for _ in range(draw(st.integers(1, 5))):
        at += draw(st.integers(0, 10))
        kind, code = draw(_KINDS)
        inject = Inject(kind=kind, code=code, duration=draw(_SPANS), **draw(_PLACES))
        steps.append(Step(at=at, inject=inject))
    steps.append(Step(at=at, inject=Inject(device="gpu-7", kind="lost")))  # so that the clear finds something
    steps.append(Step(at=at + 1, clear=Clear()))
    return Scenario(seed=draw(st.integers()), node="node-a", steps=tuple(steps))


@given(scenario=scenarios())
def test_every_timeline_can_be_played(scenario: Scenario) -> None:
    """Times never go backwards; each name is injected once, before it is cleared; the machine can do all of it."""
    found = events(scenario)
    assert [event.at for event in found] == sorted(event.at for event in found)
    standing: set[str] = set()
    for event in found:
        assert (event.name in standing) == (event.action == "clear")
        standing ^= {event.name}
        place = {"device": event.spec.device or "", "every": event.spec.all or ""}
        assert resolve(MACHINES["node-a"], event.spec.kind, event.spec.code or "", **place)
    assert standing == set()
    assert events(scenario) == found
