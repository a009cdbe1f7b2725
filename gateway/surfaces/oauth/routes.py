"""The operations of the authorization server."""

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from msgspec import UNSET, Struct, structs

from gateway.callers import scopes as scopes_module
from gateway.callers.throttle import ThrottleGate
from gateway.errors import Forbidden, GatewayError, InvalidRequest, NotFound, RequestTooLarge, Unauthenticated
from gateway.oauth.clients import REFRESH, InvalidMetadata
from gateway.oauth.grant_values import OAuthCall
from gateway.surfaces.oauth import device_sign_in
from gateway.surfaces.oauth.oauth_answers import DEVICE_GRANT as OAUTH_ANSWERS_DEVICE
from gateway.surfaces.oauth.oauth_answers import (
    ClientRegistration,
    DeviceForm,
    Form,
    LogoutForm,
    OAuthAuthorizationServerAnswer,
    OAuthClientAnswer,
    OAuthDeviceCodeAnswer,
    OAuthErrorAnswer,
    OAuthProtectedResourceAnswer,
    OAuthRevokedAnswer,
    OAuthTokensAnswer,
    RevocationForm,
    TokenForm,
    known_members,
    read_form,
)
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web.answer_structs import Answer, ModelApiAnswer, describe_answer
from gateway.surfaces.web.http import About, ErrorFormat, Handler, Inbound, Operation, Outbound, Surface
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

# `/oauth/register`, `/oauth/token` and `/oauth/revoke`: endpoints that applications call without a person.

MINUTE_S = 60
DAY_S = 86_400
# From one address: hosted applications have many people behind one.
REGISTRATIONS_PER_MINUTE = 30
REGISTRATIONS_PER_DAY = 1_000
TOKENS = 300
MAX_FORM_BYTES = 16_384
MAX_FIELDS = 40
FORM_TYPE = "application/x-www-form-urlencoded"
JSON = "application/json"

# Kinds of the gateway's own errors in the words of RFC 6749, section 5.2; any other is the caller's request.
ERROR_CODES = {
    "unauthenticated": "invalid_client",
    "rate_limited": "temporarily_unavailable",
    "unavailable": "temporarily_unavailable",
    "internal": "server_error",
}


def error_body(error: GatewayError, request_id: str) -> dict[str, Any]:
    answer = OAuthErrorAnswer(ERROR_CODES.get(error.kind, "invalid_request"), error.message)
    return structs.asdict(answer)


ERRORS = ErrorFormat(
    "oauth",
    error_body,
    describe_answer(OAuthErrorAnswer),
)


def register(services: Services, inbound: Inbound) -> Outbound:
    """Register an application. With an API key it can get tokens of that key by the client credentials grant."""
    gates = [
        ThrottleGate("applications registered", inbound.peer, REGISTRATIONS_PER_MINUTE, MINUTE_S),
        ThrottleGate("applications registered, a day", inbound.peer, REGISTRATIONS_PER_DAY, DAY_S),
    ]
    services.management.throttle.take(*gates)
    given = known_members(ClientRegistration, _read_json(inbound))
    key_id, generation = _key_of(services, inbound, given)
    try:
        client, secret, created_at = services.accounts.oauth.clients.register(given, key_id, generation, inbound.peer)
    except InvalidMetadata as problem:
        return _reply(inbound, OAuthErrorAnswer(problem.error, problem.description), 400)
    answer = OAuthClientAnswer(client_id=client.id, client_id_issued_at=created_at, **client.metadata)
    if secret:
        answer.client_secret = secret
        answer.client_secret_expires_at = 0
    return _reply(inbound, answer, 201)


def give_tokens(services: Services, inbound: Inbound) -> Outbound:
    """Tokens in exchange for a code, a device code, a refresh token, or by client credentials registered with an API
    key."""
    form = _begin(services, inbound, TokenForm)
    if form.grant_type == OAUTH_ANSWERS_DEVICE:
        return device_sign_in.collect(services, inbound, form)
    if form.grant_type == REFRESH and device_sign_in.is_anonymous(form, inbound.header("authorization")):
        answer = device_sign_in.refresh(services, inbound, form)
        if answer is not None:
            return answer
    return _ask(inbound, form, services.accounts.oauth.server.give_tokens, OAuthTokensAnswer)


def revoke(services: Services, inbound: Inbound) -> Outbound:
    """Revoke a token."""
    form = _begin(services, inbound, RevocationForm)
    if device_sign_in.is_anonymous(form, inbound.header("authorization")):
        answer = device_sign_in.revoke(services, inbound, form)
        if answer is not None:
            return answer
    return _ask(inbound, form, services.accounts.oauth.server.revoke, OAuthRevokedAnswer)


def _begin(services: Services, inbound: Inbound, kind: type[Form]) -> Form:
    services.management.throttle.take(ThrottleGate("tokens", inbound.peer, TOKENS, MINUTE_S))
    return read_form(kind, read_fields(inbound))


def _ask(
    inbound: Inbound,
    form: Struct,
    work: Callable[[OAuthCall], Any],
    success: type[ModelApiAnswer],
) -> Outbound:
    fields = {name: value for name, value in structs.asdict(form).items() if value is not UNSET}
    fields.pop("token_type_hint", None)  # token_type_hint is optional (RFC 7009, section 2.1)
    authorization = inbound.header("authorization")
    given = OAuthCall(fields, authorization, inbound.base_url.rstrip("/"))
    status, body, headers = work(given)
    answer = success(**body) if status == HTTPStatus.OK else OAuthErrorAnswer(**body)
    return _reply(inbound, answer, status, headers)


def read_fields(inbound: Inbound) -> dict[str, str]:
    """The fields of a form or a JSON object. InvalidRequest; RequestTooLarge."""
    kind = inbound.header("content-type").lower()
    if JSON in kind:
        return {name: value for name, value in _read_json(inbound).items() if isinstance(value, str)}
    if FORM_TYPE not in kind:
        raise InvalidRequest(f"Send the body as {FORM_TYPE}.")
    text = _text_of(inbound)
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise InvalidRequest("The body is not a valid form.") from None
    # RFC 8707 lets a resource be named more than once, RFC 6749 nothing else.
    names = [name for name, _ in pairs if name != "resource"]
    if len(names) != len(set(names)):
        raise InvalidRequest("A parameter is repeated.")
    return dict(pairs)


def _read_json(inbound: Inbound) -> dict[str, Any]:
    if JSON not in inbound.header("content-type").lower():
        raise InvalidRequest(f"Send the body as {JSON}.")
    try:
        given = json.loads(_text_of(inbound))
    except (ValueError, RecursionError):
        raise InvalidRequest("The body is not valid JSON.") from None
    if not isinstance(given, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return given


def _text_of(inbound: Inbound) -> str:
    if len(inbound.body) > MAX_FORM_BYTES:
        raise RequestTooLarge(f"The body must have at most {MAX_FORM_BYTES} bytes.", status=400)
    try:
        text = inbound.body.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not valid UTF-8.") from None
    if "\0" in text or "\\u0000" in text or "%00" in text:
        raise InvalidRequest("The body must not contain NUL characters.")
    return text


def _key_of(services: Services, inbound: Inbound, given: dict[str, Any]) -> tuple[str, int]:
    """Id and generation of the API key that came along, "" without one. Unauthenticated where it is none of a
    person."""
    token = auth_module.token_of(inbound) or given.get("api_key")
    if not token:
        return "", 0
    if not isinstance(token, str):
        raise InvalidRequest("api_key must be a string.")
    caller = services.accounts.authentication.caller(token)
    if caller.key_kind != "user":
        raise Unauthenticated("A customer key cannot register applications. Use a project API key.")
    return caller.key_id, services.accounts.oauth.grants.generation_of(caller.key_id)


def _reply(
    inbound: Inbound, answer: ModelApiAnswer, status: int = 200, headers: list[tuple[str, str]] | None = None
) -> Outbound:
    return json_reply(answer, inbound.shown_id, status, [device_sign_in.NO_CACHE, *(headers or ())])


# Metadata documents that lead applications from `/mcp` to a token: the protected resource's (RFC 9728) and the
# authorization server's (RFC 8414), at the server's root and below the path of the resource and of a public URL that
# has one.

DOCUMENTATION = "/docs"


def show_resource(services: Services, inbound: Inbound) -> Outbound:
    """Return the authorization servers that issue the tokens that `/mcp` accepts."""
    base = _base_of(inbound)
    answer = OAuthProtectedResourceAnswer(scopes_module.resource_of(base), [base], base + DOCUMENTATION)
    return json_reply(answer, inbound.shown_id)


def show_server(services: Services, inbound: Inbound) -> Outbound:
    """The endpoints and capabilities of the authorization server."""
    base = _base_of(inbound)
    answer = OAuthAuthorizationServerAnswer(
        issuer=base,
        authorization_endpoint=f"{base}/oauth/authorize",
        token_endpoint=f"{base}/oauth/token",
        registration_endpoint=f"{base}/oauth/register",
        device_authorization_endpoint=f"{base}/oauth/device_authorization",
        revocation_endpoint=f"{base}/oauth/revoke",
        service_documentation=base + DOCUMENTATION,
    )
    return json_reply(answer, inbound.shown_id)


def _base_of(inbound: Inbound) -> str:
    """Our address as callers see it. NotFound below a path that is neither the resource's nor ours."""
    base = inbound.base_url.rstrip("/")
    own = urlsplit(base).path.strip("/")
    named = inbound.params.get("place", "").strip("/")
    if named not in ("", own, f"{own}{scopes_module.PATH}".strip("/"), scopes_module.PATH.strip("/")):
        raise NotFound(f"There is nothing at {inbound.path[:200]}.")
    return base


# `/oauth/back-channel-logout/…`: identity providers end sessions (OpenID Connect Back-Channel Logout).


def log_out(services: Services, inbound: Inbound) -> Outbound:
    """End the sessions that a logout token of an identity provider names. The provider calls this."""
    try:
        form = read_form(LogoutForm, read_fields(inbound))
        services.sso.service.log_out(inbound.params["provider_id"], form.logout_token, inbound.peer)
    except (Forbidden, InvalidRequest, NotFound) as error:
        body = {"error": "invalid_request", "error_description": error.message}
        return json_reply(body, inbound.shown_id, 400)
    return json_reply({}, inbound.shown_id)


TAG = "OAuth"
RESOURCE = OAuthProtectedResourceAnswer
SERVER = OAuthAuthorizationServerAnswer


def _document(path: str, handler: Handler, summary: str, answer: type[Answer]) -> tuple[Operation, ...]:
    about = About(summary, TAG, access="none", answer=answer)
    below = About(f"{summary}, below a path", TAG, access="none", answer=answer, errors=(404,))
    return Operation("GET", path, handler, about=about), Operation("GET", f"{path}/<path:place>", handler, about=below)


def _form(summary: str, body: type, answer: type[Answer], example: dict[str, Any] | None = None) -> About:
    """Describe an operation that accepts a form, as the standards require, or the same members as JSON."""
    return About(summary, TAG, body, answer=answer, errors=(400, 401, 429), access="none",
                 form=body, form_media=FORM_TYPE, example=example)  # fmt: skip


REGISTER = About("Register an application", TAG, ClientRegistration, answer=OAuthClientAnswer, success=(201,),
                 access="optional", example={"client_name": "An editor", "redirect_uris": ["http://localhost:8123/cb"],
                                             "grant_types": ["authorization_code"]})  # fmt: skip
CLIENT = {"client_id": "0" * 32, "client_secret": "0" * 43}
TOKEN = _form("Issue tokens to an application", TokenForm, OAuthTokensAnswer,
              {"grant_type": "client_credentials", **CLIENT})  # fmt: skip
DEVICE = _form("Start the sign-in of a coding agent", DeviceForm, OAuthDeviceCodeAnswer)
REVOKE = _form("Revoke a token", RevocationForm, OAuthRevokedAnswer, {"token": "llmgat_" + "0" * 40, **CLIENT})
LOGOUT = _form("End sessions by a logout token of an identity provider", LogoutForm, OAuthRevokedAnswer)

OPERATIONS: tuple[Operation, ...] = (
    *_document("/.well-known/oauth-protected-resource", show_resource, "The protected resource",
               RESOURCE),
    *_document("/.well-known/oauth-authorization-server", show_server, "The authorization server",
               SERVER),
    *_document("/.well-known/openid-configuration", show_server,
               "The same for clients of OpenID Connect", SERVER),
    # Some look for it below the resource's own address (RFC 8414, 5, as OpenID Connect has it).
    Operation("GET", "/mcp/.well-known/openid-configuration", show_server,
              about=About("The same, for the path of a resource", TAG, access="none", answer=SERVER)),
    Operation("POST", "/oauth/register", register, body="any", about=REGISTER),
    Operation("POST", "/oauth/device_authorization", device_sign_in.start, body="any", about=DEVICE),
    Operation("POST", "/oauth/token", give_tokens, body="any", about=TOKEN),
    Operation("POST", "/oauth/revoke", revoke, body="any", about=REVOKE),
    Operation("POST", "/oauth/back-channel-logout/<provider_id>", log_out, body="any",
              about=LOGOUT),
)  # fmt: skip
# Below these even a path that no operation matches (a line feed in it, say) gets an error of the standard.
SURFACE = Surface("oauth", ERRORS, OPERATIONS, prefixes=("/oauth", "/.well-known"))
