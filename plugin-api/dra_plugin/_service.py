"""gRPC messages to values and back: DRA v1 and v1beta1, health v1 and v1alpha1, registration.

The older versions are the newer messages on the wire under another service name, byte for byte; only ``share_id`` did
not exist in DRA v1beta1 and is left out there. So one implementation on the newer messages serves both
(``tests/contract/test_wire.py`` asks it with the code generated from the older files).
"""

import asyncio
import contextlib
import functools
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from dra_plugin._calls import Calls, outcome
from dra_plugin._proto import dra_health_v1_pb2 as health_pb
from dra_plugin._proto import dra_v1_pb2 as dra_pb
from dra_plugin._proto import pluginregistration_v1_pb2 as registration_pb
from dra_plugin.claims import RESOURCE_CLAIM, Claim, ClaimRef, ResourceClaim, main_request
from dra_plugin.cluster import Cluster
from dra_plugin.errors import ClaimError, PluginError, Retryable
from dra_plugin.health import DeviceHealth, Health, HealthReport
from dra_plugin.latest import Latest, follow
from dra_plugin.observe import CallDone, ClaimFailed, Observer
from dra_plugin.plugin import Plugin, PreparedDevice

__all__ = ["SERVED", "ClaimService", "HealthService", "Registration", "due", "verified"]

LOG = logging.getLogger(__name__)
DRA = "k8s.io.kubelet.pkg.apis.dra.{}.DRAPlugin"
HEALTH = "{}.DRAResourceHealth"
SERVED = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""What the kubelet is told, the preferred first: the kubelet takes the first DRA entry that it knows."""

READ_FOR = 40.0  # seconds in which reading a claim is tried again; the kubelet waits 45
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
MARGIN = 1.0  # seconds before the caller's deadline at which it gets an answer instead of a broken call
HEARTBEAT = 5.0
KUBELET_TIMEOUT = (
    30  # seconds after which the kubelet takes a health report for out of date, where it says nothing else
)


class Caller(Protocol):
    """What is asked of the context of a gRPC call."""

    def time_remaining(self) -> float | None:
        """Return the seconds until the caller gives up, None without a deadline."""
        ...


class ClaimService:
    """Prepares and unprepares: reads claims, asks the plugin, checks its answer."""

    def __init__(self, plugin: Plugin, driver: str, cluster: Cluster, calls: Calls, observer: Observer) -> None:
        """Serve ``plugin`` as ``driver``; the work runs in ``calls``."""
        self._plugin = plugin
        self._driver = driver
        self._cluster = cluster
        self._calls = calls
        self._observer = observer

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the gRPC handlers of DRA v1 and v1beta1."""
        return (self._handler("v1", self.prepare), self._handler("v1beta1", self.prepare_without_shares))

    async def prepare(
        self, request: dra_pb.NodePrepareResourcesRequest, context: Caller
    ) -> dra_pb.NodePrepareResourcesResponse:
        """Answer for each claim of the request; one that fails has its own error."""
        answer = dra_pb.NodePrepareResourcesResponse()
        async for ref, devices, error in self._each("prepare", self._prepared, request.claims, context):
            entry = answer.claims[ref.uid]
            entry.error = error
            entry.devices.extend(_message(device) for device in devices or ())
        return answer

    async def prepare_without_shares(
        self, request: dra_pb.NodePrepareResourcesRequest, context: Caller
    ) -> dra_pb.NodePrepareResourcesResponse:
        """Answer as DRA v1beta1 can."""
        answer = await self.prepare(request, context)
        for entry in answer.claims.values():
            for device in entry.devices:
                device.ClearField("share_id")
        return answer

    async def unprepare(
        self, request: dra_pb.NodeUnprepareResourcesRequest, context: Caller
    ) -> dra_pb.NodeUnprepareResourcesResponse:
        """Answer for each claim of the request; the claim objects may be gone and are not read."""
        answer = dra_pb.NodeUnprepareResourcesResponse()
        async for ref, _, error in self._each("unprepare", self._plugin.unprepare, request.claims, context):
            answer.claims[ref.uid].error = error
        return answer

    async def _each(
        self, operation: str, work: Callable[[ClaimRef], Any], claims: Iterable[dra_pb.Claim], context: Caller
    ) -> AsyncIterator[tuple[ClaimRef, Any, str]]:
        """Begin all the work at once, then yield (claim, value, error) in the order of the request."""
        begun = asyncio.get_running_loop().time()
        until = _until(begun, context.time_remaining())
        refs = [ClaimRef(claim.namespace, claim.name, claim.uid) for claim in claims]
        tasks = [self._calls.begin(operation, ref.uid, self._work(operation, work, ref)) for ref in refs]
        for ref, task in zip(refs, tasks, strict=True):
            result = await outcome(task, until)
            self._answered(operation, ref, result.error, asyncio.get_running_loop().time() - begun)
            yield ref, result.value, result.error

    def _work(self, operation: str, work: Callable[[ClaimRef], Any], ref: ClaimRef) -> Callable[[], Any]:
        async def observed() -> object:
            try:
                return await work(ref)
            except Exception as error:
                self._failed(operation, ref, error)
                raise

        return observed

    async def _prepared(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        claim = _ours(ref, await self._read(ref), self._driver)
        return verified(claim, await self._plugin.prepare(claim))

    async def _read(self, ref: ClaimRef) -> ResourceClaim | None:
        """Read the claim; a transient fault is tried again, since an error costs the Pod more than a minute."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + READ_FOR, FIRST_PAUSE
        while True:
            try:
                return await self._cluster.get(RESOURCE_CLAIM, ref.name, ref.namespace)
            except Retryable as error:
                wait = max(error.retry_after or 0.0, pause * random.uniform(0.5, 1.0))
                if loop.time() + wait > deadline:
                    raise ClaimError(f"ResourceClaim {ref} cannot be read: {error}") from error
            await asyncio.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _answered(self, operation: str, ref: ClaimRef, error: str, seconds: float) -> None:
        self._observer(
            CallDone(driver=self._driver, operation=operation, uid=ref.uid, error=error or None, seconds=seconds)
        )

    def _failed(self, operation: str, ref: ClaimRef, error: Exception) -> None:
        text = str(error) or type(error).__name__
        names = {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}
        self._observer(ClaimFailed(driver=self._driver, operation=operation, error=text, **names))

    def _handler(self, version: str, prepare: Callable[..., Any]) -> grpc.GenericRpcHandler:
        methods = {
            "NodePrepareResources": _unary(prepare, dra_pb.NodePrepareResourcesRequest),
            "NodeUnprepareResources": _unary(self.unprepare, dra_pb.NodeUnprepareResourcesRequest),
        }
        return grpc.method_handlers_generic_handler(DRA.format(version), methods)


class Registration:
    """What the kubelet says of this plugin: state that follows its Notify calls and its streams.

    The kubelet opens a health stream for each registered instance and keeps it. When the last one ends the kubelet went
    away (or dropped us), whatever it said before; a stream that comes again is one more proof that it knows us.
    """

    def __init__(self, driver: str, endpoint: str, announce: Callable[[], None]) -> None:
        """Introduce ``driver``, served at the socket ``endpoint``; ``announce`` is called at each registration."""
        self._info = registration_pb.PluginInfo(
            type="DRAPlugin", name=driver, endpoint=endpoint, supported_versions=SERVED
        )
        self._announce = announce
        self._accepted = False
        self._streams = 0
        self.registered: Latest[bool] = Latest(False)  # noqa: FBT003 - the value of a Latest
        self.refusal: Latest[str | None] = Latest(None)

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the gRPC handlers of the registration service."""
        methods = {
            "GetInfo": _unary(self.get_info, registration_pb.InfoRequest),
            "NotifyRegistrationStatus": _unary(self.notify, registration_pb.RegistrationStatus),
        }
        return (grpc.method_handlers_generic_handler("pluginregistration.Registration", methods),)

    async def get_info(self, _request: registration_pb.InfoRequest, _context: Caller) -> registration_pb.PluginInfo:
        """Say who we are."""
        return self._info

    async def notify(
        self, request: registration_pb.RegistrationStatus, _context: Caller
    ) -> registration_pb.RegistrationStatusResponse:
        """Take note of what came of the registration. The kubelet tries a refused one again by itself."""
        if request.plugin_registered:
            try:
                self._announce()
            except PluginError as error:
                self.refusal.set(str(error))
                raise  # fails the call, and the kubelet starts over
        else:
            LOG.warning("the kubelet refused to register %s: %s", self._info.name, request.error)
        self._accepted = request.plugin_registered
        self.refusal.set(None if self._accepted else request.error or "no reason given")
        self.registered.set(self._accepted)
        return registration_pb.RegistrationStatusResponse()

    def stream_opened(self) -> None:
        """A health stream began."""
        self._streams += 1
        self.registered.set(self._accepted)

    def stream_ended(self) -> None:
        """A health stream ended."""
        self._streams -= 1
        if self._streams == 0:
            self.registered.set(False)

    def lost(self) -> None:
        """The registration socket vanished, or goes away now: the kubelet takes us out until it says otherwise."""
        self._accepted = False
        self.registered.set(False)


class HealthService:
    """Streams the newest health report; a report is renewed only by whoever made it."""

    def __init__(self, health: Latest[HealthReport] | None, registration: Registration, stopping: Latest[bool]) -> None:
        """Stream ``health``; without one the streams say nothing, and still tell that the kubelet is there."""
        self._health: Latest[HealthReport] = Latest(()) if health is None else health
        self._registration = registration
        self._stopping = stopping

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the gRPC handlers of health v1 and v1alpha1."""
        read = health_pb.NodeWatchResourcesRequest.FromString
        method = grpc.unary_stream_rpc_method_handler(
            self.watch, request_deserializer=read, response_serializer=_serialize
        )
        return tuple(
            grpc.method_handlers_generic_handler(HEALTH.format(version), {"NodeWatchResources": method})
            for version in ("v1", "v1alpha1")
        )

    async def watch(
        self, _request: health_pb.NodeWatchResourcesRequest, _context: Caller
    ) -> AsyncIterator[health_pb.NodeWatchResourcesResponse]:
        """Send what is due at once, at each change, and every few seconds; ends when the server stops."""
        self._registration.stream_opened()
        try:
            async with contextlib.aclosing(self._reports()) as reports:
                async for report in reports:
                    yield health_pb.NodeWatchResourcesResponse(devices=[_health_message(each) for each in report])
        finally:
            self._registration.stream_ended()

    async def _reports(self) -> AsyncGenerator[HealthReport, None]:
        loop = asyncio.get_running_loop()
        sent: dict[tuple[str, str], DeviceHealth] = {}
        beat = loop.time()  # the next time at which even an empty report goes out
        async with contextlib.aclosing(follow(self._health, self._stopping, until=lambda: beat)) as states:
            async for report, stopping in states:
                if stopping:
                    return
                repeat = loop.time() >= beat
                beat = loop.time() + HEARTBEAT if repeat else beat  # news of one device puts off no other's
                fresh = due(report, sent, time.time(), repeat=repeat)
                if fresh or repeat:
                    sent.update({(each.pool, each.device): each for each in fresh})
                    yield fresh


def due(
    report: HealthReport, sent: dict[tuple[str, str], DeviceHealth], now: float, *, repeat: bool = False
) -> HealthReport:
    """Return what of the report may go out, given what went out last on this stream.

    The kubelet counts a report's age from its receipt. So HEALTHY is not sent again until it was looked at again, and
    not at all when it is older than its own timeout: a driver that stopped looking goes stale by itself. Bad news, and
    reports without times of looks (their maker's word for now), are repeated when ``repeat`` is set.
    """

    def fresh(each: DeviceHealth) -> bool:
        bound = each.looked_at and each.health is Health.HEALTHY
        if sent.get((each.pool, each.device)) == each:
            return repeat and not bound
        return not bound or now - each.looked_at < (each.timeout or KUBELET_TIMEOUT)

    return tuple(each for each in report if fresh(each))


def verified(claim: Claim, devices: tuple[PreparedDevice, ...]) -> tuple[PreparedDevice, ...]:
    """Return the plugin's answer, or raise ClaimError when it names what the allocation does not hold.

    The kubelet does not compare: a wrong name would only show as a container without its device.
    """
    allowed: dict[tuple[str, str, str | None], set[str]] = {}
    for result in claim.results:
        allowed.setdefault((result.pool, result.device, result.share_id), set()).add(main_request(result.request))
    for device in devices:
        requests = allowed.get((device.pool, device.device, device.share_id))
        if requests is None:
            where = f"the allocation of {claim.ref} with share ID {device.share_id}"
            raise ClaimError(f"driver bug: {device.pool}/{device.device} is not in {where}")
        if unknown := {main_request(each) for each in device.requests} - requests:
            raise ClaimError(f"driver bug: {device.device} was not allocated for request {', '.join(sorted(unknown))}")
    return devices


def _ours(ref: ClaimRef, stored: ResourceClaim | None, driver: str) -> Claim:
    """Return what the claim holds for this driver, or raise the ClaimError that says why it cannot be prepared."""
    if stored is None:
        raise ClaimError(f"ResourceClaim {ref} does not exist")
    if stored.metadata.uid != ref.uid:
        raise ClaimError(f"ResourceClaim {ref} was replaced: its UID is {stored.metadata.uid}, not {ref.uid}")
    if stored.status is None or stored.status.allocation is None:
        raise ClaimError(f"ResourceClaim {ref} is not allocated")
    claim = Claim.for_driver(stored, driver)
    if not claim.results:
        raise ClaimError(f"ResourceClaim {ref} has no device of driver {driver} in its allocation")
    return claim


def _until(now: float, remaining: float | None) -> float | None:
    """Return the loop's time at which a caller with so many seconds left is answered in any case."""
    return None if remaining is None else now + remaining - min(MARGIN, remaining / 10)


def _message(device: PreparedDevice) -> dra_pb.Device:
    return dra_pb.Device(
        request_names=dict.fromkeys(main_request(request) for request in device.requests),
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id or None,
    )


def _health_message(device: DeviceHealth) -> health_pb.DeviceHealth:
    return health_pb.DeviceHealth(
        device=health_pb.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
        health=_health_value(device.health.name),
        last_updated_time=device.looked_at,
        health_check_timeout_seconds=device.timeout,
        message=device.message,
    )


@functools.cache
def _health_value(name: str) -> health_pb.HealthStatus.ValueType:
    return health_pb.HealthStatus.Value(name)


def _unary(method: Callable[..., Any], request: type[Message]) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=request.FromString, response_serializer=_serialize
    )


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
