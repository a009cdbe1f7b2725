"""`/oauth/authorize`: the page on which a person authorizes an application to act for them, with one of their API
keys."""

from urllib.parse import parse_qsl, urlencode

from gateway.accounts.throttle import ThrottleGate
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.oauth import authorization, redirects
from gateway.oauth.authorization import LONGEST_STATE, AuthorizationRequest, Parameters, TurnedDown
from gateway.oauth.clients import ADDRESS
from gateway.oauth.grant_values import Consent
from gateway.surfaces.console.pages import SAFE, page
from gateway.surfaces.console.visits import as_page, check_csrf, make_csrf, pressed, require_visitor, submitted
from gateway.surfaces.http import About, Inbound, Operation, Outbound
from gateway.surfaces.proxies import network_of
from gateway.surfaces.shapes import TEXT
from gateway.surfaces.validation_schemas import Body, OneOf, TextField
from gateway.surfaces.visitor import Visitor
from gateway.worker.services import Services

PATH = "/oauth/authorize"
TITLE = "Connect an application"
MINUTE_S, LOOKS = 60, 120  # from one address
LARGEST_QUERY = 6_000
MOST_FIELDS = 40
WORDS = {
    "mcp:tools": "call tools: models that answer and make images, reports on usage",
    "mcp:resources": "read resources (there are none yet)",
    "mcp:prompts": "read prompts (there are none yet)",
}


def show(services: Services, inbound: Inbound) -> Outbound:
    """Ask the person; who is not signed in does that first. What the application got wrong is said to it."""
    _throttle(services, inbound)
    given = _parse(inbound.query)
    if any(one.startswith(ADDRESS) for one in given.get("client_id", ())):
        require_visitor(services, inbound, _target(given))  # for nobody else is an address of theirs fetched
    try:
        request = _read(services, inbound, given)
    except TurnedDown as refusal:
        return _turn_down(services, inbound, given, refusal)
    return _page(services, inbound, require_visitor(services, inbound, _target(given)), given, request)


def _turn_down(services: Services, inbound: Inbound, given: Parameters, refusal: TurnedDown) -> Outbound:
    """Back to the application; to another site only where the person lets it in already, or chooses to go."""
    if not refusal.leads_elsewhere:
        return _lead(refusal.location)
    visitor = require_visitor(services, inbound, _target(given))
    grants = services.accounts.oauth.grants.list_grants(user_id=visitor.user_id)
    if any(one.client == refusal.client.id for one in grants):
        return _lead(refusal.location)
    return page(
        inbound,
        "turned_down.html",
        TITLE,
        400,
        client=refusal.client.name,
        text=refusal.description,
        location=refusal.location,
        host=redirects.host_of(refusal.location),
    )


def decide(services: Services, inbound: Inbound) -> Outbound:
    """Allow or deny, as the buttons of the page say, and go back to the application."""
    form = submitted(services, inbound)
    _throttle(services, inbound)
    given = _parse(form.get("request", ""))
    visitor = require_visitor(services, inbound, _target(given))
    try:
        request = _read(services, inbound, given)
    except TurnedDown as refusal:
        return _turn_down(services, inbound, given, refusal)
    check_csrf(services, visitor, _subject(given), form)
    if not pressed({"allow": True, "deny": False}, form, "decision"):
        return _lead(request.deny())
    try:
        code = services.accounts.oauth.grants.allow(_consent(request, visitor, form.get("key", "")[:80]))
    except NotFound as error:
        return _page(services, inbound, visitor, given, request, error)
    return _lead(request.answer(code=code))


def _parse(query: str) -> Parameters:
    """The parameters of a request. InvalidRequest."""
    try:
        pairs = parse_qsl(query[: LARGEST_QUERY + 1], keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        pairs = []
    if len(query) > LARGEST_QUERY or not pairs or any("\0" in value for pair in pairs for value in pair):
        raise InvalidRequest("This is no request of an application; connect again in the application.")
    given: dict[str, list[str]] = {}
    for name, value in pairs:
        given.setdefault(name, []).append(value)
    return given


def _read(services: Services, inbound: Inbound, given: Parameters) -> AuthorizationRequest:
    """The request that they make. InvalidRequest, TurnedDown."""
    return authorization.read(given, inbound.base_url.rstrip("/"), services.accounts.oauth.clients.find)


def _target(given: Parameters) -> str:
    """Our path with the parameters, to go on at after signing in."""
    return f"{PATH}?{_subject(given)}"


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


def _page(
    services: Services,
    inbound: Inbound,
    visitor: Visitor,
    given: Parameters,
    request: AuthorizationRequest,
    error: GatewayError | None = None,
) -> Outbound:
    described = request.client.id.startswith(ADDRESS)
    return page(
        inbound,
        "authorize.html",
        TITLE,
        error=error,
        leads_away=True,
        client=request.client.name,
        described_at=request.client.id if described else "",
        host=authorization.shown_host(request),
        email=visitor.session.email,
        abilities=[WORDS[one] for one in request.scope.split()],
        keys=services.accounts.oauth.grants.keys_of(visitor.user_id),
        request=_subject(given),
        csrf=make_csrf(services, visitor, _subject(given)),
    )


def _subject(given: Parameters) -> str:
    """All that the application asked, in one line."""
    return urlencode([(name, value) for name, values in given.items() for value in values])


def _lead(location: str) -> Outbound:
    """On to the application."""
    return Outbound(302, [("Location", location), *SAFE])


def _throttle(services: Services, inbound: Inbound) -> None:
    services.management.throttle.take(ThrottleGate("applications let in", network_of(inbound.peer), LOOKS, MINUTE_S))


class AuthorizationQuery(Body):
    """The query parameters of the authorization endpoint (RFC 6749, RFC 7636, RFC 8707), for the API description."""

    response_type = OneOf(("code",), required=True)
    client_id = TextField(required=True, metadata={"description": "The application, as /oauth/register named it."})
    redirect_uri = TextField(most=2000, metadata={"description": "One of the application's registered addresses."})
    code_challenge = TextField(required=True, metadata={"description": "The SHA-256 of the PKCE verifier, base64url."})
    code_challenge_method = OneOf(("S256",), required=True)
    scope = TextField(metadata={"description": "Scopes, separated by spaces."})
    state = TextField(most=LONGEST_STATE, metadata={"description": "Returned unchanged."})
    resource = TextField(most=2000, metadata={"description": "The address of the MCP endpoint."})


ABOUT = About(
    "Authorize an application",
    "OAuth",
    query=AuthorizationQuery,
    answer=TEXT,
    success=(200, 303),
    access="none",
    media="text/html",
    alike=(400, 429),
)
OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", PATH, as_page(show), about=ABOUT),
    Operation("POST", PATH, as_page(decide), body="form"),
)
