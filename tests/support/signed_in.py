"""A browser with the session of a gateway's owner."""

from support.chromium import Chromium
from support.gateways import LocalGateway

from gateway.accounts.members import list_members


def sign_in(browser: Chromium, gateway: LocalGateway) -> None:
    """Give the browser the cookie of a session of the owner of the gateway's first organization."""
    members = list_members(gateway.services.store.database, gateway.organization_id)
    token = gateway.services.management.sessions.open(members[0].user_id).token
    browser.ask("Network.setCookie", name="llmgateway.session_token", value=token, url=gateway.address)
