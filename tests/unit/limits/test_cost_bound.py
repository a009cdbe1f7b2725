"""Messages of refusals: the limit that is spent, its owner, and the advice."""

import pytest
from msgspec.structs import replace

from gateway.limits.cost_bound import CostBound, Shortage
from gateway.limits.limit_rules import LimitRule, Subject
from gateway.limits.models import KEY, LIMIT, MEMBER, PROVIDER_KEY, RUN, SESSION, TOTAL
from gateway.money import NANO


@pytest.mark.parametrize(
    ("scope", "owner", "advice"),
    [
        (KEY, "API key", "raise the limit, or make a smaller request"),
        (MEMBER, "member who owns the API key", "raise the limit, or make a smaller request"),
        (PROVIDER_KEY, "organization's own provider key", "raise the limit, or make a smaller request"),
        (SESSION, "session of this agent", "start a new session"),
        (RUN, "run that this request belongs to", "start a new run"),
        ("team", 'team "Research"', "raise the limit, or make a smaller request"),
    ],
)
def test_a_refusal_names_the_owner_of_the_limit_and_a_remedy(scope: str, owner: str, advice: str) -> None:
    message = Shortage(scope, TOTAL, 2 * NANO, NANO, 3 * NANO, name="Research", unspent_nusd=NANO).error().message
    assert message.startswith(f"The {owner} ") and advice in message
    assert "2 USD, of which 1 USD are used and 1 USD are left" in message


@pytest.mark.parametrize(
    ("scope", "advice"),
    [
        (KEY, "ask for more at /console/budgets/org_1/key_1:total, or make"),
        (MEMBER, "ask for more at /console/budgets/org_1/key_1:total, or make"),
        (PROVIDER_KEY, "raise the limit, or make"),
        (LIMIT, "ask for more at /console, or make"),
        (SESSION, "start a new session"),
    ],
)
def test_a_refusal_says_where_one_asks_for_more(scope: str, advice: str) -> None:
    ident = "key_1:total" if scope in (KEY, MEMBER, PROVIDER_KEY) else ""
    rule = LimitRule("lim_1", "search", (Subject("each"),), 2 * NANO) if scope == LIMIT else None
    short = Shortage(scope, TOTAL, 2 * NANO, NANO, 3 * NANO, rule=rule, limit_id=ident)
    error = short._replace(organization_id="org_1", page="/console").error()
    assert advice in error.message and error.limit == (ident or ("search" if rule else ""))
    named = f"{error.limit}; action=refuse"
    assert error.headers == ((("x-llmgateway-limit", named),) if error.limit else ())


def test_output_that_nothing_limits_is_reserved_whole_by_budgets_with_likely_costs():
    bound = CostBound(0, 1_000_000, 4096, True, fixed_output=True)
    assert bound.least_nusd(likely=True) == bound.bound_nusd
    assert replace(bound, fixed_output=False).least_nusd(likely=True) < bound.bound_nusd
