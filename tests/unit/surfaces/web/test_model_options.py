from types import SimpleNamespace

import msgspec
import pytest

from gateway.errors import InvalidRequest
from gateway.neutral.request import MAX_MODELS, ProviderPreferences
from gateway.surfaces.anthropic import schema as messages
from gateway.surfaces.openai import chat_schema, completions
from gateway.surfaces.responses import schema as responses
from gateway.surfaces.web.model_options import ProviderOptions, read_choice

HELLO = [{"role": "user", "content": "Hello"}]
BODIES = (
    (chat_schema.decode, {"messages": HELLO}),
    (messages.decode, {"messages": HELLO, "max_tokens": 9}),
    (responses.decode, {"input": "Hello"}),
    (completions.decode, {"prompt": "Hello"}),
)


def choose(models=None, routing="", **provider):
    given = msgspec.convert(provider, ProviderOptions) if provider else None
    return read_choice(SimpleNamespace(models=models, provider=given), {"routing": routing} if routing else {})


@pytest.mark.parametrize("decode,body", BODIES)
@pytest.mark.parametrize("model", ({}, {"model": None}, {"model": ""}))
def test_the_first_of_the_list_stands_for_a_missing_model(decode, body, model):
    assert decode(msgspec.json.encode({**body, **model, "models": ["a", "b"]})).model == "a"


@pytest.mark.parametrize("decode,body", BODIES)
def test_a_missing_model_without_a_list_is_still_an_error(decode, body):
    with pytest.raises(InvalidRequest, match="'model' is missing"):
        decode(msgspec.json.encode({**body, "models": []}))


@pytest.mark.parametrize("decode,body", BODIES)
def test_too_many_models_and_unknown_criteria_are_errors(decode, body):
    with pytest.raises(InvalidRequest) as caught:
        decode(msgspec.json.encode({**body, "model": "a", "models": ["m"] * (MAX_MODELS + 1)}))
    assert caught.value.param == "models"
    with pytest.raises(InvalidRequest, match="latency, price or throughput") as caught:
        decode(msgspec.json.encode({**body, "model": "a", "provider": {"sort": "beauty"}}))
    assert caught.value.param == "provider.sort"


def test_the_preferences_are_read():
    members = choose(["b"], order=["x"], only=["y"], ignore=["z"], allow_fallbacks=False, quantizations=["fp8"])
    assert members == {
        "models": ("b",),
        "provider": ProviderPreferences(("x",), ("y",), ("z",), allow_fallbacks=False, unread=("quantizations",)),
    }


@pytest.mark.parametrize(
    ("member", "value"),
    [
        *(("data_collection", "deny"), ("enforce_distillable_text", True), ("max_price", {"prompt": 1})),
        *(("preferred_max_latency", 2), ("preferred_min_throughput", 50), ("quantizations", ["fp8"])),
        *(("require_parameters", True), ("zdr", True)),
    ],
)
def test_a_preference_that_cannot_be_met_is_reported_unless_it_changes_nothing(member, value):
    assert choose(**{member: value})["provider"].unread == (member,)
    for nothing in (None, False, "false", [], {}, "allow"):
        assert choose(**{member: nothing}) == {}


def test_sort_is_the_routing_strategy_unless_routing_is_given():
    assert choose(sort="price") == {"routing": "price"}
    assert choose(sort={"by": "latency", "partition": "none"}) == {"routing": "latency"}
    assert choose(routing="price", sort="latency") == {"routing": "price"}


def test_values_that_change_nothing_are_no_preferences():
    assert choose(data_collection="allow", require_parameters=False, allow_fallbacks=True, order=[]) == {}
