"""The device flow of coding agents (RFC 8628), as Claude Code signs in to a gateway: without a client_id or a secret.

The agent asks for a code, a person approves it on `/console/device`, and the agent polls the token endpoint. Refresh
tokens rotate. The same token endpoint serves registered applications (`endpoints`), which name themselves.
"""

from urllib.parse import quote

from msgspec import UNSET

from gateway.accounts.device_codes import PAGE, REFUSALS
from gateway.admin.agent_sign_in import CLIENT
from gateway.callers import scopes as scopes_module
from gateway.callers.throttle import ThrottleGate
from gateway.errors import Conflict, NotFound, RateLimited
from gateway.oauth.grant_values import IssuedTokens
from gateway.oauth.grants import ACCESS_LIFETIME_S, AlreadyUsed
from gateway.surfaces.oauth.oauth_answers import (
    ClientForm,
    OAuthDeviceCodeAnswer,
    OAuthErrorAnswer,
    OAuthRevokedAnswer,
    OAuthTokensAnswer,
    RevocationForm,
    TokenForm,
)
from gateway.surfaces.web.answer_structs import ModelApiAnswer
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

MINUTE_S = 60
# A minute, from one client address.
CODES = 30
POLLS = 120
MAX_CODE_LENGTH = 256
NO_CACHE = ("Pragma", "no-cache")
INVALID = "The refresh token is unknown, used, expired or revoked. Sign in again."


def start(services: Services, inbound: Inbound) -> Outbound:
    """Begin the sign-in of a coding agent: a device code, and the page where a person approves it."""
    services.management.throttle.take(ThrottleGate("agent device codes", inbound.peer, CODES, MINUTE_S))
    grant = services.management.devices.start(CLIENT, inbound.peer)
    page = inbound.base_url.rstrip("/") + PAGE
    return _reply(
        inbound,
        OAuthDeviceCodeAnswer(
            grant.device_code,
            grant.user_code,
            page,
            f"{page}?user_code={quote(grant.user_code)}",
            grant.expires_in_s,
            grant.interval_s,
        ),
    )


def collect(services: Services, inbound: Inbound, form: TokenForm) -> Outbound:
    """Return the tokens of an approved request, or its state."""
    try:
        services.management.throttle.take(ThrottleGate("agent device polls", inbound.peer, POLLS, MINUTE_S))
    except RateLimited:
        return _refuse(inbound, *REFUSALS["slow_down"])
    if form.client_id not in (UNSET, CLIENT):
        return _refuse(inbound, "invalid_client", "This client cannot use device codes here.", 401)
    code = form.device_code or ""
    if not 0 < len(code) <= MAX_CODE_LENGTH:
        return _refuse(inbound, "invalid_request", "device_code is missing.")
    try:
        status, issued, email = services.management.agent_sign_in.collect(code)
    except Conflict:
        return _refuse(inbound, *REFUSALS["denied"])
    if issued is None:
        return _refuse(inbound, *REFUSALS[status])
    # The agent shows the address, and asks the person to confirm it.
    return _give(inbound, issued, email)


def is_anonymous(form: ClientForm, authorization: str) -> bool:
    """Return whether the request is of a coding agent: applications name and authenticate themselves."""
    return not authorization and form.client_id in (UNSET, CLIENT) and form.client_secret is UNSET


def refresh(services: Services, inbound: Inbound, form: TokenForm) -> Outbound | None:
    """Replace a refresh token; None if it belongs to an application. Status 401 asks the agent to sign in again (its
    own convention; RFC 6749 has 400)."""
    grants = services.accounts.oauth.grants
    token = grants.find_token((form.refresh_token or "")[:MAX_CODE_LENGTH])
    if token is not None and token.client != CLIENT:
        return None
    if token is None or token.kind != "refresh":
        return _refuse(inbound, "invalid_grant", INVALID, 401)
    try:
        issued = grants.refresh(token, scopes_module.AGENT)
    except (AlreadyUsed, NotFound, Conflict):
        return _refuse(inbound, "invalid_grant", INVALID, 401)
    return _give(inbound, issued)


def revoke(services: Services, inbound: Inbound, form: RevocationForm) -> Outbound | None:
    """Revoke a token of a coding agent; None if it is no such token."""
    grants = services.accounts.oauth.grants
    token = grants.find_token(form.token[:MAX_CODE_LENGTH])
    if token is None or token.client != CLIENT:
        return None
    grants.end_token(token)
    return _reply(inbound, OAuthRevokedAnswer())


def _give(inbound: Inbound, issued: IssuedTokens, email: str = "") -> Outbound:
    return _reply(
        inbound,
        OAuthTokensAnswer(
            access_token=issued.access,
            token_type="Bearer",
            expires_in=ACCESS_LIFETIME_S,
            refresh_token=issued.refresh,
            scope=issued.scope,
            email=email or UNSET,
        ),
    )


def _refuse(inbound: Inbound, error: str, description: str, status: int = 400) -> Outbound:
    return _reply(inbound, OAuthErrorAnswer(error, description), status)


def _reply(inbound: Inbound, answer: ModelApiAnswer, status: int = 200) -> Outbound:
    return json_reply(answer.encode(), inbound.shown_id, status, [NO_CACHE])
