"""Entries that are proposed for new models of a provider's list."""

from dataclasses import replace

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model, Prices, Provider, TokenRates
from gateway.catalogue.offered_models import ListComparison, NewModel, OfferedModel, compare, propose

ABLE = {
    "streaming": False,
    "vision": True,
    "audio": True,
    "documents": True,
    "tools": True,
    "parallel_tool_calls": True,
    "reasoning": True,
    "reasoning_efforts": ("low", "high"),
    "reasoning_max_tokens": True,
    "json_output": True,
    "json_output_schema": True,
    "web_search": True,
    "verbosity": True,
    "responses_api": True,
    "supports_n": True,
    "realtime": True,
    "max_temperature": 1.0,
    "min_cacheable_tokens": 1024,
}


def test_dates_that_a_provider_states_replace_those_of_the_catalogue() -> None:
    model = Model("m", mappings=(Mapping("acme", "m", "m-1"),))
    catalogue = Catalogue([model], [Provider("acme", "Acme", "openai")], {})
    offered = OfferedModel("m-1", deprecated="2027-01-31", deactivated="2027-06-30")
    (entry,) = propose(compare(catalogue, "acme", [offered], "2026-11-28"), "2026-11-28")
    assert entry.values == {"model": "m", "deprecated": "2027-01-31", "deactivated": "2027-06-30"}


def test_limits_that_a_provider_states_replace_those_of_the_catalogue() -> None:
    model = Model("m", mappings=(Mapping("acme", "m", "m-1", context_length=8_000, max_output=800),))
    catalogue = Catalogue([model], [Provider("acme", "Acme", "openai")], {})
    offered = OfferedModel("m-1", context_length=16_000, max_output=1_600)
    (entry,) = propose(compare(catalogue, "acme", [offered], "2026-11-28"), "2026-11-28")
    assert entry.values == {"model": "m", "context_length": 16_000, "max_output": 1_600}


def test_a_new_model_is_proposed_with_all_abilities_of_the_nearest_one() -> None:
    nearest = replace(Mapping("acme", "old", "old-1", prices=(Prices(TokenRates(prompt=7)),)), **ABLE)
    (mapping, _) = propose(
        ListComparison("acme", [NewModel("new", OfferedModel("new-1"), None, nearest)]), "2026-11-28"
    )
    assert {name: mapping.values.get(name) for name in ABLE} == ABLE
    assert "operations" not in mapping.values  # those of every entry without a list
    assert not mapping.ready  # the price is a guess
