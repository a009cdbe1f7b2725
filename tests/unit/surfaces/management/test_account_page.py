"""The page of a person's own account: the set-up of a second factor in a browser without scripts."""

import base64
import re
import time

from support.console import CSRF, browser_headers, open_page
from support.management import Person, Tenants

from gateway.accounts.identities import insert_identity
from gateway.accounts.second_factor import code_at

PATH = "/console/account"


def press(tenants: Tenants, who: Person, action: str, **fields: str) -> str:
    """Press a button of the page and return the text of the page that follows."""
    csrf = CSRF.findall(open_page(tenants, who, PATH))[-1]
    answer = tenants.client.post(PATH, headers=browser_headers(who), data={"csrf": csrf, "action": action, **fields})
    text: str = answer.text
    return text


def test_a_wrong_code_of_a_new_second_factor_does_not_end_its_set_up(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    secret = tenants.services.management.second_factors.begin(owner.user_id, "owner@acme.example").secret
    refused = press(tenants, owner, "confirm", code="000000")
    assert "The code is wrong" in refused and 'value="confirm"' in refused and secret not in refused
    code = code_at(base64.b32decode(secret), int(time.time()) // 30)
    confirmed = press(tenants, owner, "confirm", code=code)
    assert len(re.findall(r"^(?:.*>)?[0-9a-f]{5}-[0-9a-f]{5}", confirmed, re.M)) == 10
    assert "Enabled" in open_page(tenants, owner, PATH)


def test_a_person_signs_out_other_devices_one_by_one_or_all(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/members"

    def devices() -> set[str]:
        return set(re.findall(r'name="session" value="([^"]+)"', open_page(tenants, owner, PATH)))

    before = devices()
    lost, kept = tenants.open(owner.user_id), tenants.open(owner.user_id)
    for device in devices() - before:
        if tenants.call("GET", path, lost)[0] == 200:
            press(tenants, owner, "end", session=device)
    assert tenants.call("GET", path, lost)[0] == 401
    assert "was changed" in press(tenants, owner, "change", current="", chosen="correct horse battery")
    assert tenants.call("GET", path, kept)[0] == 401 and tenants.call("GET", path, owner)[0] == 200
    assert 'value="confirm"' in press(tenants, owner, "begin", password="correct horse battery")
    press(tenants, owner, "everywhere")
    assert tenants.call("GET", path, owner)[0] == 401


def test_the_identity_provider_of_an_organization_is_offered_to_its_members_until_it_is_connected(
    tenants: Tenants,
) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    body = {"name": "Acme SSO", "issuer": "https://id.acme.example", "clientId": "gateway", "clientSecret": "secret"}
    providers = f"/orgs/{owner.organization_id}/identity-providers"
    provider = tenants.ok("POST", providers, owner, body)["identityProvider"]["id"]
    connect = f"/console/sso/{provider}/connect"
    page = open_page(tenants, developer, PATH)
    assert connect in page and "<strong>Acme SSO</strong>" in page and ">Disconnect<" not in page
    assert connect not in open_page(tenants, tenants["rival owner"], PATH)
    values = (owner.organization_id, provider, "https://id.acme.example", "7", developer.user_id, "")
    database = tenants.services.store.database
    database.write(lambda: insert_identity(*values, actor=developer.user_id, now=database.now_us()))
    page = open_page(tenants, developer, PATH)
    assert connect not in page and "<strong>Acme SSO</strong>" in page and ">Disconnect<" in page


def test_only_own_passkeys_and_applications_can_be_changed(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    assert "You have no such passkey" in press(tenants, owner, "rename_passkey", passkey="passkey_of_another", name="x")
    assert "Unknown action" not in press(tenants, owner, "leave", application="grant_of_another")
    for action in ("add_passkey", "disconnect", "passkey_factor", "remove", "remove_passkey"):
        assert "Unknown action" not in press(tenants, owner, action)
    assert "Unknown action" in press(tenants, owner, "explode")
