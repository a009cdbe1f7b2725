import pytest

from gateway.accounts import rules
from gateway.callers.rule_values import read_value
from gateway.errors import InvalidRequest, NotFound

BY = {"actor": "operator"}


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("allow_everything", {"models": ["a"]}),
        ("allow_models", {}),
        ("allow_models", {"models": []}),
        ("allow_models", {"models": "a"}),
        ("allow_models", {"models": ["a", 1]}),
        ("allow_models", {"providers": ["a"]}),
        ("deny_ip_cidrs", {"ipCidrs": ["10.0.0.0/33"]}),
        ("deny_ip_cidrs", {"ipCidrs": ["localhost"]}),
        ("allow_pricing", {}),
        ("allow_pricing", {"pricingType": "cheap"}),
        ("allow_pricing", {"maxInputPrice": "much"}),
        ("allow_pricing", {"maxInputPrice": -1}),
        ("allow_pricing", {"maxInputPrice": True}),
    ],
)
def test_an_ill_formed_rule_is_refused(type: str, value: dict) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_value(type, value)
    assert caught.value.param.startswith("rule")


def test_rules_are_added_listed_switched_and_removed(company) -> None:
    at, organization = (company.database, company.control), company.organization_id
    made = rules.add_rule(*at, "member", company.member_id, "allow_models", {"models": ["small"]}, **BY)
    other = rules.add_rule(*at, "organization", organization, "deny_providers", {"providers": ["x"]}, **BY)
    assert rules.list_rules(company.database, organization) == [made, other]
    assert rules.list_rules(company.database, organization, "member", company.member_id) == [made]
    assert not rules.set_rule_active(*at, organization, made.id, False, **BY).active
    rules.remove_rule(*at, organization, other.id, **BY)
    assert [rule.id for rule in rules.list_rules(company.database, organization)] == [made.id]


def test_a_rule_needs_a_place_that_exists(company) -> None:
    for scope in ("organization", "team", "member", "key"):
        with pytest.raises(NotFound):
            rules.add_rule(company.database, company.control, scope, "no", "deny_models", {"models": ["a"]}, **BY)
    with pytest.raises(InvalidRequest):
        rules.add_rule(company.database, company.control, "planet", "no", "deny_models", {"models": ["a"]}, **BY)


def test_a_rule_of_another_organization_is_out_of_reach(company) -> None:
    at = (company.database, company.control)
    made = rules.add_rule(*at, "member", company.member_id, "deny_models", {"models": ["small"]}, **BY)
    with pytest.raises(NotFound):
        rules.remove_rule(*at, "org_other", made.id, **BY)
    with pytest.raises(NotFound):
        rules.set_rule_active(*at, "org_other", made.id, False, **BY)
    assert rules.list_rules(company.database, company.organization_id) == [made]
