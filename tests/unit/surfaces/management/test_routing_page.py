"""The page that explains the routing of a request."""

import json
import re
from html import unescape
from typing import Any

import pytest
from support.console import open_page, press_button
from support.management import Person, Tenants

from gateway.neutral.request import STRATEGIES
from gateway.routing import candidate_filter
from gateway.surfaces.console import routing_pages

PATH = "/console/routing"
MODEL = "gpt-4o-mini"


@pytest.fixture
def owner(tenants: Tenants) -> Person:
    """An owner whose project can use two providers of MODEL."""
    person = tenants["acme owner"]
    for provider in ("openai", "nanogpt"):
        given = {"organizationId": person.organization_id, "provider": provider, "token": "sk-0123456789abcdef"}
        tenants.ok("POST", "/keys/provider", person, given)
    tenants.ok("PATCH", f"/projects/{person.project_id}", person, {"mode": "hybrid"})
    return person


def explain(tenants: Tenants, who: Person, **fields: str) -> Any:
    return press_button(tenants, who, PATH, "explain", **{"model": MODEL, **fields})


def test_a_request_is_explained_as_the_api_explains_it(tenants: Tenants, owner: Person) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
    known = tenants.ok("POST", "/v1/route/explain", owner.key.token, body)
    page = explain(tenants, owner, **{"for": owner.key.info.id, "prompt": "Hi"}).text
    first = known["order"][0].partition("/")[0]
    assert re.search(rf"would go to <strong>\s*{'OpenAI' if first == 'openai' else 'NanoGPT'}", page)
    assert "would be tried" in page and "no credential" in page and "Azure OpenAI" in page
    assert "would go to" in explain(tenants, owner, tools="yes").text


def test_the_body_of_the_request_has_all_that_the_form_says(tenants: Tenants, owner: Person) -> None:
    fields = {"prompt": "Hi", "routing": "price", "stream": "yes", "tools": "yes", "max_tokens": "50"}
    page = explain(tenants, owner, models="gpt-4o, gpt-5", **fields).text
    body = json.loads(unescape(re.findall(r"<summary>Request body</summary><pre>(.*?)</pre>", page, re.DOTALL)[0]))
    [tool] = body.pop("tools")
    assert tool["type"] == "function"
    assert body == {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Hi"}],
        "routing": "price",
        "stream": True,
        "max_tokens": 50,
        "models": ["gpt-4o", "gpt-5"],
    }


def test_the_order_under_each_strategy_is_that_of_the_api(tenants: Tenants, owner: Person) -> None:
    routing = tenants.services.routing
    for mapping in routing.catalogue.current().models[MODEL].mappings:
        slow = mapping.provider == "openai"
        routing.health.sample(mapping, None, ttft_ms=900 if slow else 90, tokens=500 if slow else 9, duration_ms=1000)
    page = explain(tenants, owner, **{"for": owner.key.info.id, "stream": "yes"}).text
    table = page.partition("Order under other strategies</h2>")[2].partition("</table>")[0]
    rows = [re.findall(r"score ([\d.]+)", row) for row in table.split("<tr>")[2:]]
    columns = dict(zip(STRATEGIES, zip(*rows, strict=True), strict=True))
    assert len(set(columns.values())) == len(STRATEGIES)
    for strategy, shown in columns.items():
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Hello!"}],
            "stream": True,
            "routing": strategy,
        }
        known = tenants.ok("POST", "/v1/route/explain", owner.key.token, body)
        assert sorted(shown) == sorted(f"{score['score']:.3f}" for score in known["providerScores"]), strategy


def test_the_form_asks_for_a_stream_until_it_is_unchecked(tenants: Tenants, owner: Person) -> None:
    checked = 'name="stream" value="yes" checked'
    assert checked in open_page(tenants, owner, PATH) and checked not in explain(tenants, owner).text


def test_other_weights_change_the_order_only_on_the_page(tenants: Tenants, owner: Person) -> None:
    health = tenants.services.routing.health
    mappings = {
        mapping.provider: mapping for mapping in tenants.services.routing.catalogue.current().models[MODEL].mappings
    }
    for _ in range(5):
        health.sample(mappings["openai"], None, ttft_ms=900, tokens=100, duration_ms=1000)
        health.sample(mappings["nanogpt"], None, ttft_ms=100, tokens=100, duration_ms=1000)
    page = explain(tenants, owner, stream="yes", **{"weight-latency": "100"}).text
    assert "Your weights" in page and "Latency 100%" in page
    assert "Your weights" not in explain(tenants, owner).text
    first_row = re.findall(r'<th scope="row">1</th>(.*?)</tr>', page, re.DOTALL)[0]
    assert "NanoGPT" in first_row.split("<td>")[-1]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"weight-price": "much"}, "Give weights as numbers"),
        ({"weight-price": "-1"}, "not negative"),
        ({"max_tokens": "many"}, "as a number of tokens"),
        ({"max_tokens": "１2"}, "as a number of tokens"),
        ({"weight-price": "６"}, "Give weights as numbers"),
        ({"model": "no-such-model"}, "would be refused with status"),
    ],
)
def test_mistakes_are_explained(tenants: Tenants, owner: Person, fields: dict[str, str], text: str) -> None:
    answer = explain(tenants, owner, **fields)
    assert text in answer.text and answer.status_code in (200, 400)
    assert all(f'value="{value}"' in answer.text for value in fields.values())


def test_a_person_explains_with_keys_that_they_may_see_only(tenants: Tenants, owner: Person) -> None:
    rule = {"ruleType": "deny_models", "ruleValue": {"models": [MODEL]}}
    tenants.ok("POST", f"/keys/api/{owner.key.info.id}/iam", owner, rule)
    assert "API key rule" in explain(tenants, owner, **{"for": owner.key.info.id}).text
    assert "API key rule" in open_page(tenants, owner, f"{PATH}?model={MODEL}&for={owner.key.info.id}")
    developer = explain(tenants, tenants["acme developer"], **{"for": owner.key.info.id}).text
    assert "API key rule" not in developer and "Key of owner" not in developer
    assert "Key of owner@acme" not in open_page(tenants, tenants["rival owner"], f"{PATH}?for={owner.key.info.id}")


def test_each_check_at_which_a_provider_is_excluded_has_a_name() -> None:
    assert set(candidate_filter.STAGES) <= set(routing_pages.STAGES)
