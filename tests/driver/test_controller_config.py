"""The policy as people write it: what is refused, which field is named, and what is allowed instead."""

from pathlib import Path

import pytest

from drasim.config import Config, ConfigError, dump_yaml, for_controller, load, show
from drasim.config.controller import Budget
from drasim.controller.policy import Policy
from tests.driver.controlling import GPU, NIC


def written(folder: Path, text: str) -> Config:
    file = folder / "config.yaml"
    file.write_text(text)
    return load(file)


def policy_of(folder: Path, entries: str, more: str = "") -> Config:
    """Return a configuration with these entries of ``controller.evict``, checked."""
    text = f"controller:\n  namespace: drasim\n  evict:\n{entries}\n{more}"
    return for_controller(written(folder, text))


def refused(folder: Path, entries: str, more: str = "") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        policy_of(folder, entries, more)
    return caught.value


def test_the_default_policy_works_as_it_is() -> None:
    """Nothing but the namespace must be said; the worst come first, and the default budget is a share."""
    config = for_controller(load(None, {"controller.namespace": "drasim"}))
    policy = Policy.of(config.controller, (GPU, NIC))
    assert policy.rank(GPU, "lost", "") == 0
    assert policy.rank(GPU, "xid", "79") is not None
    assert policy.rank(GPU, "xid", "13") is None
    assert policy.rank(NIC, "down", "pci0000-15") is not None
    assert config.controller.budget == Budget(per_cluster="10%")


def test_the_default_policy_fits_any_effects(tmp_path: Path) -> None:
    """Whoever declares a problem harmless need not write the policy anew."""
    config = written(tmp_path, "controller: {namespace: x}\nproblems: {effects: {xid/79: None}}")
    assert for_controller(config) == config


def test_a_policy_can_be_written_back(tmp_path: Path) -> None:
    """What is shown reads as the same configuration."""
    config = policy_of(tmp_path, "  - {problem: lost, after: 0, recoverAfter: 1m}")
    assert config == written(tmp_path, dump_yaml([show(config)]))


@pytest.mark.parametrize(
    ("entry", "key", "says"),
    [
        ("- {problem: losst}", "[0].problem", '"losst" is not allowed'),
        ("- {problem: losst}", "[0].problem", "allowed: lost, down, unplugged, xid"),
        ("- {problem: lost, driver: gpu.dra.exmple.com}", "[0].driver", 'did you mean "gpu.dra.example.com"?'),
        ("- {problem: lost, driver: x.y}", "[0].driver", f"allowed: {GPU}, {NIC}, or empty for both"),
        (f"- {{problem: xid, driver: {NIC}}}", "[0].driver", f"never befalls its devices; allowed: {GPU}"),
        ('- {problem: lost, codes: ["1"]}', "[0].codes[0]", 'allowed: no codes, "lost" has none'),
        ('- {problem: xid, codes: ["79", "0"]}', "[0].codes[1]", "allowed: a number from 1 to 999"),
        ('- {problem: xid, codes: ["1000"]}', "[0].codes[0]", "allowed: a number from 1 to 999"),
        ("- {problem: xid, codes: [79]}", "[0].codes[0]", 'allowed: a code in quotes, such as "79"'),
        ('- {problem: xid, codes: ["13"]}', "[0].codes[0]", '"xid/13" only informs'),
        ("- {problem: thermal}", "[0].problem", '"thermal" only informs; allowed: problems with the effect NoSchedule'),
        ("- {problem: xid}\n  - {problem: xid, codes: ['79']}", "[1].problem", "earlier entries have all of it"),
        (
            "\n  ".join(f"- {{problem: xid, codes: [{codes}]}}" for codes in ("'79'", "'48'", "'48', '79'")),
            "[2].problem",
            "earlier entries have all of it",
        ),
        (
            f"- {{problem: lost, driver: {GPU}}}\n  - {{problem: lost, driver: {NIC}}}\n  - {{problem: lost}}",
            "[2].problem",
            "earlier entries have all of it",
        ),
        ("- {problem: lost, after: -1s}", "[0].after", "allowed: 0 to 24h"),
        ("- {problem: lost, recoverAfter: soon}", "[0].recoverAfter", "allowed: 0 to 24h"),
        ("- {problem: lost, when: now}", "[0].when", "unknown key"),
    ],
)
def test_entries_that_could_never_do_what_they_say(tmp_path: Path, entry: str, key: str, says: str) -> None:
    """Unknown, impossible, harmless and shadowed entries: the error names the field and the allowed values."""
    error = refused(tmp_path, f"  {entry}")
    assert error.key == f"controller.evict{key}"
    assert says in str(error)


@pytest.mark.parametrize(
    "entries",
    [
        "  - {problem: xid, codes: ['79']}\n  - {problem: xid}",
        f"  - {{problem: lost, driver: {GPU}}}\n  - {{problem: lost}}",
        "  - {problem: down, codes: [pci0000-15]}",
        "  - {problem: xid, codes: ['79'], after: 0}\n  - {problem: xid, codes: ['48'], after: 0s}",
    ],
)
def test_entries_that_leave_something_to_the_next(tmp_path: Path, entries: str) -> None:
    """A special case before the general one is what the order is for."""
    assert len(policy_of(tmp_path, entries).controller.evict) == entries.count("problem:")


def test_effects_can_make_an_entry_useful(tmp_path: Path) -> None:
    """What is harmless by default can be declared otherwise."""
    config = policy_of(tmp_path, "  - {problem: thermal}", "problems: {effects: {thermal: NoSchedule}}")
    assert config.controller.evict[0].problem == "thermal"


def test_a_driver_that_is_off_is_not_known(tmp_path: Path) -> None:
    """A policy for devices that nobody drives could never fire."""
    error = refused(tmp_path, f"  - {{problem: lost, driver: {NIC}}}", 'nic: {hardware: "off"}')
    assert (error.key, f"allowed: {GPU}" in str(error)) == ("controller.evict[0].driver", True)


def test_an_empty_policy_is_refused(tmp_path: Path) -> None:
    """It could never fire; who wants no eviction does not run the controller."""
    with pytest.raises(ConfigError, match=r"controller.evict: empty.*needed: at least one problem"):
        for_controller(written(tmp_path, "controller: {namespace: x, evict: []}"))


def test_the_namespace_is_needed() -> None:
    """The Lease and the status need a place."""
    with pytest.raises(ConfigError, match=r"controller.namespace: missing; needed"):
        for_controller(load())


@pytest.mark.parametrize("amount", ["0%", "101%", "-1", "ten", "1.5", "10 %"])
def test_budgets_that_are_refused(tmp_path: Path, amount: str) -> None:
    """A share of nothing, more than all, or no amount at all; nothing is written as 0."""
    with pytest.raises(ConfigError, match=r"controller\.budget\.perNode: .*allowed: a number of devices.*0: none"):
        written(tmp_path, f"controller: {{budget: {{perNode: {amount}}}}}")


@pytest.mark.parametrize("amount", [0, 3, "25%", "100%", None])
def test_budgets_that_are_allowed(tmp_path: Path, amount: int | str | None) -> None:
    """Numbers, shares, 0 for none, null for no limit."""
    text = "null" if amount is None else str(amount)
    assert written(tmp_path, f"controller: {{budget: {{perNode: {text}}}}}").controller.budget.per_node == amount


def test_a_budget_on_the_command_line() -> None:
    """A number that is written as text is a number."""
    assert load(None, {"controller.budget.perNode": "2"}).controller.budget.per_node in (2, "2")
