"""The pages of providers: keys of organizations, modes of projects, health and cooldowns."""

import re
from dataclasses import astuple, replace

import pytest
from fakes.openai import Answer, FakeOpenAI
from support.console import open_page, press_button
from support.management import Person, Tenants

from gateway.accounts.members import list_members
from gateway.callers.access import CUSTOM
from gateway.errors import UpstreamFailed
from gateway.surfaces.console import lists

KEYS = "/console/providers/keys"
SECRET = "sk-very-secret-provider-key-0123456789"


def add(tenants: Tenants, who: Person, **more: str) -> str:
    """Add a key with the page's form, and return its id."""
    fields = {"organization": who.organization_id, "provider": "openai", "token": SECRET, **more}
    answer = press_button(tenants, who, KEYS, "add", **fields)
    assert answer.status_code == 200 and SECRET not in answer.text, answer.text
    return tenants.ok("GET", "/keys/provider", who)["providerKeys"][-1]["id"]


def test_adding_a_key_offers_to_let_the_other_projects_use_it(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    fields = {"organization": owner.organization_id, "provider": "openai", "token": SECRET}
    added = press_button(tenants, owner, KEYS, "add", **fields, name="Main", maxSpend="25", allowedModels="gpt-4o-mini")
    assert "The projects below do not use it yet." in added.text and "Use the key in these projects?" in added.text
    [stored] = tenants.ok("GET", "/keys/provider", owner)["providerKeys"]
    assert (stored["name"], stored["maxSpend"], stored["allowedModels"]) == ("Main", "25", ["gpt-4o-mini"])
    switched = press_button(tenants, owner, KEYS, "mode", project=owner.project_id, mode="hybrid")
    assert "Own keys first" in switched.text
    [project] = tenants.ok("GET", f"/orgs/{owner.organization_id}/projects", owner)["projects"]
    assert project["mode"] == "hybrid"
    assert "Let these projects" not in press_button(tenants, owner, KEYS, "add", **fields).text


def test_a_new_key_is_used_in_all_projects_unless_the_person_declines(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    page = open_page(tenants, owner, KEYS)
    assert '<input type="checkbox" name="projects" value="all" checked>' in page
    fields = {"organization": owner.organization_id, "provider": "openai", "token": SECRET, "projects": "all"}
    added = press_button(tenants, owner, KEYS, "add", **fields)
    assert "Every active project of the organization uses it." in added.text
    assert "Use the key in these projects?" not in added.text
    press_button(tenants, owner, "/console/projects", "create", name="Later")
    projects = tenants.ok("GET", f"/orgs/{owner.organization_id}/projects", owner)["projects"]
    assert {project["name"]: project["mode"] for project in projects}["Later"] == "hybrid"
    assert 'name="projects"' not in open_page(tenants, owner, KEYS)


def test_a_key_is_edited_rotated_switched_off_and_deleted(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    key = add(tenants, owner, name="First")
    saved = press_button(tenants, owner, KEYS, "save", key=key, name="Second", maxSpend="3", baseUrl="", region="")
    assert "were saved" in saved.text and "Second" in saved.text
    rotated = press_button(tenants, owner, KEYS, "rotate", key=key, token="sk-another-secret-0000000000000000000zzzz")
    assert "zzzz" in rotated.text and "another-secret-0000" not in rotated.text
    assert "inactive now" in press_button(tenants, owner, KEYS, "switch", key=key, status="inactive").text
    assert "was deleted" in press_button(tenants, owner, KEYS, "remove", key=key).text
    assert tenants.ok("GET", "/keys/provider", owner)["providerKeys"] == []
    assert press_button(tenants, owner, KEYS, "remove", key=key).status_code == 404


def test_a_key_is_tested_with_its_provider(shared_tenants: Tenants) -> None:
    owner = shared_tenants["rival owner"]
    with FakeOpenAI() as upstream:
        upstream.script(Answer("pong"), Answer(status=401))
        key = add(shared_tenants, owner, baseUrl=upstream.url)
        works = press_button(shared_tenants, owner, KEYS, "test", key=key, model="gpt-4o-mini")
        assert works.status_code == 200 and "The key works: gpt-4o-mini answered in" in works.text
        fails = press_button(shared_tenants, owner, KEYS, "test", key=key, model="gpt-4o-mini")
        assert fails.status_code == 400 and "failed (status 401)" in fails.text


def test_keys_of_each_organization_are_listed_with_the_providers_that_it_can_use(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    press_button(tenants, owner, "/console/settings", "create", name="Second")
    provider = {"name": "own-llm", "baseUrl": "https://llm.acme.example/v1", "models": [{"id": "small"}]}
    tenants.ok("POST", f"/orgs/{owner.organization_id}/custom-providers", owner, provider)
    add(tenants, owner, name="Research")
    page = open_page(tenants, owner, KEYS)
    assert page.count('<span class="sub">Research</span>') == 1
    first, second = (
        set(re.findall(r'<option value="([^"]*)"', select))
        for select in re.findall(r'<select id="provider-.*?</select>', page, re.DOTALL)
    )
    known = {"", CUSTOM, *tenants.services.routing.catalogue.current().providers}
    assert (first - known, second) == ({"custom:own-llm"}, known) and known < first


@pytest.mark.parametrize("who", ["acme developer", "rival owner"])
def test_only_managers_of_the_organization_change_its_keys(shared_tenants: Tenants, who: str) -> None:
    owner = shared_tenants["acme owner"]
    stranger = shared_tenants[who]
    key = add(shared_tenants, owner, name="Private name")
    page = open_page(shared_tenants, stranger, KEYS)
    assert "Private name" not in page and key not in page
    fields = {"organization": owner.organization_id, "provider": "openai", "token": SECRET}
    assert press_button(shared_tenants, stranger, KEYS, "add", **fields).status_code == 403
    for action in ("save", "rotate", "test", "remove", "switch"):
        answer = press_button(shared_tenants, stranger, KEYS, action, key=key, token=SECRET, status="inactive")
        assert answer.status_code == 403, action
    project = {"project": owner.project_id, "mode": "hybrid"}
    assert press_button(shared_tenants, stranger, KEYS, "mode", **project).status_code == 403


def test_cooldowns_are_shown_with_their_reason_to_those_whom_they_concern(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    key = add(tenants, owner, name="Research")
    cooldowns = tenants.services.routing.health.cooldowns
    cooldowns.trip(f"openai#{key}", "refused", None, owner.organization_id)
    cooldowns.trip("openai/gpt-4o-mini", "limited")
    page = open_page(tenants, owner, "/console/providers/openai")
    assert "your key Research" in page and "the provider rejected the credential or this model" in page
    assert "gpt-4o-mini" in page and "the provider limits the request rate" in page
    assert ">cooldown<" in open_page(tenants, owner, "/console/providers?state=cooldown")
    other = open_page(tenants, tenants["rival owner"], "/console/providers/openai")
    assert "Research" not in other and "rejected the credential" not in other and "limits the request rate" in other
    open_page(tenants, owner, "/console/providers/none", status=404)


def test_a_provider_shows_all_that_it_publishes_about_data(tenants: Tenants) -> None:
    for provider in tenants.services.routing.catalogue.current().providers.values():
        published = [
            value for value in (provider.headquarters, *astuple(provider.data_policy)) if value not in (None, "")
        ]
        page = open_page(tenants, tenants["acme developer"], f"/console/providers/{provider.id}")
        assert page.partition("<h2>Data policy</h2>")[2].partition("</dl>")[0].count("<dt>") == len(published), (
            provider.id
        )


def test_the_list_counts_keys_and_searches(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    add(tenants, owner)
    page = open_page(tenants, owner, "/console/providers?q=openai&state=keys")
    assert "1 own" in page and len(re.findall(r'<a class="open"', page)) == 1
    assert '<option value="">All providers' in page and '<option value="keys" selected>' in page
    assert '<option value="cooldown" selected>' in open_page(tenants, owner, "/console/providers?state=cooldown")
    assert "1 own" not in open_page(tenants, tenants["acme developer"], "/console/providers")


def test_provider_keys_are_searched_sorted_and_paged(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tenants["acme owner"]
    for name in ("Research", "Sales", "Support"):
        add(tenants, owner, name=name)
    page = open_page(tenants, owner, f"{KEYS}?q=openai+sales")
    assert "Sales" in page and "Research" not in page and 'id="list"' in page
    assert "Nothing matches" in open_page(tenants, owner, f"{KEYS}?q=nothing-of-this-name")
    monkeypatch.setattr(lists, "PAGE_ROWS", 2)
    first = open_page(tenants, owner, f"{KEYS}?sort=maskedToken")
    assert "1–2 of 3" in first and f"page-{owner.organization_id}=2" in first and "Support" not in first
    assert "Support" in open_page(tenants, owner, f"{KEYS}?sort=maskedToken&page-{owner.organization_id}=2")


def test_a_search_finds_a_provider_key_by_each_of_its_settings(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    settings = {"baseUrl": "https://llm.acme.example", "region": "eu-west-1", "allowedModels": "gpt-4o"}
    add(tenants, owner, provider="aws-bedrock", **settings)
    for word in ("amazon", "aws-bedrock", SECRET[-4:], "acme.example", "eu-west", "gpt-4o", "active"):
        page = open_page(tenants, owner, f"{KEYS}?q={word}")
        assert all(f'<span class="sub address">{text}</span>' in page for text in settings.values()), word


@pytest.mark.parametrize(("time_range", "unit"), [("24h", "hour"), ("7d", "day"), ("30d", "day")])
def test_a_provider_shows_requests_and_latency_of_a_longer_time(
    shared_tenants: Tenants, time_range: str, unit: str
) -> None:
    owner = shared_tenants["acme owner"]
    shared_tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "latency")
    body = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    shared_tenants.ok("POST", "/v1/chat/completions", owner.key.token, body)
    shared_tenants.services.store.journal.flush(60)
    place = f"/console/providers/sandbox?timeRange={time_range}"
    page = open_page(shared_tenants, owner, place)
    assert f"Your upstream calls by {unit}" in page and f"Time to the first token by {unit}" in page
    assert f'value="{time_range}" selected' in page
    assert "Your latency by model" in page and 'href="http://localhost/console/models/sandbox-echo"' in page
    assert "Your latency by provider" in open_page(shared_tenants, owner, "/console/models/sandbox-echo")
    assert "Your latency" not in open_page(shared_tenants, owner, "/console/models/gpt-5")
    assert "None of your requests" in open_page(shared_tenants, shared_tenants["rival owner"], place)
    assert 'value="1h" selected' in open_page(shared_tenants, owner, "/console/providers/sandbox?timeRange=x")


def test_a_provider_shows_its_calls_and_waits_of_each_minute_of_the_last_hour(tenants: Tenants) -> None:
    routing = tenants.services.routing
    mapping = next(one for one in routing.catalogue.current().models["gpt-4o"].mappings if one.provider == "openai")
    routing.health.sample(mapping, None, ttft_ms=900, tokens=100, duration_ms=1000)
    routing.health.sample(mapping, None, error=UpstreamFailed("It failed.", upstream_status=500))
    operator = replace(
        tenants["acme owner"], token=tenants.open(list_members(tenants.services.store.database)[0].user_id)
    )
    page = open_page(tenants, operator, "/console/providers/openai")
    plots = re.findall(r'<section class="plot" aria-label="([^"]*)">(.*?)</section>', page, re.DOTALL)
    titles = {name: re.findall(r"UTC: ([^<]*)</title>", plot) for name, plot in plots}
    assert titles["Requests by minute"][-1] == "2\nAnswered: 1\nFailed: 1"
    assert titles["Time to the first token by minute"][-1] == "900 ms"
    page = open_page(tenants, tenants["acme developer"], "/console/providers/openai")
    assert "Requests by minute" not in page and "900 ms" not in page


def test_operators_see_the_workload_identity_of_a_provider(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    root = list_members(tenants.services.store.database)[0]
    operator = replace(tenants["acme owner"], token=tenants.open(root.user_id))
    account = "service account gateway@acme.example"
    states = [("openai", account, 1_900_000_000_000_000, ""), ("openai", "", 0, "The metadata server did not answer.")]
    monkeypatch.setattr(tenants.services.routing.credentials, "identities", lambda: tuple(states))
    listed = open_page(tenants, operator, "/console/providers?q=openai")
    assert "valid until" in listed and ">failing<" in listed
    page = open_page(tenants, operator, "/console/providers/openai")
    assert account in page and "17 Mar 2030" in page and "The metadata server did not answer." in page
    assert "Workload identity" not in open_page(tenants, operator, "/console/providers/anthropic")
    for path in ("/console/providers?q=openai", "/console/providers/openai"):
        page = open_page(tenants, tenants["acme owner"], path)
        assert account not in page and "orkload identity" not in page
