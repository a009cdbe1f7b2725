import pytest

from gateway.catalogue.entries import Model
from gateway.neutral.chat import Options, Requirements
from gateway.neutral.parameters import CAPABILITIES
from gateway.routing.capabilities import BITS, VENDOR, lacks, missing, read_ability, read_demand, refuse

FLAGS = [
    ("tools", "tools", "tools"),
    ("vision", "vision", "vision"),
    ("audio", "audio", "audio"),
    ("documents", "documents", "documents"),
    ("json_object", "json_output", "json"),
    ("json_schema", "json_output_schema", "json schema"),
    ("reasoning", "reasoning", "reasoning"),
    ("web_search", "web_search", "web search"),
]


@pytest.fixture
def lacking(mapping, provider):
    """lacking(needs, tier=…, fields of the mapping …) → reasons."""

    def ask(needs, tier="", model=None, provider_fields=None, **fields):
        one = provider("p", **(provider_fields or {}))
        return missing(mapping("p", **fields), model or Model("m"), needs, Options(service_tier=tier), one)

    return ask


@pytest.mark.parametrize(("need", "field", "reason"), FLAGS)
def test_each_need_requires_its_own_flag(lacking, need, field, reason):
    assert lacking(Requirements(**{need: True})) == (reason,)
    assert lacking(Requirements(**{need: True}), **{field: True}) == ()


@pytest.mark.parametrize(
    "capability", [capability for capability in CAPABILITIES if capability.flag], ids=lambda capability: capability.name
)
def test_each_capability_of_a_parameter_is_offered_by_its_own_flag(lacking, capability):
    needs = Requirements(parameters=frozenset((capability.name,)))
    assert lacking(needs) == (capability.name,)
    assert lacking(needs, **{capability.flag: True}) == ()


def test_a_plain_request_lacks_nothing(lacking):
    assert lacking(Requirements(stream=True, max_tokens=10, prompt_bytes=100)) == ()


def test_streaming_needs_the_mapping_and_the_provider(lacking):
    assert lacking(Requirements(stream=True), streaming=False) == ("streaming",)
    assert lacking(Requirements(stream=True), provider_fields={"streaming": False}) == ("streaming",)


def test_image_output_is_a_matter_of_the_model(lacking):
    assert lacking(Requirements(image_output=True)) == ("image output",)
    assert lacking(Requirements(image_output=True), model=Model("m", output_modalities=("text", "image"))) == ()


def test_effort_must_be_a_listed_one_where_there_is_a_list(lacking):
    asked = Requirements(reasoning=True, effort="minimal")
    assert lacking(asked, reasoning=True) == ()
    assert lacking(asked, reasoning=True, reasoning_efforts=("low", "high")) == ("effort",)


def test_effort_none_asks_for_no_reasoning(lacking):
    assert lacking(Requirements(reasoning=True, effort="none")) == ()


def test_several_answers_need_support_and_room(lacking):
    assert lacking(Requirements(n=2)) == ("n in one call",)
    assert lacking(Requirements(n=2), supports_n=True) == ()
    assert lacking(Requirements(n=9), supports_n=True, max_n=8) == ("n in one call",)
    assert lacking(Requirements(n=2, stream=True), supports_n=True, max_streamed_n=1) == ("n in one call",)
    assert lacking(Requirements(n=129)) == ("n",)


def test_output_limit_is_the_mappings_else_the_models(lacking):
    assert lacking(Requirements(max_tokens=101), max_output=100) == ("max_tokens",)
    assert lacking(Requirements(max_tokens=101), max_output=200, model=Model("m", max_output=100)) == ()
    assert lacking(Requirements(max_tokens=101), model=Model("m", max_output=100)) == ("max_tokens",)


def test_prompts_that_cannot_fit_differ_from_prompts_that_may_not_fit(lacking):
    assert lacking(Requirements(prompt_bytes=4_000, max_tokens=10), context_length=1010) == ()
    room = "room for max_tokens"
    assert lacking(Requirements(prompt_bytes=4_004, max_tokens=10), context_length=1010) == (room,)
    assert lacking(Requirements(prompt_bytes=4_040, max_tokens=10), context_length=1010) == (
        "context (estimated)",
        room,
    )
    assert lacking(Requirements(prompt_bytes=10_100, max_tokens=10), context_length=1010) == ("context", room)


def test_a_service_tier_must_be_the_mappings(lacking):
    assert lacking(Requirements(), tier="flex") == ("service tier",)
    assert lacking(Requirements(), tier="flex", service_tiers={"flex": "0.5"}) == ()
    assert lacking(Requirements(), tier="auto") == ()


def test_a_forced_tool_must_be_among_known_choices(lacking):
    assert lacking(Requirements(tools=True, forced_tool="required"), tools=True) == ()
    assert lacking(Requirements(tools=True, forced_tool="required"), tools=True, supported_tool_choices=("auto",)) == (
        "tool choice",
    )
    assert lacking(Requirements(tools=True, forced_tool="tool"), tools=True, supported_tool_choices=("function",)) == ()


def test_penalties_are_accepted_where_format_and_entry_have_them(mapping, provider):
    def bits(lost=frozenset(), **fields):
        return read_ability(mapping("p", **fields), Model("m"), provider("p"), lost=lost).bits & BITS["penalties"]

    assert bits()
    assert not bits(lost=frozenset(("penalties",)))
    assert not bits(quirks=("no_sampling",)) and not bits(supported_parameters=("temperature",))


def test_servers_without_forced_tools_lack_the_flag(lacking):
    forced = Requirements(tools=True, forced_tool="required")
    assert lacking(forced, tools=True, quirks=("tool_choice_auto",)) == ("tool choice",)


def test_offered_tools_of_providers_are_options(lacking):
    assert lacking(Requirements(web_search=True, search_offered=True)) == ("offered web search",)
    assert lacking(Requirements(web_search=True, search_offered=True), web_search=True) == ()
    assert lacking(Requirements(hosted="other")) == ("hosted tools",)
    assert lacking(Requirements(hosted="other"), protocol="other") == ()


def test_a_part_of_one_vendor_goes_to_its_protocol_only(lacking):
    assert lacking(Requirements(vendor_only="other")) == (VENDOR,)
    assert lacking(Requirements(vendor_only="other"), protocol="other") == ()


def test_a_part_of_one_vendor_goes_to_either_of_two_protocols(mapping, provider):
    ability = read_ability(mapping("p"), Model("m"), provider("p"), "chat", "other")
    assert lacks(ability, read_demand(Requirements(vendor_only="other"), Options())) == ()
    assert lacks(ability, read_demand(Requirements(vendor_only="third"), Options())) == (VENDOR,)


def test_the_refusal_names_what_all_lack():
    error = refuse("m", [("tools", "vision"), ("tools",)])
    assert (error.status, error.code, error.param) == (400, "model_not_supported", "tools")
    assert error.message == "No provider of m supports what the request needs: tools (`tools`)."


def test_the_refusal_names_what_each_lacks_when_nothing_is_common():
    assert "tools (`tools`) / vision (`messages`)" in refuse("m", [("tools",), ("vision",)]).message


def test_the_refusal_leaves_out_rules_that_would_have_allowed():
    assert refuse("m", [("tools", "parallel tools")]).param == "tools"


@pytest.mark.parametrize(
    ("reason", "param", "code"),
    [
        ("tool choice", "tool_choice", "model_not_supported"),
        ("context", "messages", "context_length_exceeded"),
        ("json schema", "response_format", "model_not_supported"),
    ],
)
def test_single_reasons_have_their_own_codes(reason, param, code):
    error = refuse("m", [(reason,)])
    assert (error.param, error.code) == (param, code)
