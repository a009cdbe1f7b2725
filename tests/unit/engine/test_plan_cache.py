from types import SimpleNamespace as Thing

import pytest

from gateway.engine.plan_cache import KEEP_S, PlanCache, ceiling_of, key_of
from gateway.neutral.chat import Options, Requirements
from gateway.routing.plan import EXPLORED, LOW_UPTIME, PINNED, PREFERRED, SESSION, SINGLE, WEIGHTED
from gateway.routing.score import LARGE_PROMPT_TOKENS


def candidate(context=1_000_000, steps=()):
    return Thing(ability=Thing(context=context), steps=steps)


def plan(reason=PINNED, kind="pinned", keys=1, custom_model=None, max_tokens=None, **size):
    one = Thing(candidate=candidate(**size), credentials=("key",) * keys)
    ask = Thing(requirements=Requirements(max_tokens=max_tokens))
    return Thing(
        reason=reason,
        resolution=Thing(kind=kind, custom_model=custom_model),
        order=(one,),
        ranked=[one],
        excluded=[],
        request=ask,
    )


def found(made, catalogue="c", size=10, later_s=0.0):
    recent = PlanCache()
    recent.keep("key", "planned", made, "c", 10, 100.0)
    return recent.find("key", catalogue, size, 100.0 + later_s)


def context(**changes):
    caller = Thing(rules=(), mode="credits", project_id="prj_1")
    defaults = {"caller": caller, "session": "", "operation": "chat", "no_fallback": False}
    return Thing(**(defaults | changes))


def request(options=None, **needs):
    return Thing(requested_model="openai/gpt-4o-mini", requirements=Requirements(**needs), options=options or Options())


def test_a_plan_serves_the_next_request_like_it():
    assert found(plan(), later_s=KEEP_S / 2) == "planned"


@pytest.mark.parametrize("reason", [WEIGHTED, PREFERRED])
def test_a_choice_among_providers_by_health_and_preference_serves_the_next_request_too(reason):
    assert found(plan(reason, "canonical")) == "planned"


@pytest.mark.parametrize("reason", [EXPLORED, SESSION, LOW_UPTIME])
def test_what_chance_a_session_or_a_failing_provider_decided_is_planned_each_time(reason):
    assert found(plan(reason, "canonical")) is None


def test_a_plan_ends_after_a_moment():
    assert found(plan(), later_s=KEEP_S) is None


def test_a_new_catalogue_ends_every_plan():
    assert found(plan(), catalogue="another") is None


@pytest.mark.parametrize("made", [plan(reason=EXPLORED), plan(keys=2), plan(kind="auto"), plan(custom_model="own")])
def test_what_chance_or_a_turn_decided_is_not_kept(made):
    assert found(made) is None


def test_a_prompt_that_might_not_fit_is_planned_anew():
    made = plan(reason=SINGLE, context=1000, max_tokens=500)
    assert found(made, size=1999) == "planned"
    assert found(made, size=2000) is None


def test_a_price_step_and_large_prompts_end_what_a_plan_is_good_for():
    assert ceiling_of(plan(steps=((200, None),))) == 800
    assert ceiling_of(plan()) == LARGE_PROMPT_TOKENS * 4


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


def test_projects_share_no_plan():
    other = Thing(rules=(), mode="credits", project_id="prj_2")
    assert key_of(context(), request()) != key_of(context(caller=other), request())


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
