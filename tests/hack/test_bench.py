"""The rest of the bench that needs no cluster: plans, command lines, objects, what /proc says."""

import json
import os
from pathlib import Path

import pytest

from hack.bench import cli, contestants, instance, objects, plan, process, programs
from hack.bench.api import Object
from hack.bench.figures import CONTESTANTS, DEFAULT, OURS, RAISED
from hack.bench.plan import Plan
from hack.bench.setup import Claims


def test_every_round_begins_with_another_one() -> None:
    """Rounds are interleaved, and nobody is always first."""
    rounds = [plan.order(number) for number in range(3)]
    assert [names[0] for names in rounds] == list(CONTESTANTS)
    assert all(sorted(names) == sorted(CONTESTANTS) for names in rounds)


def test_a_plan_survives_json() -> None:
    """What the command line wants is what is measured in the node."""
    wanted = plan.quick(("calls",))
    assert plan.from_json(json.loads(json.dumps(plan.as_json(wanted)))) == wanted


def test_quick_is_quick() -> None:
    """A smoke run says that it takes a few minutes at most, a full one that it takes longer."""
    assert plan.quick().seconds() < 240 < Plan().seconds()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Plan()),
        (["--rounds", "5", "--only", "sockets"], Plan(rounds=5, groups=("startup",))),
        (["--quick", "--only", "rate-8"], plan.quick(("calls",))),
        (["--quick", "--rounds", "2"], plan.changed(plan.quick(), rounds=2)),
    ],
)
def test_command_line(words: list[str], expected: Plan) -> None:
    """Flags say how much is measured."""
    assert cli.planned(cli.parser().parse_args(words)) == expected


@pytest.mark.parametrize("words", [["--only", "speed"], ["--rounds", "0"]])
def test_a_wrong_command_line_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is built or started; the exit code is 2 and the message says what is wrong."""
    assert cli.main(words) == cli.BAD_INPUT
    assert "error: " in capsys.readouterr().err


def test_contestants_differ_only_where_they_should() -> None:
    """The two Go drivers are one program with other limits; ours gets a machine for each purpose."""
    every = contestants.contestants(Path("/b"), "node1", Path("/b/machine.yaml"))
    registry = Path("/r")
    default, raised = (every[name].start(contestants.BIG, registry) for name in (DEFAULT, RAISED))
    assert set(raised) - set(default) == {"--qps=1000", "--burst=1000", f"--driver={RAISED}.bench.example.com"}
    assert every[OURS].start(contestants.SMALL, registry)[-1] == "--set=paths.registry=/r"
    assert "--set=simulation.profile=/b/machine.yaml" in every[OURS].start(contestants.BIG, registry)
    assert len({contestant.driver for contestant in every.values()}) == len(CONTESTANTS)


def test_the_launcher_is_the_images() -> None:
    """Our driver runs with the flags of the image, only its folders are others."""
    text = programs.launcher(programs.LAUNCHER.read_text(), Path("/p/python3"), Path("/l"), Path("/s"))
    first, *rest = text.splitlines()
    assert first.startswith("#!/p/python3 -")
    assert 'sys.path[:0] = ["/l", "/s"]' in rest


def test_a_launcher_that_changed_is_noticed() -> None:
    """Measuring something else than the image by accident is an error."""
    with pytest.raises(ValueError, match="not as expected"):
        programs.launcher("#!/usr/bin/python3\nmain()\n", Path("/p"), Path("/l"), Path("/s"))


def test_allocated_claim() -> None:
    """A claim is allocated as the scheduler does it, its parameters taken over."""
    body = objects.with_parameters(objects.claim("c", "class"), "d.example.com")
    devices = objects.allocated(body, "d.example.com", "node1", "gpu-3")["status"]["allocation"]["devices"]
    assert devices["results"] == [
        {"request": objects.REQUEST, "driver": "d.example.com", "pool": "node1", "device": "gpu-3"}
    ]
    assert devices["config"] == [
        {
            "source": "FromClaim",
            "requests": [objects.REQUEST],
            "opaque": {"driver": "d.example.com", "parameters": objects.PARAMETERS},
        }
    ]
    assert "config" not in objects.allocated(objects.claim("c", "x"), "d", "p", "v")["status"]["allocation"]["devices"]


def test_pod_states() -> None:
    """Running counts with its containers only; a Pod nobody can place says so."""
    ready = {"status": {"phase": "Running", "containerStatuses": [{"ready": True}]}}
    waiting = {"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}}
    assert (objects.running(ready), objects.running(waiting), objects.running(None)) == (True, False, False)
    assert (objects.unschedulable(waiting), objects.unschedulable(ready), objects.unschedulable(None)) == (
        True,
        False,
        False,
    )


def part(number: int, total: int, driver: str = "d") -> tuple[str, Object]:
    """Return a slice with two devices."""
    spec = {"driver": driver, "pool": {"resourceSliceCount": total}, "devices": [{}, {}]}
    return f"{driver}-{number}", {"spec": spec}


def test_published_needs_the_whole_pool() -> None:
    """Devices count only when all slices of the pool are there, and only this driver's."""
    items = dict([part(0, 2), part(0, 1, "other")])
    assert objects.published(items, "d") is None
    assert objects.published({**items, **dict([part(1, 2)])}, "d") == 4
    assert objects.published({}, "d") is None


def test_process_figures() -> None:
    """Memory and CPU time are read where the kernel writes them, whatever the program is called."""
    assert process.rss_of("Name:\tx\nVmRSS:\t   2048 kB\n") == 2
    fields = ["S", *["0"] * 10, "150", "50", "7", "3", "20"]
    assert process.cpu_of(f"1 (a b) c) {' '.join(fields)}") == 210 / process.TICKS
    assert process.rss(os.getpid()) > 1
    with pytest.raises(ValueError, match="ended"):
        process.rss_of("Name:\tzombie\n")


def test_sockets_are_told_from_files(tmp_path: Path) -> None:
    """Only sockets whose name begins so count, and a missing folder has none."""
    (tmp_path / "driver.sock").write_text("")
    assert list(instance.sockets(tmp_path, "driver")) == []
    assert list(instance.sockets(tmp_path / "none", "")) == []
    assert instance.connects(tmp_path / "driver.sock") is False


def test_the_machine_has_enough_gpus() -> None:
    """A claim needs a GPU of its own, so numbers that cannot be built are refused."""
    with pytest.raises(ValueError, match="cannot be spread"):
        programs.machine(7)


def test_claims_of_a_plan() -> None:
    """There is a device for each claim, held ones included."""
    assert Plan().claims == 640
    assert Claims([("n", "u", "c")], []).plain[0][2] == "c"
