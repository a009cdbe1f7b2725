"""`/oauth/authorize`: the page on which a person authorizes an application to act for them, with one of their API
keys; `/console/device`: the same for a program without a browser."""

from urllib.parse import parse_qsl, quote, urlencode

from gateway.admin.agent_sign_in import CLIENT, CLIENT_NAME
from gateway.callers.scopes import ABILITIES
from gateway.callers.throttle import ThrottleGate
from gateway.errors import GatewayError, InvalidRequest, NotFound, Unauthenticated
from gateway.oauth import authorization, clients
from gateway.oauth.authorization import MAX_STATE_LENGTH, AuthorizationRejected, AuthorizationRequest, Parameters
from gateway.oauth.clients import ADDRESS
from gateway.oauth.grant_values import Consent
from gateway.surfaces.console.pages import SAFE, page
from gateway.surfaces.console.visits import (
    as_page,
    check_csrf,
    find_visitor,
    make_csrf,
    pressed,
    require_visitor,
    submitted,
    submitted_by_visitor,
)
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, TextField
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

PATH = "/oauth/authorize"
TITLE = "Connect an application"
MINUTE_S = 60
VIEWS = 120  # a minute, from one network
MAX_QUERY_LENGTH = 6_000
MAX_FIELDS = 40
TOP_LEVEL = "document"  # the value of Sec-Fetch-Dest for a page that the person sees


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show the consent page, after sign-in. Errors of the application's request are reported to the application."""
    _throttle(services, inbound)
    parameters = _parse(inbound.query)
    if any(client_id.startswith(ADDRESS) for client_id in parameters.get("client_id", ())):
        # The gateway fetches the description at this URL, which it does for signed-in people only.
        if authorization.is_silent(parameters) and find_visitor(services, inbound) is None:
            raise Unauthenticated("You are not signed in, and the application asked for an answer without a page.")
        require_visitor(services, inbound, _target(parameters))
    try:
        request = _read(services, inbound, parameters)
        if authorization.is_silent(parameters):
            raise request.refuse_silently(find_visitor(services, inbound) is not None)
    except AuthorizationRejected as rejection:
        return _reject(services, inbound, parameters, rejection)
    return _page(services, inbound, require_visitor(services, inbound, _target(parameters)), parameters, request)


def _reject(services: Services, inbound: Inbound, parameters: Parameters, rejection: AuthorizationRejected) -> Outbound:
    """Return to the application with the error.

    A redirect to another site happens only if the person has authorized the application before, or if the application
    wants an answer without a page (prompt=none) and the browser states that it shows none of it to the person, as in a
    hidden frame. Other people get a page with a link.
    """
    if not rejection.redirects_to_website:
        return _redirect(rejection.location)
    if not authorization.is_silent(parameters):
        visitor: Visitor | None = require_visitor(services, inbound, _target(parameters))
    elif inbound.header("sec-fetch-dest") not in (TOP_LEVEL, ""):
        return _redirect(rejection.location)
    else:
        visitor = find_visitor(services, inbound)
    if visitor is not None and _has_authorized(services, visitor, rejection.client.id):
        return _redirect(rejection.location)
    return page(
        inbound,
        "oauth_error.html",
        TITLE,
        400,
        client=rejection.client.name,
        text=rejection.description,
        location=rejection.location,
        host=clients.host_of(rejection.location),
    )


def _has_authorized(services: Services, visitor: Visitor, client_id: str) -> bool:
    grants = services.accounts.oauth.grants.list_grants(
        user_id=visitor.user_id, organization_ids=list(visitor.memberships)
    )
    return any(grant.client == client_id for grant in grants)


def decide(services: Services, inbound: Inbound) -> Outbound:
    """Grant or deny access and return to the application."""
    form = submitted(services, inbound)
    _throttle(services, inbound)
    parameters = _parse(form.get("request", ""))
    visitor = require_visitor(services, inbound, _target(parameters))
    try:
        request = _read(services, inbound, parameters)
    except AuthorizationRejected as rejection:
        return _reject(services, inbound, parameters, rejection)
    check_csrf(services, visitor, _subject(parameters), form)
    if not pressed({"allow": True, "deny": False}, form, "decision"):
        return _redirect(request.deny())
    key_id = form.get("key", "")[:80]
    try:
        if key_id not in {known for known, _, _ in _keys_of(services, visitor)}:
            raise NotFound("You have no active API key with this id.")
        code = services.accounts.oauth.grants.allow(_consent(request, visitor, key_id))
    except NotFound as error:
        return _page(services, inbound, visitor, parameters, request, error)
    return _redirect(request.response_url(code=code))


def _parse(query: str) -> Parameters:
    """Return the parameters of a query. Raises InvalidRequest."""
    try:
        pairs = parse_qsl(query[: MAX_QUERY_LENGTH + 1], keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        pairs = []
    if len(query) > MAX_QUERY_LENGTH or not pairs or any("\0" in value for pair in pairs for value in pair):
        raise InvalidRequest("This authorization request is invalid. Connect again in the application.")
    parameters: dict[str, list[str]] = {}
    for name, value in pairs:
        parameters.setdefault(name, []).append(value)
    return parameters


def _read(services: Services, inbound: Inbound, parameters: Parameters) -> AuthorizationRequest:
    """Validate the parameters. Raises InvalidRequest or AuthorizationRejected."""
    return authorization.read_authorization(
        parameters, inbound.base_url.rstrip("/"), services.accounts.oauth.clients.find
    )


def _target(parameters: Parameters) -> str:
    """Return the path of this page with the parameters, to return to after sign-in."""
    return f"{PATH}?{_subject(parameters)}"


def _consent(request: AuthorizationRequest, visitor: Visitor, key_id: str) -> Consent:
    return Consent(
        client=request.client.id,
        client_name=request.client.name,
        redirect_uri=request.redirect_uri,
        redirect_host=authorization.shown_host(request)[:255],
        challenge=request.challenge,
        scope=request.scope,
        audience=request.audience,
        key_id=key_id,
        user_id=visitor.user_id,
    )


def _keys_of(services: Services, visitor: Visitor) -> list[tuple[str, str, str]]:
    """Return the person's keys in the organizations that the session reaches."""
    return services.accounts.oauth.grants.keys_of(visitor.user_id, list(visitor.memberships))


def _page(
    services: Services,
    inbound: Inbound,
    visitor: Visitor,
    parameters: Parameters,
    request: AuthorizationRequest,
    error: GatewayError | None = None,
) -> Outbound:
    described_at = ""
    if request.client.id.startswith(ADDRESS):
        described_at = request.client.id
    return page(
        inbound,
        "authorize.html",
        TITLE,
        error=error,
        form_redirects=True,
        client=request.client.name,
        described_at=described_at,
        host=authorization.shown_host(request),
        email=visitor.session.email,
        abilities=[ABILITIES[scope] for scope in request.scope.split()],
        keys=_keys_of(services, visitor),
        request=_subject(parameters),
        csrf=make_csrf(services, visitor, _subject(parameters)),
    )


def _subject(parameters: Parameters) -> str:
    """Return the parameters as a query: the CSRF token of the form is bound to it."""
    return urlencode([(name, value) for name, values in parameters.items() for value in values])


def _redirect(location: str) -> Outbound:
    """Redirect to the application."""
    return Outbound(302, [("Location", location), *SAFE])


def _throttle(services: Services, inbound: Inbound) -> None:
    services.management.throttle.take(ThrottleGate("application authorizations", inbound.peer, VIEWS, MINUTE_S))


class AuthorizationQuery(Body):
    """The query parameters of the authorization endpoint (RFC 6749, RFC 7636, RFC 8707), for the API description."""

    response_type = OneOf(("code",), required=True)
    client_id = TextField(required=True, about="The client id from /oauth/register.")
    redirect_uri = TextField(maximum=2000, about="One of the application's registered addresses.")
    code_challenge = TextField(required=True, about="The SHA-256 of the PKCE verifier, base64url.")
    code_challenge_method = OneOf(("S256",), required=True)
    scope = TextField(about="Scopes, separated by spaces.")
    state = TextField(maximum=MAX_STATE_LENGTH, about="Returned unchanged.")
    prompt = TextField(about="none: an error instead of a page, as login_required.")
    resource = TextField(maximum=2000, about="The address of the MCP endpoint.")


ABOUT = About(
    "Authorize an application",
    "OAuth",
    query=AuthorizationQuery,
    answer=str,
    success=(200, 302, 303),
    access="none",
    media="text/html",
    alike=(400, 429),
)
OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show), about=ABOUT),
    Operation("POST", PATH, as_page(decide), body="form"),
)


# `/console/device`: the page on which a signed-in person approves or denies a device (RFC 8628, section 3.3).

MAX_CODE_LENGTH = 64
DEVICE = "/console/device"
APPROVED = "The device is signed in. You can close this page and return to the device."
DENIED = "The request was denied. You can close this page."


def show_device(services: Services, inbound: Inbound) -> Outbound:
    """Show the form for a code or, with a code, the request of its device. Requires sign-in."""
    code = _code_of(inbound.arguments())
    if not code:
        visitor = require_visitor(services, inbound, DEVICE)
        return page(inbound, "device_code.html", "Connect a device", visitor=visitor, email=visitor.session.email)
    visitor = require_visitor(services, inbound, f"{DEVICE}?user_code={quote(code)}")
    try:
        request = services.management.find_device(code, visitor.user_id)
    except GatewayError as error:
        return _ask_again(inbound, visitor, error)
    if request.status != "pending":
        return page(inbound, "message.html", "Connect a device", text="This code has already been used.")
    if request.client == CLIENT:
        choices = services.management.agent_sign_in.choices(visitor.user_id, visitor.memberships)
        template = "device_agent.html"
    else:
        choices = None
        template = "device.html"
    return page(
        inbound,
        template,
        "Connect a device",
        client=request.client,
        client_name=CLIENT_NAME,
        email=visitor.session.email,
        user_code=request.user_code,
        choices=choices,
        csrf=make_csrf(services, visitor, request.user_code),
    )


def decide_device(services: Services, inbound: Inbound) -> Outbound:
    """Approve or deny the device, depending on the button."""
    visitor, form = submitted_by_visitor(services, inbound, DEVICE, _code_of)
    approved = pressed({"approve": True, "deny": False}, form, "decision")
    try:
        if approved:
            workspace = visitor.workspace(inbound, form.get("project", "")[:80], form.get("team", "")[:80])
            login = visitor.session.sso_login
            services.management.approve_device(_code_of(form), visitor.user_id, workspace, login)
        else:
            services.management.deny_device(_code_of(form), visitor.user_id)
    except GatewayError as error:
        return _ask_again(inbound, visitor, error)
    text = APPROVED if approved else DENIED
    return page(inbound, "message.html", "Connect a device", text=text)


def _code_of(fields: dict[str, str]) -> str:
    return fields.get("user_code", "")[:MAX_CODE_LENGTH]


def _ask_again(inbound: Inbound, visitor: Visitor, error: GatewayError) -> Outbound:
    if error.blame != "caller":
        raise error
    return page(
        inbound, "device_code.html", "Connect a device", error=error, visitor=visitor, email=visitor.session.email
    )


DEVICE_OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", DEVICE, as_page(show_device)),
    Operation("POST", DEVICE, as_page(decide_device), body="form"),
)
