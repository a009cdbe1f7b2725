from types import SimpleNamespace

import pytest

from gateway.callers.authentication import Caller
from gateway.callers.stored_keys import ProviderKeyInfo, StoredCredential
from gateway.callers.stored_providers import CustomProviderInfo
from gateway.engine.custom_models import CustomModels
from gateway.errors import InvalidRequest, UnknownModel

PRICED = {"id": "big", "prices": {"prompt": "0.000001"}, "context_length": 1000, "max_output": -4}
ODD = {"id": "odd", "prices": {"x": 1}}
HOUSE = CustomProviderInfo("c1", "org", "house", "https://house.example/v1", (PRICED, ODD))
OPEN = CustomProviderInfo("c2", "org", "open", "https://open.example/v1")


def make_offers(keys=()):
    providers = {"org": {"house": HOUSE, "open": OPEN}}
    custom = SimpleNamespace(providers_of=lambda ident: providers.get(ident, {}))
    return CustomModels(custom, SimpleNamespace(keys_for=lambda ident, provider: keys))


def make_routes(mode="hybrid", keys=(), organization="org"):
    caller = Caller("key", "user", "", organization, "proj", "user", "member", "owner", mode)
    return make_offers(keys).routes_of(caller, SimpleNamespace(find=lambda *names: None))


def generic(**more):
    return StoredCredential(ProviderKeyInfo("k", "org", "custom", "…", **more), "secret")


def test_any_model_of_an_open_provider_is_offered_unbilled():
    offer = make_routes().custom_model("open", "org/model:7b")
    assert (offer.mapping.external_id, offer.provider.id) == ("org/model:7b", "custom:open")
    assert offer.mapping.priced and offer.mapping.prices[0].base.prompt == 0
    assert offer.provider.address == "https://open.example/v1"


def test_prices_and_limits_of_the_organizations_own_list_count():
    mapping = make_routes().custom_model("house", "big").mapping
    assert mapping.prices[0].base.prompt == 1_000_000_000
    assert (mapping.context_length, mapping.max_output) == (1000, 0)


def test_another_organization_has_no_such_provider():
    assert make_routes(organization="other").custom_model("house", "big") is None


@pytest.mark.parametrize("mode", ["hybrid", "api-keys"])
def test_own_keys_are_enough(mode):
    assert make_routes(mode).custom_model("open", "x")


def test_a_project_that_spends_credits_gets_a_remedy():
    with pytest.raises(InvalidRequest, match="api-keys or hybrid"):
        make_routes("credits").custom_model("open", "x")


@pytest.mark.parametrize(("name", "model"), [("house", "small"), ("open", "")])
def test_a_model_that_is_not_there_is_named(name, model):
    with pytest.raises(UnknownModel, match=name):
        make_routes().custom_model(name, model)


def test_prices_that_cannot_be_read_never_bill_a_guess():
    with pytest.raises(InvalidRequest, match="cannot be read"):
        make_routes().custom_model("house", "odd")


def test_the_generic_custom_key_needs_an_address():
    assert make_routes(keys=(generic(),)).custom_model("custom", "") is None
    offer = make_routes(keys=(generic(base_url="https://own.example/v1"),)).custom_model("custom", "")
    assert (offer.mapping.external_id, offer.provider.address) == ("custom", "https://own.example/v1")


def test_the_only_model_of_the_generic_key_is_used_without_its_name():
    key = generic(base_url="https://own.example/v1", allowed_models=("llama",))
    assert make_routes(keys=(key,)).custom_model("custom", "").mapping.external_id == "llama"


def test_an_offer_is_made_once_until_its_provider_changes():
    routes = make_routes()
    assert routes.custom_model("open", "x") is routes.custom_model("open", "x")


def known(*keys):
    return [offer.model.id for offer in make_offers(keys).known("org")]


def test_known_models_are_those_that_some_key_opens_and_whose_prices_can_be_read():
    assert known() == []
    assert known(generic()) == ["house/big"]
    assert known(generic(allowed_models=("small",))) == ["open/small"]


def test_models_of_an_open_provider_are_known_from_the_keys_that_name_them():
    named = generic(allowed_models=("b", "a")), generic(allowed_models=("a", "big"))
    assert known(*named) == ["house/big", "open/b", "open/a", "open/big"]


def test_models_of_the_generic_key_are_known_when_it_has_an_address():
    key = generic(base_url="https://own.example/v1", allowed_models=("llama",))
    assert known(key) == ["open/llama", "custom/llama"]
