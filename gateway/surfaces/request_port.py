"""Logged requests that are read again: the operation of their path reads the body, up to the point at which money would
be reserved."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
from msgspec import Struct

from gateway.billing.batch_reservation import LineMeasured, MeasuredLine
from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.engine.request_reading import ReadRequest, ResentRequest
from gateway.errors import GatewayError, Overloaded, Unavailable
from gateway.neutral.own_files import OwnFileNamed
from gateway.runtime.byte_budget import HeldBytes
from gateway.runtime.threads import holding
from gateway.surfaces.aisdk import routes as aisdk_routes
from gateway.surfaces.aisdk.reader import MODEL_HEADER
from gateway.surfaces.mcp import routes as mcp_routes
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import inlined_files as inlined_files_module
from gateway.surfaces.web.http import Inbound, Operation, Surface
from gateway.worker.services import Services

SHARE = 4  # bytes in memory for each byte of a body
HEADERS = {"content-type": "application/json"}
NO_TAGS: Mapping[str, str] = {}
VARIABLE = "<path:model>"
# A method that streams its answer, and the one that answers in one piece.
WHOLE = {":streamGenerateContent": ":generateContent"}
JOBS = frozenset(("/v1/videos",))


class KnownOperation(Struct, frozen=True):
    """An operation whose requests can be sent again. `in_header`: a header names the model."""

    operation: Operation
    pattern: re.Pattern[str]
    in_header: bool


class SurfaceRequests:
    """The RequestPort of a worker."""

    def __init__(self, services: Services, surfaces: Iterable[Surface]) -> None:
        self._services = services
        self._known = list(_list_known(surfaces))

    def can_resend(self, path: str) -> bool:
        return any(known.pattern.fullmatch(path) for known in self._known)

    def retarget(self, path: str, body: dict[str, Any], model: str) -> ResentRequest:
        known, params = self._find(path)
        if known.in_header:
            return ResentRequest(path, {MODEL_HEADER: model}, body)
        if not params:
            return ResentRequest(path, {}, body | {"model": model})
        target = known.operation.path
        for streamed, whole in WHOLE.items():
            target = target.replace(streamed, whole)
        return ResentRequest(target.replace(VARIABLE, model), {}, body)

    def read(self, caller: Caller, resent: ResentRequest, base_url: str, address: str) -> ReadRequest:
        services = self._services
        known, params = self._find(resent.path)
        body = orjson.dumps(resent.body)
        headers = {**HEADERS, **resent.headers}
        inbound = Inbound("POST", resent.path, headers, body, peer=address, base_url=base_url, params=params)
        inbound.caller = caller

        def begin(operation: str, surface: str) -> RequestContext:
            context = auth_module.begin_line(services, inbound, caller, operation, surface, NO_TAGS)
            context.job = MeasuredLine()
            inbound.payload = context.payload = None
            return context

        inbound.prepared = begin
        held = HeldBytes(services.background.bodies, caller.organization_id)
        bound_nusd = failure = None
        try:
            held.grow(len(body) * SHARE)
            with holding(held):
                self._run(known.operation, caller, inbound)
        except LineMeasured as measured:
            bound_nusd = measured.bound_nusd
        except (Unavailable, Overloaded):
            raise
        except GatewayError as error:
            failure = error.with_traceback(None)
        finally:
            held.release()
        return ReadRequest(inbound.context.request if inbound.context else None, bound_nusd, failure)

    def _run(self, operation: Operation, caller: Caller, inbound: Inbound) -> None:
        try:
            operation.handler(self._services, inbound)
        except OwnFileNamed as error:
            inbound.body = inlined_files_module.inline(self._services, caller, inbound.body, error)
            operation.handler(self._services, inbound)

    def _find(self, path: str) -> tuple[KnownOperation, dict[str, str]]:
        for known in self._known:
            found = known.pattern.fullmatch(path)
            if found is not None:
                return known, found.groupdict()
        raise AssertionError(f"requests at {path} cannot be sent again")


def _list_known(surfaces: Iterable[Surface]) -> Iterator[KnownOperation]:
    for surface in surfaces:
        if surface is mcp_routes.SURFACE:  # calls of tools
            continue
        for operation in surface.operations:
            if operation.method != "POST" or not operation.paid or operation.path in JOBS:
                continue
            before, variable, after = operation.path.partition(VARIABLE)
            model = "(?P<model>.+)" if variable else ""
            pattern = re.compile(re.escape(before) + model + re.escape(after), re.DOTALL)
            yield KnownOperation(operation, pattern, surface is aisdk_routes.SURFACE)


def attach(services: Services, surfaces: Iterable[Surface]) -> None:
    """Let pages of this worker read requests again."""
    services.engine.requests = SurfaceRequests(services, surfaces)
