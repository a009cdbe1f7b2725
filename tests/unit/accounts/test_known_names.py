"""Names that rules and policies allow must be known when they are set."""

import pytest

from gateway.accounts.known_names import KnownNames
from gateway.callers.stored_providers import CustomProviderInfo
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.errors import InvalidRequest


def model(ident: str, *mappings: Mapping) -> Model:
    return Model(ident, mappings=mappings)


CATALOGUE = Catalogue(
    [
        model("large", Mapping("alpha", "large", "l-1", region="eu"), Mapping("beta", "large", "l")),
        model("small", Mapping("alpha", "small", "s")),
    ],
    [
        Provider("alpha", "Alpha", "openai", "https://alpha.invalid"),
        Provider("beta", "Beta", "openai", "https://beta.invalid"),
        Provider("engine", "Engine", "openai", key_required=False),
    ],
    {"large-latest": "large"},
)
HOUSE = CustomProviderInfo("cprov_1", "org_1", "house", "https://house.invalid", ({"id": "brick"},))
OPEN = CustomProviderInfo("cprov_2", "org_1", "open", "https://open.invalid")
KNOWN = KnownNames(CATALOGUE, (HOUSE,))


@pytest.mark.parametrize("name", ["alpha", " beta ", "custom", "custom:house"])
def test_a_known_provider_may_be_allowed(name: str) -> None:
    KNOWN.check_rule("allow_providers", {"providers": [name]})
    KNOWN.check_policy({"allowedProviders": [name]})


@pytest.mark.parametrize(
    "name",
    ["large", "alpha/large", "alpha/large:eu", "beta/large", "brick", "house/brick", "custom:house/brick",
     "engine/whatever", "custom/x"],
)  # fmt: skip
def test_a_known_model_may_be_allowed(name: str) -> None:
    KNOWN.check_rule("allow_models", {"models": [name]})
    KNOWN.check_policy({"allowedModels": [name]})


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("providers", "alhpa", "perhaps alpha is meant"),
        ("providers", "custom:hose", "perhaps custom:house is meant"),
        ("providers", "xyz", "There is no provider xyz."),
        ("models", "larg", "perhaps large is meant"),
        ("models", "large-latest", "its id is large"),
        ("models", "alpha/large-latest", "its id is alpha/large"),
        ("models", "beta/small", "small is not served by beta"),
        ("models", "alpha/large:us", "There is no model"),
        ("models", "house/stone", "There is no model"),
    ],
)
def test_an_unknown_name_is_refused_with_the_one_that_is_meant(kind: str, name: str, said: str) -> None:
    member = f"allowed{kind.title()}"
    for check, value, param in (
        (lambda value: KNOWN.check_rule(f"allow_{kind}", value), {kind: ["large", name][-1:]}, f"ruleValue.{kind}"),
        (KNOWN.check_policy, {member: [name]}, member),
    ):
        with pytest.raises(InvalidRequest) as refused:
            check(value)
        assert said in refused.value.message and refused.value.param == param


def test_a_provider_of_ones_own_that_lists_nothing_serves_any_model() -> None:
    for name in ("open/anything", "anything"):
        KnownNames(CATALOGUE, (OPEN,)).check_rule("allow_models", {"models": [name]})


def test_denied_names_may_be_unknown() -> None:
    KNOWN.check_rule("deny_models", {"models": ["next-year"]})
    KNOWN.check_policy({"blockedProviders": ["next-year"], "allowedProviders": "no list"})


def test_models_of_an_own_provider_are_listed_once_however_many_names_there_are() -> None:
    """Two thousand names and thirty providers of a thousand models held the event loop for seconds."""
    listed = 0

    class Counted(dict[str, str]):
        def __getitem__(self, member: str) -> str:
            nonlocal listed
            listed += 1
            return super().__getitem__(member)

    models = tuple(Counted(id=f"brick-{number}") for number in range(10))
    known = KnownNames(CATALOGUE, (CustomProviderInfo("cprov_3", "org_1", "yard", "https://yard.invalid", models),))
    known.check_rule("allow_models", {"models": [f"yard/brick-{number}" for number in range(10)]})
    assert listed == len(models)
