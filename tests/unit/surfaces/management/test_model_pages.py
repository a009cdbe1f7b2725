"""The pages of models: the catalogue as a person may use it, the comparison, and custom models."""

import re
from itertools import chain
from urllib.parse import quote

import pytest
from support.console import open_page, press_button
from support.management import Tenants

from gateway.surfaces.console import lists
from gateway.surfaces.console.model_rows import CAPABILITIES, ModelRow, list_rows

CUSTOM = "/console/models/custom"


def row_of(page: str, name: str) -> str:
    return next(row for row in page.split("<tr>") if f'name="model" value="{name}"' in row)


def test_models_say_whether_the_person_can_use_them_and_why_not(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    page = open_page(tenants, owner, "/console/models?q=gpt-4o-mini")
    assert "no provider key" in row_of(page, "gpt-4o-mini") and "OPENAI_API_KEY" in row_of(page, "gpt-4o-mini")
    given = {"organizationId": owner.organization_id, "provider": "openai", "token": "sk-0123456789abcdef"}
    tenants.ok("POST", "/keys/provider", owner, given)
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"mode": "hybrid"})
    assert ">yes<" in row_of(open_page(tenants, owner, "/console/models?q=gpt-4o-mini"), "gpt-4o-mini")
    rule = {"ruleType": "deny_models", "ruleValue": {"models": ["gpt-4o-mini"]}}
    tenants.ok("POST", f"/keys/api/{owner.key.info.id}/iam", owner, rule)
    denied = open_page(tenants, owner, f"/console/models/gpt-4o-mini?for={owner.key.info.id}")
    assert "You cannot use this model now." in denied and "API key rule" in denied
    allowed = open_page(tenants, owner, f"/console/models/gpt-4o-mini?for={owner.project_id}")
    assert "You can use this model now" in allowed


def test_models_are_those_of_the_chosen_project(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    body = {"organizationId": owner.organization_id, "name": "Own keys", "mode": "api-keys"}
    project = tenants.ok("POST", "/projects", owner, body)["project"]["id"]
    used = {"first": owner.project_id, "second": project}
    pages = {
        name: open_page(tenants, owner, f"/console/models/sandbox-echo?for={ident}") for name, ident in used.items()
    }
    assert "You can use this model now" in pages["first"]
    assert "You cannot use this model now." in pages["second"]


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("sandbox-echo", ["Chat", "Vision", "Audio input", "Documents", "Tools", "Reasoning", "JSON schema"]),
        ("gpt-4o", ["Web search"]),
        ("sandbox-embed", ["Embeddings"]),
        ("sandbox-image", ["Image generation"]),
        ("sandbox-speak", ["Text to speech"]),
        ("sandbox-transcribe", ["Transcription"]),
        ("sandbox-film", ["Video generation"]),
        ("sandbox-rerank", ["Reranking"]),
        ("sandbox-moderate", ["Moderation"]),
        ("sandbox-read", ["OCR"]),
        ("sandbox-realtime", ["Realtime"]),
        ("sandbox-decide", ["Decisions"]),
    ],
)
def test_the_page_of_a_model_has_what_it_can_do(shared_tenants: Tenants, model: str, shown: list[str]) -> None:
    page = open_page(shared_tenants, shared_tenants["acme owner"], f"/console/models/{model}")
    capabilities = page.partition("<dt>Capabilities</dt>")[2].partition("</dd>")[0]
    assert set(shown) <= set(re.findall(r'<span class="badge">([^<]+)<', capabilities))


def test_models_are_searched_filtered_and_sorted(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    page = open_page(shared_tenants, owner, "/console/models?capability=embeddings&sort=-input")
    prices = [float(text) for text in re.findall(r'data-label="Input, \$ / M"><span[^>]*>\$([\d.]+)<', page)]
    assert len(prices) > 3 and prices == sorted(prices, reverse=True)
    assert "Claude" not in page and 'aria-sort="descending"' in page
    usable = open_page(shared_tenants, owner, "/console/models?use=now")
    assert '<option value="now" selected>' in usable and '<option value="">All models' in usable
    assert '<option value="no" selected>' in open_page(shared_tenants, owner, "/console/models?use=no")
    nothing = open_page(shared_tenants, owner, "/console/models?q=no-such-model-anywhere")
    assert "Nothing matches" in nothing
    assert "Next" not in nothing and "Next" in open_page(shared_tenants, owner, "/console/models")


def searched_texts(row: ModelRow) -> dict[str, list[str]]:
    return {
        "id": [row.id],
        "family": [row.model.family],
        "alias": [*row.model.aliases],
        "provider": [*row.providers],
        "name of a provider": [*row.providers.values()],
    }


@pytest.mark.parametrize("kind", ["id", "family", "alias", "provider", "name of a provider"])
def test_a_model_is_found_by_each_of_its_texts(shared_tenants: Tenants, kind: str) -> None:
    for row in list_rows(shared_tenants.services, None):
        texts = searched_texts(row)
        found = " ".join(texts.pop(kind)).lower().split()
        others = " ".join((row.name, *chain(*texts.values()))).lower()
        words = [word for word in found if word not in others]
        if words and not row.ended:
            query = quote(f"{row.name} {words[0]}")
            page = open_page(shared_tenants, shared_tenants["acme owner"], f"/console/models?q={query}")
            assert f'name="model" value="{row.id}"' in page
            return
    pytest.fail("no model has a word in this text only")


def test_the_filters_offer_each_capability_and_provider(shared_tenants: Tenants) -> None:
    page = open_page(shared_tenants, shared_tenants["acme owner"], "/console/models")
    selects = re.findall(r'<select name="(\w+)"[^>]*>(.*?)</select>', page, re.DOTALL)
    offered = {name: re.findall(r'<option value="([^"]*)"', options) for name, options in selects}
    assert offered["capability"] == ["", *CAPABILITIES]
    rows = list_rows(shared_tenants.services, None)
    assert sorted(offered["provider"]) == sorted({"", *(provider for row in rows for provider in row.providers)})


def test_models_are_compared_beside_each_other(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme developer"]
    page = open_page(shared_tenants, owner, "/console/models/compare?model=gpt-4o-mini&model=claude-sonnet-4-5")
    assert page.index("GPT-4o mini") < page.index("Claude Sonnet 4.5") and "$0.15" in page and "$15.00" in page
    others = page.partition("Other prices")[2].partition("</tr>")[0]
    assert "$0.07" in others and "$0.15" not in others and "$15.00" not in others
    assert "No models are selected." in open_page(shared_tenants, owner, "/console/models/compare")
    open_page(shared_tenants, owner, "/console/models/compare?model=none", status=404)
    open_page(shared_tenants, owner, "/console/models/none", status=404)


def test_a_manager_adds_a_custom_model_with_a_price(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    place = {"organization": owner.organization_id}
    base = {**place, "name": "our-llm", "base_url": "https://llm.acme.example/v1", "token": "secret-0123456789"}
    added = press_button(tenants, owner, CUSTOM, "add", **base)
    assert added.status_code == 200 and "The provider our-llm was added." in added.text
    assert "secret-0123456789" not in added.text
    model = {**place, "provider": "our-llm", "id": "small", "input_price": "0.25", "context_length": "32,768"}
    assert "our-llm/small was saved" in press_button(tenants, owner, CUSTOM, "save", **model).text
    [stored] = tenants.ok("GET", f"/orgs/{owner.organization_id}/custom-providers", owner)["customProviders"]
    expected = {"id": "small", "prices": {"prompt": "0.00000025", "completion": "0"}, "context_length": 32768}
    assert stored["models"] == [expected]
    assert "$0.25" in open_page(tenants, owner, CUSTOM)
    larger = {**place, "provider": "our-llm", "id": "large", "output_price": "2", "cached_price": "0.5"}
    press_button(tenants, owner, CUSTOM, "save", **larger, max_output="100")
    prices = {"prompt": "0", "completion": "0.000002", "input_cache_read": "0.0000005"}
    [stored] = tenants.ok("GET", f"/orgs/{owner.organization_id}/custom-providers", owner)["customProviders"]
    assert stored["models"] == [expected, {"id": "large", "prices": prices, "max_output": 100}]
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"mode": "hybrid"})
    assert "our-llm/small" in open_page(tenants, owner, "/console/models?q=our-llm")
    wrong = press_button(tenants, owner, CUSTOM, "save", **{**model, "input_price": "a lot"})
    assert wrong.status_code == 400 and "Give prices in US dollars" in wrong.text
    moved = {**place, "provider": "our-llm", "base_url": "https://other.acme.example/v1"}
    assert "The base URL was changed." in press_button(tenants, owner, CUSTOM, "address", **moved).text
    assert "was removed" in press_button(tenants, owner, CUSTOM, "drop", **model).text
    assert "were removed" in press_button(tenants, owner, CUSTOM, "remove", **model).text


@pytest.mark.parametrize("who", ["acme developer", "rival owner"])
def test_only_managers_change_custom_models(shared_tenants: Tenants, who: str) -> None:
    page = open_page(shared_tenants, shared_tenants[who], CUSTOM)
    assert ("You do not manage any organizations." in page) == (who == "acme developer")
    place = {"organization": shared_tenants["acme owner"].organization_id}
    given = {**place, "name": "x", "base_url": "https://x.example"}
    assert press_button(shared_tenants, shared_tenants[who], CUSTOM, "add", **given).status_code == 403


def test_custom_models_are_searched_and_paged(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/custom-providers"
    for provider in ("house", "plain"):
        tenants.ok("POST", path, owner, {"name": provider, "baseUrl": "https://llm.example.com/v1"})
    models = [{"id": name} for name in ("large", "medium", "small")]
    tenants.ok("PATCH", f"{path}/house", owner, {"models": models})
    page = open_page(tenants, owner, f"{CUSTOM}?q=small")
    assert "small" in page and ">medium<" not in page and ">plain<" not in page
    assert ">plain<" in open_page(tenants, owner, f"{CUSTOM}?q=plain")
    assert "Nothing matches" in open_page(tenants, owner, f"{CUSTOM}?q=nothing-of-this-name")
    monkeypatch.setattr(lists, "PAGE_ROWS", 2)
    assert "1–2 of 3" in open_page(tenants, owner, CUSTOM)
    assert ">small<" in open_page(tenants, owner, f"{CUSTOM}?page-{owner.organization_id}-house=2")
