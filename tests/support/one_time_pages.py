"""Pages that a person opens once: the first sign-in, an invitation, the consent to an application or a device."""

from typing import NamedTuple

import httpx
from support.gateways import LocalGateway
from support.oauth import App

from gateway.accounts.members import add_member, find_member, set_password
from gateway.accounts.organizations import create_organization
from gateway.admin.sign_in import make_link_token

NEW = "barbara@acme.example"
KNOWN = "donald@other.example"
PASSWORD = "correct horse battery"
WEBSITE = "https://app.example/callback"


class OneTimePage(NamedTuple):
    """A page with the path that opens it. `signed_in`: the owner's session is needed."""

    name: str
    path: str
    signed_in: bool = False


def make_one_time_pages(gateway: LocalGateway, owner_id: str) -> list[OneTimePage]:
    """Prepare the pages; `owner_id` is the user who is signed in."""
    services = gateway.services
    stores = services.store.database, services.store.control
    owner = find_member(services.store.database, gateway.organization_id, owner_id)
    invite = services.management.invitations.invite
    for_new = invite(gateway.organization_id, NEW, "developer", actor=owner_id).token
    other = create_organization(*stores, "Other", actor="test").id
    known = add_member(*stores, other, KNOWN, "developer", actor="test")
    set_password(*stores, services.background.passwords, known.user_id, PASSWORD, actor="test")
    for_known = invite(gateway.organization_id, KNOWN, "admin", actor=owner_id).token
    link = make_link_token(services.store.database, services.store.secrets.hash_keys[0], owner.email)
    with httpx.Client(trust_env=False, timeout=60) as web:
        device = web.post(f"{gateway.address}/auth/device/code", json={"client_id": "llmgateway-cli"}).json()
        document = web.get(f"{gateway.address}/.well-known/oauth-authorization-server").json()
        agent = web.post(document["device_authorization_endpoint"], data={"surface": "claude_code"}).json()
    application = App(gateway.address, client_name="An editor").address()
    website = App(gateway.address, client_name="A website", redirect_uris=[WEBSITE])
    wrong = website.address(redirect_uri=WEBSITE, response_type="token")
    return [
        OneTimePage("welcome", f"/console/welcome?token={link}"),
        OneTimePage("invitation-new", f"/console/invitation?token={for_new}"),
        OneTimePage("invitation-known", f"/console/invitation?token={for_known}"),
        OneTimePage("invitation-other", f"/console/invitation?token={for_new}", signed_in=True),
        OneTimePage("consent", application.removeprefix(gateway.address), signed_in=True),
        OneTimePage("consent-error", wrong.removeprefix(gateway.address), signed_in=True),
        OneTimePage("device-code", f"/console/device?user_code={device['user_code']}", signed_in=True),
        OneTimePage("device-agent", f"/console/device?user_code={agent['user_code']}", signed_in=True),
        OneTimePage("invalid-link", "/console/reset?token=llmgtwy_reset_wrong"),
    ]
