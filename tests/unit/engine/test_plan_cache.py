import math
from types import SimpleNamespace as Thing
from typing import get_type_hints

import pytest

from gateway.billing.context import NO_HEADER_OPTIONS
from gateway.engine.plan_cache import LARGE_BYTES, LIFETIME_S, PlanCache, key_of, range_of
from gateway.neutral.chat import Options, Requirements
from gateway.neutral.hosted_uses import HostedUse
from gateway.neutral.request import ProviderPreferences
from gateway.routing.plan import EXPLORED, LOW_UPTIME, PINNED, PREFERRED, SESSION, SINGLE, WEIGHTED
from gateway.routing.score import LARGE_PROMPT_TOKENS


def candidate(context=1_000_000, steps=(), max_output=8_000):
    return Thing(ability=Thing(context=context, max_output=max_output), steps=steps)


def plan(reason=PINNED, kind="pinned", keys=1, custom_model=None, max_tokens=None, **size):
    group = Thing(candidate=candidate(**size), credentials=("key",) * keys)
    request = Thing(requirements=Requirements(max_tokens=max_tokens))
    return Thing(
        reason=reason,
        resolution=Thing(kind=kind, custom_model=custom_model),
        parts=(),
        order=(group,),
        ranked=[group],
        excluded=[],
        request=request,
    )


def joined(*parts, skipped=()):
    return Thing(**{**vars(parts[0]), "parts": parts, "skipped": skipped})


def found(made, catalogue="c", size=10, later_s=0.0):
    recent = PlanCache()
    recent.keep("key", "planned", made, "c", 10, 100.0)
    return recent.find("key", catalogue, size, 100.0 + later_s)


def context(**changes):
    caller = Thing(rules=(), mode="credits", project_id="prj_1")
    defaults = {"caller": caller, "session": "", "operation": "chat", "options": NO_HEADER_OPTIONS}
    return Thing(**(defaults | changes))


def request(options=None, **needs):
    return Thing(requested_model="openai/gpt-4o-mini", requirements=Requirements(**needs), options=options or Options())


def test_a_plan_serves_the_next_request_like_it():
    assert found(plan(), later_s=LIFETIME_S / 2) == "planned"


@pytest.mark.parametrize("reason", [WEIGHTED, PREFERRED])
def test_a_choice_among_providers_by_health_and_preference_serves_the_next_request_too(reason):
    assert found(plan(reason, "canonical")) == "planned"


@pytest.mark.parametrize("reason", [EXPLORED, SESSION, LOW_UPTIME])
def test_plans_by_chance_by_session_or_with_a_failing_provider_are_not_cached(reason):
    assert found(plan(reason, "canonical")) is None


def test_a_plan_ends_after_a_moment():
    assert found(plan(), later_s=LIFETIME_S) is None


def test_a_new_catalogue_ends_every_plan():
    assert found(plan(), catalogue="another") is None


@pytest.mark.parametrize("made", [plan(reason=EXPLORED), plan(keys=2), plan(kind="auto"), plan(custom_model="own")])
def test_plans_by_chance_or_by_turn_are_not_cached(made):
    assert found(made) is None


def test_a_prompt_that_might_not_fit_is_planned_again():
    made = plan(reason=SINGLE, context=1000, max_tokens=500)
    assert found(made, size=1999) == "planned"
    assert found(made, size=2000) is None


def test_a_price_step_and_large_prompts_end_the_validity_of_a_plan():
    assert range_of(plan(steps=((200, None),)), 10) == (0, 800)
    assert range_of(plan(steps=((200, None),)), 900) == (804, LARGE_PROMPT_TOKENS * 4)
    assert range_of(plan(), 10) == (0, LARGE_PROMPT_TOKENS * 4)
    assert range_of(plan(), 50_000) == (LARGE_PROMPT_TOKENS * 4 + 4, 4_000_000)
    assert range_of(plan(context=1000), 100_000) == (LARGE_PROMPT_TOKENS * 4 + 4, math.inf)


def test_plans_of_small_and_large_prompts_are_kept_side_by_side():
    recent = PlanCache()
    recent.keep("key", "small", plan(), "c", 10, 100.0)
    recent.keep("key", "large", plan(), "c", LARGE_BYTES + 1000, 100.0)
    found = [recent.find("key", "c", size, 100.0) for size in (20, LARGE_BYTES, LARGE_BYTES + 2000, 4_000_000)]
    assert found == ["small", None, "large", None]
    recent.clear()
    assert recent.find("key", "c", LARGE_BYTES + 2000, 100.0) is None


def test_a_failure_ends_every_plan():
    recent = PlanCache()
    recent.keep("key", "planned", plan(), "c", 10, 100.0)
    recent.clear()
    assert recent.find("key", "c", 10, 100.0) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (request(), request(stream=True)),
        (request(), request(tools=True)),
        (request(max_tokens=5), request(max_tokens=6)),
        (request(), request(Options(routing="price"))),
    ],
)
def test_requests_that_differ_in_what_they_need_share_no_plan(one, other):
    assert key_of(context(), one) != key_of(context(), other)


SIZES = ("prompt_bytes", "messages", "media", "longest_input", "units", "media_tokens", "likely_media_tokens")
PLANNED = {*Requirements.__struct_fields__} - {*SIZES, "unseen_media", "keeps_reasoning", "own_members"}
OTHER_VALUES = {
    bool: True,
    str: "word",
    int: 7,
    int | None: 7,
    frozenset[str]: frozenset(("verbosity",)),
    tuple[HostedUse, ...]: (HostedUse("", "web_search", "units"),),
}


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_requests_that_differ_in_any_requirement_except_sizes_share_no_plan(name):
    value = OTHER_VALUES[get_type_hints(Requirements)[name]]
    assert key_of(context(), request()) != key_of(context(), request(**{name: value}))


@pytest.mark.parametrize("name", SIZES)
def test_requests_that_differ_in_size_share_a_plan(name):
    assert key_of(context(), request()) == key_of(context(), request(**{name: 7}))


@pytest.mark.parametrize("options", [Options(models=("m",)), Options(provider=ProviderPreferences(only=("openai",)))])
def test_requests_with_other_models_or_preferences_share_no_plan(options):
    assert key_of(context(), request()) != key_of(context(), request(options))
    assert key_of(context(), request(options)) == key_of(context(), request(options.with_changes()))


def test_a_plan_of_several_models_is_kept_when_the_plan_of_each_is_certain():
    assert found(joined(plan(), plan(WEIGHTED, "canonical"))) == "planned"
    assert found(joined(plan(), plan(EXPLORED, "canonical"))) is None
    assert found(joined(plan(), skipped=(("gone", "unknown"),))) is None


def test_projects_share_no_plan():
    other_caller = Thing(rules=(), mode="credits", project_id="prj_2")
    assert key_of(context(), request()) != key_of(context(caller=other_caller), request())


@pytest.mark.parametrize(
    "changes",
    [
        {"caller": Thing(rules=("rule",), mode="credits", project_id="p")},
        {"caller": Thing(rules=(), mode="hybrid", project_id="p")},
        {"session": "s"},
    ],
)
def test_rules_own_keys_and_sessions_are_planned_each_time(changes):
    assert key_of(context(**changes), request()) is None


def test_a_session_named_in_the_body_is_planned_each_time():
    assert key_of(context(), request(Options(session="s"))) is None
