import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.callers.access import address_refusal, allowed, check_address, forbid, predicate
from gateway.callers.compliance import CompliancePolicy, read_policy
from gateway.callers.rule_values import RuleInfo, compile_levels
from gateway.catalogue.entries import DataPolicy, Mapping, Prices, Provider, TokenRates
from gateway.errors import Forbidden, InvalidRequest

PROVIDERS = {name: Provider(name, name, "openai") for name in ("alpha", "beta", "custom:own")}
MODELS = ("small", "large")
AT = 1_800_000_000_000_000


def mapping(provider: str = "alpha", model: str = "small", prompt: int | None = 100, completion: int = 200) -> Mapping:
    prices = () if prompt is None else (Prices(TokenRates(prompt=prompt, completion=completion)),)
    return Mapping(provider, model, model, prices=prices)


def rule(type: str, value: dict, scope: str = "key", scope_id: str = "key_1") -> RuleInfo:
    return RuleInfo("rule", "org_1", scope, scope_id, type, value)


def levels(*rules: RuleInfo, policy: CompliancePolicy | None = None):
    return compile_levels("org_1", policy, rules)


def reason(found, entry: Mapping, provider: Provider | None = None) -> str | None:
    refuse = predicate(found, AT)
    return refuse(entry, provider or PROVIDERS[entry.provider]) if refuse else None


names = st.lists(st.sampled_from([*MODELS, "alpha/small", "beta/large", "own/small"]), min_size=1, max_size=3)
vendors = st.lists(st.sampled_from([*PROVIDERS, "custom"]), min_size=1, max_size=2)
networks = st.lists(st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32", "2001:db8::/32"]), min_size=1)
prices = st.fixed_dictionaries({"pricingType": st.sampled_from(["free", "paid"])})
any_rule = st.one_of(
    st.tuples(st.sampled_from(["allow_models", "deny_models"]), names.map(lambda found: {"models": found})),
    st.tuples(st.sampled_from(["allow_providers", "deny_providers"]), vendors.map(lambda found: {"providers": found})),
    st.tuples(st.sampled_from(["allow_ip_cidrs", "deny_ip_cidrs"]), networks.map(lambda found: {"ipCidrs": found})),
    st.tuples(st.sampled_from(["allow_pricing", "deny_pricing"]), prices),
)
places = st.sampled_from([("organization", "org_1"), ("team", "t1"), ("team", "t2"), ("member", "m"), ("key", "k")])
rule_sets = st.lists(st.tuples(any_rule, places).map(lambda pair: rule(*pair[0], *pair[1])), max_size=6)
calls = st.tuples(
    st.builds(
        mapping, st.sampled_from(list(PROVIDERS)), st.sampled_from(MODELS), st.sampled_from([0, 100]), st.just(0)
    ),
    st.sampled_from(["10.1.2.3", "192.0.2.7", "2001:db8::1", ""]),
)

EXAMPLES = settings().max_examples  # those of the profile


def lets(rules, call) -> bool:
    entry, ip = call
    return allowed(levels(*rules), entry, PROVIDERS[entry.provider], ip, AT)


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(rule_sets, any_rule, calls)
def test_a_further_level_only_narrows(rules, extra, call) -> None:
    new_place = rule(*extra, "team", "another")
    assert lets([*rules, new_place], call) <= lets(rules, call)


@settings(max_examples=5 * EXAMPLES, deadline=None)
@given(rule_sets, calls, places)
def test_deny_wins_over_every_allow(rules, call, place) -> None:
    entry, _ = call
    assert not lets([*rules, rule("deny_models", {"models": [entry.model]}, *place)], call)
    assert not lets([*rules, rule("deny_providers", {"providers": [entry.provider]}, *place)], call)


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(rule_sets, calls)
def test_a_call_passes_exactly_when_every_level_alone_lets_it(rules, call) -> None:
    found = {(rule.scope, rule.scope_id) for rule in rules}
    alone = [[rule for rule in rules if (rule.scope, rule.scope_id) == place] for place in found]
    assert lets(rules, call) == all(lets(some, call) for some in alone)


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(rule_sets, calls)
def test_the_order_of_rules_does_not_matter(rules, call) -> None:
    assert lets(rules, call) == lets(list(reversed(rules)), call)


def test_no_rules_cost_nothing() -> None:
    assert predicate((), AT) is None
    check_address((), "")


def test_allow_rules_of_one_type_are_a_union_and_of_two_types_an_intersection() -> None:
    either = levels(rule("allow_models", {"models": ["small"]}), rule("allow_models", {"models": ["large"]}))
    assert not reason(either, mapping(model="small")) and not reason(either, mapping(model="large"))
    both = levels(rule("allow_models", {"models": ["small"]}), rule("allow_providers", {"providers": ["beta"]}))
    assert reason(both, mapping("alpha", "small")) and reason(both, mapping("beta", "large"))
    assert not reason(both, mapping("beta", "small"))


@pytest.mark.parametrize(
    ("scope", "name"),
    [("organization", "organization"), ("team", "team"), ("member", "organization member"), ("key", "API key")],
)
def test_a_refusal_names_the_scope(scope: str, name: str) -> None:
    found = levels(rule("deny_models", {"models": ["small"]}, scope, "x"))
    error = forbid(reason(found, mapping()))
    assert isinstance(error, Forbidden) and error.status == 403
    assert error.message == f"Access denied: {name} rule: model small is denied"


@pytest.mark.parametrize(
    ("ip", "passes"),
    [
        ("10.9.9.9", True),
        ("::ffff:10.9.9.9", True),
        ("11.0.0.1", False),
        ("10.1.0.1", False),
        ("", False),
        ("?", False),
    ],
)
def test_client_addresses_are_checked_and_an_unknown_one_is_refused(ip: str, passes: bool) -> None:
    found = levels(
        rule("allow_ip_cidrs", {"ipCidrs": ["10.0.0.0/8"]}), rule("deny_ip_cidrs", {"ipCidrs": ["10.1.0.0/16"]})
    )
    assert (address_refusal(found, ip) is None) == passes


@pytest.mark.parametrize(("ip", "passes"), [("11.0.0.1", True), ("10.1.0.1", False), ("", False), ("?", False)])
def test_an_address_that_cannot_be_read_fails_a_deny_rule_too(ip: str, passes: bool) -> None:
    found = levels(rule("deny_ip_cidrs", {"ipCidrs": ["10.1.0.0/16"]}))
    assert (address_refusal(found, ip) is None) == passes


def test_an_organizations_own_providers_are_named_alone_or_together() -> None:
    own = mapping("custom:own", "small")
    for name in ("custom", "custom:own"):
        assert reason(levels(rule("deny_providers", {"providers": [name]})), own)
        assert not reason(levels(rule("deny_providers", {"providers": [name]})), mapping())
    assert reason(levels(rule("deny_models", {"models": ["own/small"]})), own)


@pytest.mark.parametrize(
    ("type", "value", "price", "passes"),
    [
        ("allow_pricing", {"pricingType": "free"}, 0, True),
        ("allow_pricing", {"pricingType": "free"}, 1, False),
        ("allow_pricing", {"pricingType": "free"}, None, False),
        ("allow_pricing", {"pricingType": "paid"}, 0, False),
        ("deny_pricing", {"pricingType": "free"}, 0, False),
        ("deny_pricing", {"pricingType": "paid"}, 0, True),
        ("allow_pricing", {"maxInputPrice": "0.000001"}, 1_000_000_000, True),
        ("allow_pricing", {"maxInputPrice": 0.000001}, 1_000_000_001, False),
        ("allow_pricing", {"maxInputPrice": "0.000001"}, None, False),
        ("deny_pricing", {"maxInputPrice": "0.000001"}, 1_000_000_001, False),
        ("deny_pricing", {"maxInputPrice": "0.000001"}, 1_000_000_000, True),
    ],
)
def test_pricing_rules(type: str, value: dict, price: int | None, passes: bool) -> None:
    assert (reason(levels(rule(type, value)), mapping(prompt=price, completion=0)) is None) == passes


@pytest.mark.parametrize(("price", "passes"), [(1_000_000_000, True), (1_000_000_001, False)])
def test_a_rule_limits_the_price_of_output(price: int, passes: bool) -> None:
    limit = rule("allow_pricing", {"maxOutputPrice": "0.000001"})
    assert (reason(levels(limit), mapping(completion=price)) is None) == passes


CERTIFIED = DataPolicy(False, False, "0 days", 2, True, True)
POLICIES = [
    {"requireSoc2": True},
    {"requireSoc2Type2": True},
    {"requireIso27001": True},
    {"requireSoc2OrIso27001": True},
    {"requireGdpr": True},
    {"blockApiTraining": True},
    {"blockPromptLogging": True},
    {"zeroDataRetention": True},
    {"blockStealthProviders": True},
    {"allowedCountries": ["de"]},
    {"allowedProviders": ["good"]},
    {"blockedProviders": ["bad"]},
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: next(iter(policy)))
def test_a_policy_passes_who_states_compliance_and_refuses_who_states_nothing(policy: dict) -> None:
    good = Provider("good", "Good", "openai", data_policy=CERTIFIED, headquarters="DE")
    found = levels(policy=read_policy(policy))
    assert reason(found, mapping("good"), good) is None
    assert reason(found, mapping("bad"), Provider("bad", "Bad", "openai")).startswith("organization compliance policy:")


@pytest.mark.parametrize(
    ("retention", "passes"),
    [("0", True), ("0 days", True), ("None", True), ("zero", True), ("30 days", False), ("", False)],
)
def test_zero_data_retention_needs_a_provider_that_keeps_nothing(retention: str, passes: bool) -> None:
    provider = Provider("good", "Good", "openai", data_policy=DataPolicy(retention=retention))
    found = levels(policy=read_policy({"zeroDataRetention": True}))
    assert (reason(found, mapping("good"), provider) is None) == passes


@pytest.mark.parametrize("policy", [{"allowedModels": ["large"]}, {"blockedModels": ["alpha/small"]}])
def test_a_policy_names_models(policy: dict) -> None:
    found = levels(policy=read_policy(policy))
    assert reason(found, mapping(model="small")) and not reason(found, mapping(model="large"))


@pytest.mark.parametrize("policy", [{"requireSoc3": True}, {"requireSoc2": "yes"}, {"allowedModels": "large"}])
def test_an_ill_formed_policy_is_refused(policy: dict) -> None:
    with pytest.raises(InvalidRequest):
        read_policy(policy)
