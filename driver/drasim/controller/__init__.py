"""`drasim controller`: keeps the DeviceTaintRules that the policy wants, so that Pods leave sick devices.

Nodes isolate a device on their own; this takes the Pods off it that are there already. Any number of instances may run:
all look, the one that holds the Lease writes. What must outlive it is in the rules themselves.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager

import msgspec
from msgspec.structs import replace

from dra_plugin.backoff import backoff
from dra_plugin.capabilities import served
from dra_plugin.cluster import Cluster
from dra_plugin.errors import Retryable
from dra_plugin.events import Events
from dra_plugin.kube import Credentials, KubeCluster
from dra_plugin.latest import Latest, follow
from dra_plugin.leader import Election
from dra_plugin.resources import DEVICE_TAINT_RULE, DEVICE_TAINT_RULES, DeviceTaintRule, Kind
from drasim import logs
from drasim.config import Config, show
from drasim.controller.figures import gauges
from drasim.controller.loop import Keeper, Outcome, Store, Written
from drasim.controller.narrator import Frame, Narrator
from drasim.controller.policy import Policy
from drasim.controller.refusals import Refuser
from drasim.controller.views import NOT_YET, Views
from drasim.controller.world import Index
from drasim.metrics import Metrics
from drasim.probes import HTTP_OK, HTTP_UNAVAILABLE, Endpoints, serve

__all__ = ["Controller", "Session", "run", "running"]

_ASK_AGAIN = 300.0  # seconds until the server is asked again in which version it serves the rules ...
_ASK_SOON = 60.0  # ... and when it serves none
_FIRST_DELAY = 0.5
_LONGEST_ROW = 4  # failures after which the delay grows no more: there are two controllers, not one on each Node


class Session:
    """The work with the rules in the version that the server serves; None: it serves none, so all is a dry run."""

    def __init__(self, controller: "Controller", kind: Kind[DeviceTaintRule] | None) -> None:
        """Prepare; nothing is read before ``run``."""
        config, cluster = controller.config.controller, controller.cluster
        policy = Policy.of(config, controller.drivers)
        if kind is None:
            policy = replace(policy, dry_run=True)
        frame = Frame(
            name=config.name,
            namespace=config.namespace,
            identity=controller.identity,
            rules_api=kind.api_version if kind else "",
            dry_run=policy.dry_run,
        )
        self.views = Views(cluster, controller.drivers, kind)
        self.keeper = Keeper(
            self.views,
            policy,
            Index(policy, config.rack_label),
            controller.election,
            Store(cluster, kind or DEVICE_TAINT_RULE, config.owner),
            self._observe,
        )
        events = Events(cluster, config.name, controller.identity)
        self.narrator = Narrator(cluster, events, self.keeper.outcome, frame)
        self.refuser = Refuser(cluster, self.views.nodes, controller.election)
        self.rules_api = frame.rules_api
        self._metrics = controller.metrics

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part in (self.views, self.keeper, self.narrator, self.refuser):
                group.create_task(part.run(), name=type(part).__name__)
            group.create_task(self._log())

    def _observe(self, written: Written) -> None:
        verdict = written.verdict
        if written.verb == "create":
            self._metrics.ruled(verdict.place.driver, written.seconds)
        self.narrator.observe(written)
        log = logs.get(driver=verdict.place.driver, pool=verdict.place.pool, device=verdict.place.device)
        fields = {"rule": written.rule, "problem": verdict.problem, "state": verdict.state, "reason": verdict.reason}
        log.info("rule written", verb=written.verb, **fields)

    async def _log(self) -> None:
        """Log what stands in the way, when that changes."""
        told: tuple[str, ...] = ()
        async for outcome, problem in follow(self.keeper.outcome, self.narrator.problem):
            problems = (*outcome.problems, *([problem] if problem else ()))
            found = tuple(text for text in problems if not text.endswith(NOT_YET))
            if found != told:
                log = logs.get(leading=outcome.leads)
                log.warning("in the way", problems=found) if found else log.info("nothing is in the way any more")
            told = found


class Controller:
    """What `drasim controller` is while it runs.

    Attributes:
        session: the present one; None until the server has said which rules it serves.
        problem: why it has not said so.
    """

    def __init__(self, config: Config, cluster: Cluster, identity: str) -> None:
        """Be the instance ``identity``, unique among all that ever were."""
        self.config, self.cluster, self.identity = config, cluster, identity
        self.drivers = (config.gpu.driver, config.nic.driver)  # one that was switched off may have left rules
        name, namespace = config.controller.name, config.controller.namespace
        self.election = Election(cluster, name=name, namespace=namespace, identity=identity)
        self.metrics = Metrics()
        self.session: Latest[Session | None] = Latest(None)
        self.problem: Latest[str | None] = Latest(None)

    async def run(self) -> None:
        """Stand for election and work until cancelled; the Lease is given back when nothing can be written any more."""
        async with asyncio.TaskGroup() as group:
            standing = group.create_task(self.election.run())
            try:
                await self._work()
            finally:
                standing.cancel()

    def problems(self) -> tuple[str, ...]:
        """Return what keeps this instance from being of use, for people."""
        session, found = self.session.value, []
        if self.problem.value is not None:
            found.append(self.problem.value)
        if session is None:
            return (*found, "which DeviceTaintRules the server serves is not known yet")
        return (*found, *session.views.blind())

    def ready(self) -> tuple[int, bytes]:
        """Return the HTTP status and the JSON of /readyz."""
        problems, session = self.problems(), self.session.value
        outcome = session.keeper.outcome.value if session else Outcome()
        body = {
            "ready": not problems,
            "problems": problems,
            "leading": self.election.leading.value,
            "leader": self.election.holder.value,
            "election": self.election.error.value,
            "rulesAPI": session.rules_api if session else None,
            "work": outcome.problems,
        }
        text = msgspec.json.format(msgspec.json.encode(body), indent=2)
        return HTTP_UNAVAILABLE if problems else HTTP_OK, text + b"\n"

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        session = self.session.value
        outcome = session.keeper.outcome.value if session else Outcome()
        is_served = bool(session and session.rules_api)
        figures = gauges(outcome, leading=self.election.leading.value, served=is_served, problems=len(self.problems()))
        return self.metrics.exposition(figures)

    async def _work(self) -> None:
        """Work with the rules as they are served; begin anew when an upgrade of the server changes that."""
        kind = await self._ask()
        while True:
            session = Session(self, kind)
            self.session.set(session)
            async with asyncio.TaskGroup() as group:
                working = group.create_task(session.run())
                kind = await self._ask_until_other(kind)
                working.cancel()

    async def _ask_until_other(self, kind: Kind[DeviceTaintRule] | None) -> Kind[DeviceTaintRule] | None:
        newest = kind
        while newest == kind:
            await asyncio.sleep(_ASK_AGAIN if kind else _ASK_SOON)
            newest = await self._ask()
        return newest

    async def _ask(self) -> Kind[DeviceTaintRule] | None:
        """Return the newest version of the rules that is served, None for none; ask until there is an answer."""
        failures = 0
        while True:
            try:
                kind = await served(self.cluster, DEVICE_TAINT_RULES)
            except Retryable as error:
                failures += 1
                self.problem.set(f"which DeviceTaintRules the server serves cannot be asked: {error}")
                await asyncio.sleep(max(error.retry_after or 0.0, backoff(_FIRST_DELAY, min(failures, _LONGEST_ROW))))
            else:
                self.problem.set(None)
                return kind


@asynccontextmanager
async def running(config: Config, cluster: Cluster, identity: str) -> AsyncIterator[Controller]:
    """Run a controller while the block runs."""
    controller = Controller(config, cluster, identity)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in _parts(controller)]
        yield controller
        for task in tasks:
            task.cancel()


async def run(config: Config, credentials: Credentials, identity: str) -> None:
    """Control until SIGTERM or SIGINT. Raises SetupError (in a group, perhaps)."""
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    logs.setup(config.log.level, config.log.format)
    async with KubeCluster(credentials) as cluster, running(config, cluster, identity) as controller:
        logs.get().info("controlling", identity=identity, drivers=controller.drivers, config=show(config))
        await stop.wait()
        logs.get().info("stopping")


def _parts(controller: Controller) -> Iterator[Coroutine[None, None, None]]:
    yield controller.run()
    yield _log_leading(controller)
    if controller.config.probes.address:
        yield serve(controller.config.probes.address, Endpoints(ready=controller.ready, metrics=controller.exposition))


async def _log_leading(controller: Controller) -> None:
    told = (False, "")
    async for leading, holder in follow(controller.election.leading, controller.election.holder):
        if (leading, holder) != told:
            logs.get(leading=leading, leader=holder).info("leader")
        told = (leading, holder)
