"""The page of API keys: what a person sees there, makes there, and may not."""

import re
from html import unescape

import pytest
from support.management import Person, Tenants

from gateway.surfaces.console import key_pages

OWN = {"Origin": "http://localhost"}


def headers(who: Person) -> dict[str, str]:
    return OWN | {"Cookie": f"llmgateway.session_token={who.token}"}


def read(tenants: Tenants, who: Person) -> str:
    return unescape(tenants.client.get("/connect/keys", headers=headers(who)).text)


def press(tenants: Tenants, who: Person, action: str, **more: str):
    csrf = re.findall(r'name="csrf" value="([^"]*)"', read(tenants, who))[0]
    return tenants.client.post("/connect/keys", headers=headers(who), data={"csrf": csrf, "action": action, **more})


def row_of(page: str, description: str) -> str:
    return next(row for row in page.split("<tr>") if description in row)


def test_a_person_makes_a_key_that_works_and_is_shown_once(shared_tenants: Tenants) -> None:
    developer = shared_tenants["acme developer"]
    made = press(
        shared_tenants, developer, "make", description="My <laptop>", project=developer.project_id, limit="12.50"
    )
    token = re.findall(r"<pre>(llmgtwy_[^<]*)</pre>", made.text)[0]
    assert "My &lt;laptop&gt;" in made.text and made.headers["Cache-Control"] == "no-store"
    assert "http://localhost/v1" in made.text
    assert shared_tenants.ok("GET", "/v1/key", token)["data"]["limit"] == "12.5"
    page = read(shared_tenants, developer)
    row = row_of(page, "My <laptop>")
    assert token not in page and token[:12] in row and "12.5" in row and "active" in row


def test_a_key_is_switched_off_and_on_again(shared_tenants: Tenants) -> None:
    developer = shared_tenants["acme developer"]
    press(shared_tenants, developer, "make", description="Switched", project=developer.project_id)
    ident = re.findall(r'name="key" value="([^"]*)"', row_of(read(shared_tenants, developer), "Switched"))[0]
    assert press(shared_tenants, developer, "deactivate", key=ident).status_code == 303
    assert "inactive" in row_of(read(shared_tenants, developer), "Switched")
    assert press(shared_tenants, shared_tenants["acme owner"], "activate", key=ident).status_code == 303
    assert ">Deactivate<" in row_of(read(shared_tenants, developer), "Switched")
    # Neither a colleague nor a stranger sees it, or can press its button.
    for who in (shared_tenants["acme colleague"], shared_tenants["rival owner"]):
        assert "Switched" not in read(shared_tenants, who)
        assert press(shared_tenants, who, "deactivate", key=ident).status_code == 403


def test_the_newest_keys_are_shown_and_how_to_see_others(shared_tenants: Tenants, monkeypatch) -> None:
    owner = shared_tenants["rival owner"]
    for name in ("Oldest", "Middle", "Newest"):
        press(shared_tenants, owner, "make", description=name, project=owner.project_id)
    assert "command-line client" not in read(shared_tenants, owner)
    monkeypatch.setattr(key_pages, "SHOWN", 2)
    page = read(shared_tenants, owner)
    assert page.index("Newest") < page.index("Middle") and "Oldest" not in page and "command-line client" in page


@pytest.mark.parametrize("given, said", [
    ({"description": "x", "limit": "-5"}, "non-negative"), ({"description": ""}, "description"),
    ({"description": "x", "project": "proj_none"}, "There is no project"),
], ids=str)  # fmt: skip
def test_what_is_wrong_with_a_form_is_said_and_what_was_typed_kept(shared_tenants: Tenants, given, said) -> None:
    developer = shared_tenants["acme developer"]
    answer = press(shared_tenants, developer, "make", **{"project": developer.project_id, **given})
    assert answer.status_code in (400, 404) and said in answer.text and "<pre>" not in answer.text
    assert f'value="{given["description"]}"' in answer.text


def test_a_form_without_its_token_makes_nothing(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    answer = press(shared_tenants, owner, "make", description="Foreign", project=owner.project_id, csrf="0" * 64)
    assert answer.status_code == 403 and "Foreign" not in read(shared_tenants, owner)


def test_clients_and_people_are_led_from_addresses_where_there_is_nothing(shared_tenants: Tenants) -> None:
    client = shared_tenants.client
    assert client.get("/dashboard/api-keys").headers["Location"].endswith("/connect/keys")
    for path in ("/connect/nowhere", "/dashboard", "/dashboard/x"):
        answer = client.get(path)
        assert answer.status_code == 404 and "There is no page at this address." in answer.text
        assert answer.headers["Content-Type"].startswith("text/html") and "/connect" in answer.text
