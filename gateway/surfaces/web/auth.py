"""Authentication of callers: the credentials of a request, and the context that the engine works with."""

from collections.abc import Mapping

from msgspec.structs import replace

from gateway.billing.context import MODELS_HEADER, PROVIDER_HEADER, HeaderOptions, RequestContext
from gateway.callers import scopes as scopes_module
from gateway.callers.authentication import Caller, is_access_token
from gateway.engine.retention import RETAIN
from gateway.errors import Forbidden, InvalidRequest, Unauthenticated, UnsupportedMediaType
from gateway.metering.session_ids import SESSIONS
from gateway.runtime.threads import work_for
from gateway.surfaces.web import attribution as attribution_module
from gateway.surfaces.web.http import KEY_HEADERS, LABEL_LENGTH, Inbound
from gateway.surfaces.web.model_options import read_headers
from gateway.transport.request_bytes import LOOP_HEADER
from gateway.worker.services import Services

# Optional headers of a caller; most requests have none of them.
OWN_HEADERS = frozenset(
    (
        *SESSIONS.headers,
        *SESSIONS.user_headers,
        "x-request-id",
        "x-no-fallback",
        "x-no-cache",
        "x-debug",
        "idempotency-key",
        LOOP_HEADER,
    )
)
LOOP = "The gateway sent this request to itself: a base URL of the organization points to the gateway."


def token_of(inbound: Inbound) -> str:
    """Return the API key from `Authorization: Bearer`, else from one of KEY_HEADERS; "" if there is none."""
    given = inbound.headers.get("authorization", "")
    if given.startswith("Bearer ") and (token := given[7:].strip()):
        return token
    scheme, _, value = given.strip().partition(" ")
    token = value.strip()
    if token and scheme.lower() == "bearer":
        return token
    return next(filter(None, map(inbound.header, KEY_HEADERS)), "")


def caller_of(services: Services, inbound: Inbound) -> Caller:
    """Return the caller of the request's key, or of its access token where those are accepted. Raises Unauthenticated
    (with what to do), Gone or Unavailable."""
    token = token_of(inbound)
    if inbound.prepared is not None and inbound.caller is not None:
        return inbound.caller
    if not token:
        raise Unauthenticated("Send your API key as 'Authorization: Bearer <key>' or in the header 'x-api-key'.")
    if is_access_token(token) and (audience := scopes_module.audience_at(inbound.path, inbound.base_url)):
        caller = services.accounts.oauth.callers.caller(token, audience)
    else:
        caller = services.accounts.authentication.caller(token)
    inbound.caller = caller
    work_for(caller.organization_id)
    return caller


def admit(
    services: Services, inbound: Inbound, operation: str, surface: str = "openai", form: bool = False
) -> RequestContext:
    """Check authentication first, then the content type, then the source address, and return the request's context.
    `form`: the body may be a multipart form as well as JSON."""
    sender = inbound.sender
    if sender is not None and sender.caller is not None and services.accounts.authentication.holds(sender.caller):
        work_for(sender.caller.organization_id)
        return _begin(services, inbound, sender.caller, sender.source, operation, surface)
    if inbound.prepared is not None:
        return inbound.prepared(operation, surface)
    caller = caller_of(services, inbound)
    headers = inbound.headers
    if not (form and inbound.upload is not None):
        require_json(inbound)
    source = services.accounts.sources.source(headers)
    context = _begin(services, inbound, caller, source, operation, surface)
    if _has_options(headers):
        _read_options(services, context, inbound)
    elif sender is not None and not caller.by_token:
        # An access token is valid at few paths, and what is cached here is valid at all of them.
        sender.caller = caller
        sender.source = source
    return context


def context_of(
    services: Services, inbound: Inbound, caller: Caller, operation: str, surface: str = "openai"
) -> RequestContext:
    """Return the context of a request for the engine: caller, time, label, session and gateway options."""
    context = _begin(services, inbound, caller, services.accounts.sources.source(inbound.headers), operation, surface)
    if _has_options(inbound.headers):
        _read_options(services, context, inbound)
    return context


def _begin(
    services: Services, inbound: Inbound, caller: Caller, source: str, operation: str, surface: str
) -> RequestContext:
    started = services.clock.monotonic()
    context = inbound.context = RequestContext(
        request_id=inbound.request_id,
        caller=caller,
        at_us=services.clock.now_us(),
        started=started,
        deadline=started + services.settings.timeouts.request_s,
        source=source,
        ip=inbound.peer,
        operation=operation,
        surface=surface,
        headers=inbound.headers,
    )
    if services.telemetry.tracing is not None:
        context.trace = services.telemetry.tracing.begin(inbound.request_id, inbound.headers)
    if caller.tags:
        context.metadata = dict(caller.tags)
        context.attribute()
    if caller.retention == RETAIN:
        inbound.payload = context.payload = services.engine.retention.begin(context, inbound.path, inbound.body)
    return context


def begin_line(
    services: Services, inbound: Inbound, caller: Caller, operation: str, surface: str, tags: Mapping[str, str]
) -> RequestContext:
    """Return the context of a request that is the line of a batch, with these metadata. Its answer is not cached."""
    context = _begin(services, inbound, caller, "", operation, surface)
    if _has_options(inbound.headers):
        _read_options(services, context, inbound)
    context.options = replace(context.options, no_cache=True)
    context.metadata = {**context.metadata, **tags}
    context.attribute()
    return context


def _has_options(headers: Mapping[str, str]) -> bool:
    """Return whether any header sets a gateway option or metadata. Nearly no request has one, so all names are searched
    at once."""
    return not OWN_HEADERS.isdisjoint(headers) or attribution_module.PREFIX in "\n".join(headers)


def _read_options(services: Services, context: RequestContext, inbound: Inbound) -> None:
    header = inbound.header
    if services.routing.transport.loop_mark in header(LOOP_HEADER):
        raise InvalidRequest(LOOP, code="request_loop")
    context.label = header("x-request-id")[:LABEL_LENGTH]
    choice = read_headers(header(MODELS_HEADER), header(PROVIDER_HEADER))
    context.metadata = attribution_module.read_headers(inbound.headers, context.metadata)
    attribution_module.read_session(context, inbound.headers)
    context.options = HeaderOptions(
        header("x-no-fallback").lower() == "true",
        header("x-no-cache").lower() == "true",
        header("x-debug").lower() == "true",
        choice,
        *attribution_module.read_budgets(inbound.headers),
    )
    context.attribute()


def require_json(inbound: Inbound) -> None:
    """Raise UnsupportedMediaType unless the Content-Type is JSON."""
    if "application/json" not in inbound.headers.get("content-type", "").lower():
        raise UnsupportedMediaType("Send the body as JSON with the header 'Content-Type: application/json'.")


def require_user_key(caller: Caller) -> Caller:
    """Raise Forbidden for customer keys, which may call models but not read the account."""
    if caller.key_kind != "user":
        raise Forbidden("This key may only call models; use a project API key to read account data.")
    return caller
