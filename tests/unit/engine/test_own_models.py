from types import SimpleNamespace

import pytest

from gateway.accounts.authentication import Caller
from gateway.accounts.custom_providers import CustomProviderInfo
from gateway.accounts.provider_keys import Credential, ProviderKeyInfo
from gateway.engine.offers import Offers
from gateway.engine.own_models import OwnModels


def caller(organization: str, mode: str = "hybrid") -> Caller:
    return Caller("key", "user", "", organization, "proj", "user", "member", "owner", mode)


def provider(*models: str) -> dict[str, CustomProviderInfo]:
    entries = tuple({"id": model} for model in models)
    return {"house": CustomProviderInfo("c", "org", "house", "https://house.example/v1", entries)}


@pytest.fixture
def store():
    """What the store holds: `version`, and `providers` by organization."""
    return SimpleNamespace(version=1, providers={"org": provider("big")})


@pytest.fixture
def own_models(store) -> OwnModels:
    key = Credential(ProviderKeyInfo("k", "org", "custom:house", "…"), "secret")
    providers = SimpleNamespace(providers_of=lambda ident: store.providers.get(ident, {}))
    keys = SimpleNamespace(keys_for=lambda ident, name: (key,) if name == "custom:house" else ())
    return OwnModels(SimpleNamespace(check=lambda: store.version), Offers(providers, keys))


def idents(own_models: OwnModels, *who: str) -> list[str]:
    return list(own_models.of(caller(*who)).current().models)


def test_models_are_those_of_the_callers_organization_alone(own_models):
    assert idents(own_models, "org") == ["house/big"]
    assert idents(own_models, "other") == []


@pytest.mark.parametrize(("mode", "seen"), [("credits", []), ("api-keys", ["house/big"])])
def test_a_project_that_spends_credits_has_no_models_of_its_own(own_models, mode, seen):
    assert idents(own_models, "org", mode) == seen


def test_they_are_made_once_until_something_changes(own_models, store):
    before = own_models.of(caller("org"))
    assert own_models.of(caller("org")) is before
    store.providers, store.version = {"org": provider("big", "small")}, 2
    assert idents(own_models, "org") == ["house/big", "house/small"]


def test_an_organization_that_gets_its_first_model_sees_it(own_models, store):
    assert idents(own_models, "new") == []
    store.providers["new"], store.version = provider("fresh"), 2
    assert idents(own_models, "new") == ["house/fresh"]
