"""The page of API keys: what a person sees there, makes there, and may not."""

import re
from html import unescape

import pytest
from support.management import Person, Tenants

from gateway.accounts import keys

OWN = {"Origin": "http://localhost"}
LIST = "/console/keys"
NEW = "/console/keys/new"
SETTINGS = "?tab=settings"


def headers(who: Person) -> dict[str, str]:
    return OWN | {"Cookie": f"llmgateway.session_token={who.token}"}


def read(tenants: Tenants, who: Person, path: str = LIST) -> str:
    return unescape(tenants.client.get(path, headers=headers(who)).text)


def press(tenants: Tenants, who: Person, action: str, path: str = LIST, **more: str):
    csrf = re.findall(r'name="csrf" value="([^"]*)"', read(tenants, who, NEW))[0]
    return tenants.client.post(path, headers=headers(who), data={"csrf": csrf, "action": action, **more})


def make(tenants: Tenants, who: Person, description: str, **more: str) -> str:
    """Create a key and return the path of its page."""
    made = press(tenants, who, "create", NEW, **{"description": description, "project": who.project_id, **more})
    return re.findall(r'href="http://localhost(/console/keys/key_[^"]*)"', made.text)[0] + SETTINGS


def row_of(page: str, description: str) -> str:
    return next(row for row in page.split("<tr>") if description in row)


def test_a_person_makes_a_key_that_works_and_is_shown_once(shared_tenants: Tenants) -> None:
    developer = shared_tenants["acme developer"]
    fields = {"project": developer.project_id, "usageLimit": "12.50", "expiresAt": "2099-01-31T12:00"}
    made = press(shared_tenants, developer, "create", NEW, description="My <laptop>", **fields)
    token = re.findall(r'<pre id="token">(llmgtwy_[^<]*)</pre>', made.text)[0]
    assert "My &lt;laptop&gt;" in made.text and made.headers["Cache-Control"] == "no-store"
    assert "http://localhost/v1" in made.text
    assert shared_tenants.ok("GET", "/v1/key", token)["data"]["limit"] == "12.5"
    page = read(shared_tenants, developer)
    row = row_of(page, "My <laptop>")
    assert token not in page and token[:12] in row and "12.5" in row and "active" in row and "31 Jan 2099" in row


def test_managers_limit_the_rate_of_a_key_on_its_page(shared_tenants: Tenants) -> None:
    developer, owner = shared_tenants["acme developer"], shared_tenants["acme owner"]
    path = make(shared_tenants, developer, "Limited")
    assert "Rate limits" not in read(shared_tenants, developer, path)
    page = press(shared_tenants, owner, "rates", path, requestsPerMinute="120", tokensPerMinute="").text
    assert "The rate limits were saved." in page and "limit in force: 120" in page
    refused = press(shared_tenants, owner, "rates", path, requestsPerMinute="many")
    assert refused.status_code == 400 and "requests per minute must be a whole number" in refused.text
    assert press(shared_tenants, developer, "rates", path, requestsPerMinute="9").status_code == 403


def test_managers_create_keys_with_rate_limits(shared_tenants: Tenants) -> None:
    developer, owner = shared_tenants["acme developer"], shared_tenants["acme owner"]
    assert "Tokens per minute" not in read(shared_tenants, developer, NEW)
    assert "Tokens per minute" in read(shared_tenants, owner, NEW)
    path = make(shared_tenants, owner, "Limited from the start", requestsPerMinute="120", tokensPerMinute="90000")
    page = read(shared_tenants, owner, path)
    assert "limit in force: 120" in page and "limit in force: 90,000" in page
    fields = {"description": "Never made", "project": owner.project_id, "requestsPerMinute": "many"}
    refused = press(shared_tenants, owner, "create", NEW, **fields)
    assert refused.status_code == 400 and "requests per minute must be a whole number" in refused.text
    assert 'value="many"' in refused.text and "Never made" not in read(shared_tenants, owner)


@pytest.mark.parametrize(
    ("who", "more", "status"),
    [
        ("acme developer", {"requestsPerMinute": "5"}, 403),
        ("acme developer", {"models": "openai/gpt-4o"}, 403),
        ("acme owner", {"models": "no-such-model"}, 400),
        ("acme owner", {"requestsPerMinute": "99999999999"}, 400),
    ],
)
def test_no_key_is_left_without_the_limits_that_were_asked_for(
    shared_tenants: Tenants, who: str, more: dict[str, str], status: int
) -> None:
    person = shared_tenants[who]
    refused = press(shared_tenants, person, "create", NEW, description="Unlimited", project=person.project_id, **more)
    assert refused.status_code == status
    assert "Unlimited" not in read(shared_tenants, person)


def test_a_key_is_switched_off_and_on_again(shared_tenants: Tenants) -> None:
    developer = shared_tenants["acme developer"]
    ident = make(shared_tenants, developer, "Switched").removesuffix(SETTINGS).rpartition("/")[2]
    answer = press(shared_tenants, developer, "deactivate", key=ident)
    assert answer.status_code == 200 and 'role="status">The key is deactivated' in answer.text
    row = row_of(read(shared_tenants, developer), "Switched")
    assert "inactive" in row and ">Activate<" in row
    assert press(shared_tenants, shared_tenants["acme owner"], "activate", key=ident).status_code == 200
    assert ">Deactivate<" in row_of(read(shared_tenants, developer), "Switched")
    # Neither a colleague nor a stranger sees it, or can press its button.
    for who in (shared_tenants["acme colleague"], shared_tenants["rival owner"]):
        assert "Switched" not in read(shared_tenants, who)
        assert press(shared_tenants, who, "deactivate", key=ident).status_code == 403


def test_a_key_that_a_manager_switched_off_is_not_switched_on_by_its_owner(shared_tenants: Tenants) -> None:
    developer, owner = shared_tenants["acme developer"], shared_tenants["acme owner"]
    path = make(shared_tenants, developer, "Switched off")
    ident = path.removesuffix(SETTINGS).rpartition("/")[2]
    assert press(shared_tenants, owner, "deactivate", key=ident).status_code == 200
    refused = press(shared_tenants, developer, "activate", key=ident)
    assert refused.status_code == 403 and "deactivated by another person" in refused.text
    assert (
        press(shared_tenants, owner, "save", path, description="Ending", expiresAt="2070-01-31T12:00").status_code
        == 200
    )
    refused = press(shared_tenants, developer, "save", path, description="Ending", expiresAt="")
    assert refused.status_code == 403 and "The expiry of this key was set by another person" in refused.text
    assert press(shared_tenants, owner, "activate", key=ident).status_code == 200


def test_keys_of_an_inactive_owner_are_marked_and_cannot_be_switched(tenants: Tenants) -> None:
    owner, colleague = tenants["acme owner"], tenants["acme colleague"]
    assert ">Deactivate<" in row_of(read(tenants, owner), "Key of colleague")
    member = f"/orgs/{owner.organization_id}/members/{colleague.member_id}"
    tenants.ok("PATCH", member, owner, {"status": "inactive"})
    row = row_of(read(tenants, owner), "Key of colleague")
    assert ">owner inactive<" in row and ">Deactivate<" not in row


def test_the_page_of_a_key_edits_limits_rolls_and_deletes_it(shared_tenants: Tenants) -> None:
    developer = shared_tenants["acme developer"]
    path = make(shared_tenants, developer, "Edited")
    ident = path.removesuffix(SETTINGS).rpartition("/")[2]
    period = {"periodUsageLimit": "5", "periodUsageDurationValue": "12", "periodUsageDurationUnit": "hour"}
    assert "The limits were saved" in press(shared_tenants, developer, "limits", path, usageLimit="40", **period).text
    assert "per 12 hours" in read(shared_tenants, developer, path)
    saved = press(shared_tenants, developer, "save", path, description="Renamed", expiresAt="")
    assert "<h1>Renamed</h1>" in saved.text
    press(shared_tenants, developer, "save", path, description="Renamed", expiresAt="2098-05-06T12:00")
    assert "06 May 2098" in row_of(read(shared_tenants, developer), "Renamed")
    exact = press(shared_tenants, developer, "limits", path, usageLimit="40", reservation="exact", **period)
    assert '<option value="exact" selected>' in exact.text
    kept = press(shared_tenants, developer, "limits", path, usageLimit="40", **period)
    assert '<option value="exact" selected>' in kept.text
    refused = press(shared_tenants, developer, "limits", path, usageLimit="-1")
    assert refused.status_code == 400 and "non-negative" in refused.text
    rolled = press(shared_tenants, developer, "roll", path)
    token = re.findall(r'<pre id="token">(llmgtwy_[^<]*)</pre>', rolled.text)[0]
    assert shared_tenants.ok("GET", "/v1/key", token)["data"]["limit"] == "40"
    for who in (shared_tenants["acme colleague"], shared_tenants["rival owner"]):
        assert shared_tenants.client.get(path, headers=headers(who)).status_code == 403
        assert press(shared_tenants, who, "delete", path).status_code == 403
    deleted = press(shared_tenants, developer, "delete", path)
    assert "The key was deleted" in deleted.text and ident not in deleted.text
    assert deleted.headers["HX-Replace-Url"] == "http://localhost/console/keys"


def test_managers_give_a_key_rules_and_developers_only_read_them(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    developer = shared_tenants["acme developer"]
    path = make(shared_tenants, developer, "Ruled")
    rule = {"ruleType": "allow_pricing", "ruleValue": "free input=0.000003 output=0.000015"}
    added = unescape(press(shared_tenants, owner, "add-rule", path, **rule).text)
    assert (
        "Allow only models at these prices" in added
        and "input up to $0.000003/token, output up to $0.000015/token" in added
    )
    assert (
        "paid models" in press(shared_tenants, owner, "add-rule", path, ruleType="deny_pricing", ruleValue="paid").text
    )
    assert press(shared_tenants, owner, "add-rule", path, ruleType="deny_pricing", ruleValue="9").status_code == 400
    ident = re.findall(r'name="rule" value="([^"]*)"', added)[0]
    seen = read(shared_tenants, developer, path)
    assert "free models" in seen and "add-rule" not in seen
    assert press(shared_tenants, developer, "remove-rule", path, rule=ident).status_code == 403
    off = press(shared_tenants, owner, "switch-rule", path, rule=ident, status="inactive").text
    assert '<span class="badge">off</span>' in off
    assert "The rule was removed" in press(shared_tenants, owner, "remove-rule", path, rule=ident).text
    models = make(shared_tenants, owner, "Two models", models="gpt-4o-mini, gpt-4o")
    assert "gpt-4o-mini, gpt-4o" in read(shared_tenants, owner, models)


def test_the_list_is_filtered_by_each_state_of_a_key(shared_tenants: Tenants) -> None:
    page = read(shared_tenants, shared_tenants["acme owner"])
    select = re.findall(r'<select name="state".*?</select>', page, re.DOTALL)[0]
    states = {state for state in keys.TRANSITIONS.values() if state != "deleted"}
    assert sorted(re.findall(r'value="([^"]*)"', select)) == sorted({"", *states})


@pytest.mark.slow
def test_the_list_is_searched_sorted_and_divided_into_pages(shared_tenants: Tenants) -> None:
    owner = shared_tenants["rival owner"]
    for number in range(51):
        make(shared_tenants, owner, f"Paged {number:02}")
    page = read(shared_tenants, owner, f"{LIST}?q=paged&sort=description")
    assert "1–50 of 51" in page and "Paged 00" in page and "Paged 50" not in page
    assert "Paged 50" in read(shared_tenants, owner, f"{LIST}?q=paged&sort=description&page=2")
    found = read(shared_tenants, owner, f"{LIST}?q=07")
    assert "Paged 07" in found and "Paged 08" not in found
    assert "Nothing matches “nowhere”" in read(shared_tenants, owner, f"{LIST}?q=nowhere")
    assert "Paged" not in read(shared_tenants, owner, f"{LIST}?state=inactive")


@pytest.mark.parametrize("given, said", [
    ({"description": "x", "usageLimit": "-5"}, "non-negative"), ({"description": ""}, "description"),
    ({"description": "x", "project": "proj_none"}, "There is no project"),
], ids=str)  # fmt: skip
def test_form_errors_are_shown_and_the_input_is_kept(shared_tenants: Tenants, given, said) -> None:
    developer = shared_tenants["acme developer"]
    answer = press(shared_tenants, developer, "create", NEW, **{"project": developer.project_id, **given})
    assert answer.status_code in (400, 404) and said in answer.text and "<pre" not in answer.text
    assert f'value="{given["description"]}"' in answer.text


def test_a_form_without_its_token_makes_nothing(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    answer = press(shared_tenants, owner, "create", NEW, description="Foreign", project=owner.project_id, csrf="0" * 64)
    assert answer.status_code == 403 and "Foreign" not in read(shared_tenants, owner)


def test_clients_and_people_are_led_from_addresses_where_there_is_nothing(shared_tenants: Tenants) -> None:
    client = shared_tenants.client
    assert client.get("/dashboard/api-keys").headers["Location"].endswith("/console/keys")
    for path in ("/console/nowhere", "/dashboard", "/dashboard/x"):
        answer = client.get(path)
        assert answer.status_code == 404 and "There is no page at this address." in answer.text
        assert answer.headers["Content-Type"].startswith("text/html") and "/console" in answer.text
