"""`/oauth/back-channel-logout/…`: identity providers end sessions (OpenID Connect Back-Channel Logout)."""

from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.oauth.endpoints import read_fields
from gateway.surfaces.oauth.oauth_requests import LogoutForm, read_form
from gateway.worker.services import Services


def log_out(services: Services, inbound: Inbound) -> Outbound:
    """End the sessions that a logout token of an identity provider names. The provider calls this."""
    try:
        form = read_form(LogoutForm, read_fields(inbound))
        services.sso.service.log_out(inbound.params["provider_id"], form.logout_token, inbound.peer)
    except (Forbidden, InvalidRequest, NotFound) as error:
        body = {"error": "invalid_request", "error_description": error.message}
        return json_reply(body, inbound.shown_id, 400)
    return json_reply({}, inbound.shown_id)
