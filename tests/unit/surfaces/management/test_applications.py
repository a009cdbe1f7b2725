"""People see the applications that hold tokens of their keys, and end their access; others' are not theirs to see."""

import re
from urllib.parse import urlencode

import pytest
from support.console import press_button
from support.management import Tenants
from support.management_bodies import allow

from gateway.surfaces.console import authorize


def names(answer) -> list[str]:
    return [application["id"] for application in answer["applications"]]


def test_people_see_their_own_and_managers_those_of_a_key(tenants: Tenants) -> None:
    developer, colleague, owner = (tenants[f"acme {role}"] for role in ("developer", "colleague", "owner"))
    application = allow(tenants, developer)
    [shown] = tenants.ok("GET", "/auth/applications", developer)["applications"]
    assert shown["name"] == "An editor" and shown["apiKeyId"] == developer.key.info.id and shown["scopes"]
    assert names(tenants.ok("GET", "/auth/applications", colleague)) == []
    path = f"/keys/api/{developer.key.info.id}/applications"
    assert names(tenants.ok("GET", path, owner)) == names(tenants.ok("GET", path, developer)) == [application]
    assert tenants.refused("GET", path, colleague).startswith("403")
    assert tenants.refused("GET", path, tenants["rival owner"]).startswith("403")


def test_people_who_may_change_the_key_may_revoke_an_application(tenants: Tenants) -> None:
    developer = tenants["acme developer"]
    application = allow(tenants, developer)
    path = f"/auth/applications/{application}"
    assert tenants.refused("DELETE", path, tenants["acme colleague"]).startswith("403")
    assert tenants.refused("DELETE", path, tenants["rival owner"]).startswith("403")
    tenants.ok("DELETE", path, tenants["acme owner"])
    assert names(tenants.ok("GET", "/auth/applications", developer)) == []
    assert tenants.refused("DELETE", path, developer).startswith("404")


def test_the_page_of_the_account_ends_an_application(tenants: Tenants) -> None:
    developer = tenants["acme developer"]
    own = allow(tenants, developer)
    other = allow(tenants, tenants["acme colleague"])
    browser = tenants.gateway.app.flask.test_client()
    browser.set_cookie("llmgateway.session_token", developer.token)
    page = browser.get("/console/account").text
    assert "An editor" in page and own in page and other not in page
    csrf = re.findall(r'name="csrf" value="([^"]+)">\s*<input type="hidden" name="action" value="leave"', page)[0]
    for wanted in (other, own):
        form = {"csrf": csrf, "action": "leave", "application": wanted}
        assert browser.post("/console/account", data=form, headers={"Origin": "http://localhost"}).status_code == 303
    assert names(tenants.ok("GET", "/auth/applications", developer)) == []
    assert names(tenants.ok("GET", "/auth/applications", tenants["acme colleague"])) == [other]


def test_an_owner_ends_the_access_of_an_application_on_the_page_of_its_key(tenants: Tenants) -> None:
    developer, owner = tenants["acme developer"], tenants["acme owner"]
    place = f"/console/keys/{developer.key.info.id}"
    ended = press_button(tenants, owner, place, "end-application", application=allow(tenants, developer))
    assert "has no access any more" in ended.text


def test_authorization_requests_are_answered_as_described(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    described = tenants.client.get("/openapi.json").get_json()["paths"]["/oauth/authorize"]["get"]["parameters"]
    query = {field["name"]: field["schema"]["enum"][0] for field in described if "enum" in field["schema"]}
    application = {"client_name": "An editor", "redirect_uris": ["http://localhost:8123/cb"]}
    query["client_id"] = tenants.ok("POST", "/oauth/register", body=application)["client_id"]
    query |= {"redirect_uri": "http://localhost:8123/cb", "code_challenge": "a" * 43}
    path = "/oauth/authorize?" + urlencode(query)
    session = f"llmgateway.session_token={tenants['acme developer'].token}"
    status, page = tenants.call("GET", path, Cookie=session)
    assert status == 200 and "An editor" in page
    assert tenants.call("GET", path)[0] == 303
    assert tenants.call("GET", f"{path}&scope=everything")[0] == 302
    assert tenants.call("GET", "/oauth/authorize")[0] == 400
    monkeypatch.setattr(authorize, "VIEWS", 1)
    assert tenants.call("GET", path)[0] == 429


def test_registrations_of_applications_are_refused_as_described(tenants: Tenants) -> None:
    metadata = {"client_name": "An editor", "grant_types": ["client_credentials"]}
    assert tenants.call("POST", "/oauth/register", body=[])[0] == 400
    assert tenants.call("POST", "/oauth/register", "llmgtwy_" + "0" * 40, metadata)[0] == 401
    statuses = [tenants.call("POST", "/oauth/register", body=[])[0] for _ in range(31)]
    assert statuses[-1] == 429
