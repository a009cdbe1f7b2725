import threading
import time
from types import SimpleNamespace

import gevent
import pytest

from gateway.callers.authentication import Caller
from gateway.callers.stored_keys import ProviderKeyInfo, StoredCredential
from gateway.callers.stored_providers import CustomProviderInfo
from gateway.engine import custom_models as module
from gateway.engine.custom_models import CustomCatalogue, CustomModels


def caller(organization: str, mode: str = "hybrid") -> Caller:
    return Caller("key", "user", "", organization, "proj", "user", "member", "owner", mode)


def provider(*models: str) -> dict[str, CustomProviderInfo]:
    entries = tuple({"id": model} for model in models)
    return {"house": CustomProviderInfo("c", "org", "house", "https://house.example/v1", entries)}


@pytest.fixture
def store():
    """The contents of the store: `version`, and `providers` by organization."""
    return SimpleNamespace(version=1, providers={"org": provider("big")})


@pytest.fixture
def custom_catalogue(store) -> CustomCatalogue:
    key = StoredCredential(ProviderKeyInfo("k", "org", "custom:house", "…"), "secret")
    providers = SimpleNamespace(providers_of=lambda ident: store.providers.get(ident, {}))
    keys = SimpleNamespace(keys_for=lambda ident, name: (key,) if name == "custom:house" else ())
    return CustomCatalogue(CustomModels(providers, keys))


def idents(custom_catalogue: CustomCatalogue, *who: str) -> list[str]:
    return list(custom_catalogue.of(caller(*who)).current().models)


def test_models_are_those_of_the_callers_organization_alone(custom_catalogue):
    assert idents(custom_catalogue, "org") == ["house/big"]
    assert idents(custom_catalogue, "other") == []


@pytest.mark.parametrize(("mode", "seen"), [("credits", []), ("api-keys", ["house/big"])])
def test_a_project_that_spends_credits_has_no_custom_models(custom_catalogue, mode, seen):
    assert idents(custom_catalogue, "org", mode) == seen


def test_they_are_made_once_until_something_changes(custom_catalogue, store):
    before = custom_catalogue.of(caller("org"))
    assert custom_catalogue.of(caller("org")) is before
    store.providers, store.version = {"org": provider("big", "small")}, 2
    assert idents(custom_catalogue, "org") == ["house/big", "house/small"]


def test_an_organization_that_gets_its_first_model_sees_it(custom_catalogue, store):
    assert idents(custom_catalogue, "new") == []
    store.providers["new"], store.version = provider("fresh"), 2
    assert idents(custom_catalogue, "new") == ["house/fresh"]


def test_changes_of_other_organizations_rebuild_nothing(custom_catalogue, store):
    before = custom_catalogue.of(caller("org"))
    store.version = 2
    store.providers["org"] = dict(store.providers["org"])
    assert custom_catalogue.of(caller("org")) is before


def test_models_beyond_a_few_are_made_in_a_thread_and_by_one_for_all_who_ask(store):
    store.providers = {"org": provider(*(f"m{number}" for number in range(500)))}
    key = StoredCredential(ProviderKeyInfo("k", "org", "custom:house", "…"), "secret")
    providers = SimpleNamespace(providers_of=lambda ident: store.providers.get(ident, {}))
    keys = SimpleNamespace(keys_for=lambda ident, name: (key,) if name == "custom:house" else ())
    own, created = CustomCatalogue(CustomModels(providers, keys)), []

    def make() -> str:
        created.append(threading.get_native_id())
        time.sleep(0.1)
        return "list"

    asking = [gevent.spawn(lambda: own.listed(own.of(caller("org")), "key", make)) for _ in range(5)]
    gevent.joinall(asking, raise_error=True)
    assert [one.value for one in asking] == ["list"] * 5 and len(created) == 1
    assert created[0] != threading.get_native_id()


def test_memory_is_bounded_by_models_over_all_organizations(store, monkeypatch):
    monkeypatch.setattr(module, "CATALOGUE_CACHE_SIZE", 3)
    key = StoredCredential(ProviderKeyInfo("k", "org", "custom:house", "…"), "secret")
    store.providers = {name: provider("a", "b") for name in ("one", "two")}
    providers = SimpleNamespace(providers_of=lambda ident: store.providers.get(ident, {}))
    keys = SimpleNamespace(keys_for=lambda ident, name: (key,) if name == "custom:house" else ())
    own = CustomCatalogue(CustomModels(providers, keys))
    first, second = own.of(caller("one")), own.of(caller("two"))
    assert own.of(caller("two")) is second and own.of(caller("one")) is not first
