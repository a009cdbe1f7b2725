"""Facts that are cached with a target are true of each of its responses."""

import pytest

from gateway.billing.context import Attempt, Outcome, RequestContext
from gateway.callers.authentication import Caller
from gateway.catalogue.entries import Mapping, Provider
from gateway.catalogue.prices import Charge
from gateway.clock import Clock
from gateway.errors import UpstreamFailed
from gateway.money import NANO
from gateway.neutral.chat import ChatRequest, Requirements
from gateway.neutral.units import UNITS
from gateway.providers.protocol import Credential, Target
from gateway.surfaces.web.facts import Facts, headers_of

PROVIDER = Provider("p", "P", "openai")


def target(**more: str) -> Target:
    return Target(PROVIDER, Mapping("p", "m", "m-1", **more), Credential("s", ident="k"), "")


def attempt(at: Target, failed: bool = False) -> Attempt:
    error = UpstreamFailed("It broke.", upstream_status=502) if failed else None
    return Attempt(0, at, 0, 0.0, status=502 if failed else 200, error=error, charge=Charge(input=7, total=7))


def facts_of(*attempts: Attempt, cached: bool = False) -> Facts:
    context = RequestContext("0" * 32, Caller("key_1", *[""] * 8), 0, 0.0, 0.0)
    request = ChatRequest("m", Requirements(), lambda: None)
    return Facts(context, Outcome(request, attempts=list(attempts), cached=cached), "id")


@pytest.mark.parametrize("region", ["", "eu"])
def test_the_routing_shows_each_attempt_whatever_was_cached(region):
    one, other = target(region=region), target()
    for failures in ((False,), (True, False), (False,)):
        facts = facts_of(*[attempt(one if failed else other, failed) for failed in failures])
        assert facts.metadata()["routing"] == facts.outcome.trail()
    assert facts_of(attempt(one)).metadata()["routing"][0].get("region", "") == region
    assert [entry["status_code"] for entry in facts_of(attempt(one, True), attempt(one)).metadata()["routing"]] == [
        502,
        200,
    ]


def test_an_answer_out_of_the_cache_shows_no_attempt():
    one = target()
    assert facts_of(attempt(one)).metadata()["routing"]
    assert facts_of(attempt(one), cached=True).metadata()["routing"] == []


def test_a_failed_attempt_is_shown_as_failed():
    broken = attempt(target())
    broken.error = UpstreamFailed("It broke.")
    assert facts_of(broken).metadata()["routing"][0]["succeeded"] is False


@pytest.mark.parametrize(("version", "shown"), [("", None), ("v9", "v9")])
def test_headers_show_provider_attempts_cost_and_price_version(version, shown):
    at = target(price_version=version)
    headers = dict(headers_of(facts_of(attempt(at, True), attempt(at)), Clock(), streamed=False))
    assert (headers["x-llmgateway-provider"], headers["x-llmgateway-attempts"]) == ("p", "2")
    assert (headers["x-llmgateway-cost"], headers.get("x-llmgateway-price-version")) == ("0.000000007", shown)


def test_the_cost_details_have_the_same_members_whatever_was_used():
    plain = attempt(target())
    rare = attempt(target())
    rare.charge = Charge(input=7, web_search=2, total=9)
    usual = facts_of(plain).cost()["cost_details"]
    other = facts_of(rare).cost()["cost_details"]
    assert list(usual) == list(other) and usual["web_search_cost"] == 0 and other["web_search_cost"] == 2e-9


def test_the_parts_of_the_cost_add_up_to_the_total():
    components = list(dict.fromkeys(unit.component for unit in UNITS))
    text = ("input", "cached_input", "output", "reasoning")
    for names in (text, components):
        amounts = {name: 1 << place for place, name in enumerate(components) if name in names}
        priced = attempt(target())
        priced.charge = Charge(**amounts, total=sum(amounts.values()))
        details = facts_of(priced).cost()["cost_details"]
        nusd = {name: round(usd * NANO) for name, usd in details.items()}
        parts = {name: value for name, value in nusd.items() if name != "total_cost" and "upstream" not in name}
        assert sum(parts.values()) == nusd["total_cost"] == sum(amounts.values())
        assert parts["input_cost"] == amounts["input"]
        assert parts["cached_input_cost"] == amounts["cached_input"]
        assert parts["output_cost"] == amounts["output"] + amounts["reasoning"]


@pytest.mark.parametrize("source", ["platform", "byok"])
def test_the_cost_and_that_of_an_own_key_are_added_without_counting_twice(source):
    """As OpenRouter's clients add them: the cost of the provider counts beside `cost` with an own key only."""
    at = Target(PROVIDER, Mapping("p", "m", "m-1"), Credential("s", source, "k"), "")
    priced = attempt(at)
    priced.charge = Charge(input=7, output=3, web_search=2, total=12)
    usage = facts_of(priced).cost()
    upstream = usage["cost_details"]["upstream_inference_cost"]
    assert usage["is_byok"] == (source == "byok")
    assert round((usage["cost"] + (upstream if usage["is_byok"] else 0)) * NANO) == 12
    assert usage["cost_details"]["total_cost"] * NANO == pytest.approx(12)
    assert usage["cost"] == (0 if source == "byok" else 12 / NANO)
