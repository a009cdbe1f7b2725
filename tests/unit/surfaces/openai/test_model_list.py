import itertools
from dataclasses import replace
from types import SimpleNamespace

import gevent
import msgspec
import pytest

from gateway.callers.access import Level
from gateway.catalogue.catalogue import Catalogue, CurrentCatalogue
from gateway.catalogue.entries import DataPolicy, Mapping, Model, Provider
from gateway.catalogue.field_checks import read_prices
from gateway.errors import NotFound, Unauthenticated
from gateway.surfaces.openai import model_entries
from gateway.surfaces.openai.model_entries import NAME_PLACEHOLDER, Query, serialise_alike, write_entries
from gateway.surfaces.openai.model_list import handle_model, handle_models
from gateway.surfaces.web import listing as availability_module
from gateway.surfaces.web import listing as listing_module
from gateway.surfaces.web.http import Inbound

DAY_US = 86_400_000_000
NOW_US = 20_600 * DAY_US  # 2026-05-27
PRICES = read_prices(
    {"prompt": "0.00000015", "completion": "0.6e-6", "web_search": "0.01", "per_image": {"a/b": "0.04"}}
)
SAFE = Provider("safe", "Safe", "openai", data_policy=DataPolicy(api_training=False))
KEEN = Provider("keen", "Keen", "openai", data_policy=DataPolicy(api_training=True), cancellation=False)
ENTRY_FIELDS = set(
    [
        "id",
        "name",
        "display_name",
        "aliases",
        "created",
        "description",
        "family",
        "architecture",
        "top_provider",
        "providers",
        "pricing",
        "context_length",
        "max_output",
        "per_request_limits",
        "supported_parameters",
        "json_output",
        "structured_outputs",
        "free",
        "deprecated_at",
        "deactivated_at",
        "successor",
        "stability",
        "object",
        "owned_by",
        "type",
        "created_at",
        "lifecycle",
    ]
)
MAPPING_FIELDS = set(
    [
        "providerId",
        "externalId",
        "supportedVideoSizes",
        "supportsVideoAudio",
        "supportsVideoWithoutAudio",
        "pricing",
        "batch_multiplier",
        "streaming",
        "vision",
        "realtime",
        "cancellation",
        "tools",
        "parallelToolCalls",
        "reasoning",
        "reasoning_efforts",
        "reasoning_modes",
        "min_cacheable_tokens",
        "max_output",
        "stability",
        "region",
    ]
)
PRICE_FIELDS = set(
    [
        "prompt",
        "completion",
        "image",
        "input_audio",
        "input_audio_cache_read",
        "output_audio",
        "per_second",
        "per_image",
        "request",
        "input_cache_read",
        "input_cache_write",
        "input_cache_write_1h",
        "ocr_page",
        "input_audio_hour",
    ]
)


def mapping(provider: str, model: str, **more) -> Mapping:
    return Mapping(provider, model, f"{model}-0125", prices=PRICES, **more)


def model(ident: str, *mappings: Mapping, **more) -> Model:
    return Model(ident, name=ident.upper(), family="acme", mappings=mappings, **more)


BOTH = model(
    "both",
    Mapping("keen", "both", "x", context_length=8000, tools=True),
    mapping("safe", "both", region="eu", context_length=9000, vision=True, json_output=True),
    released="2026-01-15",
    aliases=("both-latest",),
)
COMPLETION = read_prices({"completion": "0.6e-6"})
PRICED = Mapping("keen", "both", "x", context_length=8000, tools=True, prices=COMPLETION)
PAIR = Catalogue((replace(BOTH, mappings=(PRICED, BOTH.mappings[1])),), (SAFE, KEEN), {}, "v0")
OLD = model("old", mapping("safe", "old", deprecated="2026-01-01", deactivated="2026-02-01"))
AGING = model("aging", mapping("safe", "aging", deprecated="2026-01-01"), deprecated="2026-01-01")
CATALOGUE = Catalogue((BOTH, OLD, AGING), (SAFE, KEEN), {"both-latest": "both"}, "v1")


NOTHING = CurrentCatalogue(Catalogue((), (), {}))
SAFE_DENIED = Level("key", "k", deny_providers=frozenset({"safe"}))
OWN_DENIED = Level("key", "k", deny_models=frozenset({"house/small"}))
CALLERS = {"good": ("one", (SAFE_DENIED,)), "free": ("one", ()), "ruled": ("two", (OWN_DENIED,)), "own": ("two", ())}


class Keys:
    """Authenticates the keys of CALLERS: each belongs to an organization and has rules."""

    def caller(self, token: str):
        if token not in CALLERS:
            raise Unauthenticated("unknown key")
        organization, rules = CALLERS[token]
        return SimpleNamespace(organization_id=organization, project_id="proj_1", rules=rules)


class Held:
    """Credentials: the platform has one for the provider `keen`, organization "two" also one for `safe`."""

    def usable(self, caller):
        held = {"keen"} if caller is None or caller.organization_id != "two" else {"keen", "safe"}
        return lambda mapping: (SimpleNamespace(base_url=""),) if mapping.provider in held else ()

    def scope_of(self, caller):
        return caller is not None and caller.organization_id


def own_catalogue(*names: str, provider: str = "house") -> Catalogue:
    ident = f"custom:{provider}"
    mappings = {name: Mapping(ident, name, name, prices=PRICES, tools=True) for name in names}
    models = [Model(f"{provider}/{name}", name=name, mappings=(mapping,)) for name, mapping in mappings.items()]
    return Catalogue(models, (Provider(ident, ident, "openai"),), {})


@pytest.fixture
def own() -> dict[str, CurrentCatalogue]:
    """Return organization → its own models: "two" has house/big and house/small."""
    return {"two": CurrentCatalogue(own_catalogue("big", "small"))}


@pytest.fixture
def services(own):
    custom_catalogue = SimpleNamespace(
        of=lambda caller: own.get(caller.organization_id, NOTHING),
        listed=lambda source, key, make: source.remember(key, make),
    )
    return SimpleNamespace(
        clock=SimpleNamespace(now_us=lambda: NOW_US),
        settings=SimpleNamespace(
            catalogue=SimpleNamespace(auto_models=("both", "aging", "old", "unknown"), list_available=False)
        ),
        accounts=SimpleNamespace(authentication=Keys()),
        routing=SimpleNamespace(
            catalogue=CurrentCatalogue(CATALOGUE),
            custom_catalogue=custom_catalogue,
            credentials=Held(),
            routes=SimpleNamespace(names_of=lambda organization, project: []),
        ),
    )


def ask(query: str = "", **headers) -> Inbound:
    return Inbound("GET", "/v1/models", {name.replace("_", "-"): text for name, text in headers.items()}, query=query)


def entries(services, query: str = "", **headers) -> dict[str, dict]:
    answer = handle_models(services, ask(query, **headers))
    assert answer.status == 200
    body = msgspec.json.decode(answer.body if isinstance(answer.body, bytes) else b"".join(answer.body))
    assert body["object"] == "list"
    return {entry["id"]: entry for entry in body["data"]}


def test_an_entry_has_every_field_and_exact_prices(services):
    entry = entries(services)["both"]
    assert set(entry) == ENTRY_FIELDS
    assert set(entry["pricing"]) == PRICE_FIELDS | {"web_search", "internal_reasoning"}
    assert (entry["pricing"]["prompt"], entry["pricing"]["completion"]) == ("0.00000015", "0.0000006")
    assert entry["pricing"]["per_image"] == {"a/b": "0.04"}
    assert entry["created"] == 1768435200
    assert entry["architecture"]["input_modalities"] == ["text", "image"]
    assert (entry["context_length"], entry["json_output"], entry["structured_outputs"]) == (9000, True, False)
    assert entry["deactivated_at"] == ""


def test_a_mapping_is_listed_with_its_own_inputs(services):
    rows = (mapping("safe", "able", vision=True, documents=True), mapping("keen", "able", audio=True))
    able = model("able", *rows, input_modalities=("text", "image", "audio", "video", "pdf", "file"))
    services.routing.catalogue.swap(Catalogue((able,), (SAFE, KEEN), {}, "v6"))
    read = {name: entry["architecture"]["input_modalities"] for name, entry in entries(services, "mapped=true").items()}
    assert read["safe/able"] == ["text", "image", "video", "pdf", "file"]
    assert read["keen/able"] == ["text", "audio", "video"]
    listed = entries(services)["able"]["architecture"]["input_modalities"]
    assert listed == ["text", "image", "audio", "video", "pdf", "file"]


@pytest.mark.parametrize(
    ("abilities", "has", "lacks"),
    [
        (
            {"tools": True},
            {"temperature", "max_tokens", "top_p", "tools", "tool_choice"},
            {"response_format", "reasoning"},
        ),
        ({"json_output": True, "reasoning": True}, {"response_format", "reasoning"}, {"tools"}),
        ({"operations": ("embeddings",)}, set(), {"temperature", "max_tokens", "tools"}),
        ({"supported_parameters": ("top_k",)}, {"top_k"}, {"temperature"}),
    ],
)
def test_parameters_are_those_that_the_model_takes(services, abilities, has, lacks):
    services.routing.catalogue.swap(
        Catalogue((model("able", mapping("safe", "able", **abilities)),), (SAFE,), {}, "v5")
    )
    found = set(entries(services)["able"]["supported_parameters"])
    assert has <= found and not lacks & found


def test_models_of_anthropic_take_no_penalties(services):
    plain = model("plain", mapping("safe", "plain"))
    claude = replace(model("claude", mapping("safe", "claude")), family="anthropic")
    services.routing.catalogue.swap(Catalogue((plain, claude), (SAFE,), {}, "v6"))
    found = {name: set(entry["supported_parameters"]) for name, entry in entries(services).items()}
    assert found["plain"] - found["claude"] == {"frequency_penalty", "presence_penalty"}


def test_a_price_without_a_documented_field_has_a_separate_member(services):
    prices = read_prices({"character": "0.000015", "output_image": "0.00004", "web_search": "0.002"})
    spoken = Mapping("safe", "able", "x", operations=("speech",), prices=prices)
    services.routing.catalogue.swap(Catalogue((model("able", spoken),), (SAFE,), {}, "v6"))
    for pricing in (entries(services)["able"]["pricing"], entries(services)["able"]["providers"][0]["pricing"]):
        assert (pricing["character"], pricing["output_image"], pricing["web_search"]) == (
            "0.000015",
            "0.00004",
            "0.002",
        )


def test_a_provider_mapping_has_every_field_and_zero_for_an_absent_price(services):
    services.routing.catalogue.swap(PAIR)
    first, second = entries(services)["both"]["providers"]
    assert set(first) == set(second) == MAPPING_FIELDS
    assert set(first["pricing"]) == PRICE_FIELDS
    assert (first["providerId"], first["pricing"]["prompt"], first["cancellation"]) == ("keen", "0", False)
    assert (second["region"], second["externalId"], second["vision"]) == ("eu", "both-0125", True)


def test_deactivated_models_are_hidden_by_default(services):
    assert "old" not in entries(services)
    old = entries(services, "include_deactivated=true")["old"]
    assert (old["deactivated_at"], old["lifecycle"]) == ("2026-02-01T00:00:00.000Z", "retired")


def test_deprecated_models_are_listed_unless_excluded(services):
    aging = entries(services)["aging"]
    assert (aging["deprecated_at"], aging["lifecycle"]) == ("2026-01-01T00:00:00.000Z", "deprecated")
    assert "aging" not in entries(services, "exclude_deprecated=true")
    assert "safe/aging" not in entries(services, "exclude_deprecated=true&mapped=true")


def test_no_training_keeps_only_mappings_of_providers_that_do_not_train(services):
    listed = entries(services, "no_training=true")
    assert [p["providerId"] for p in listed["both"]["providers"]] == ["safe"]
    assert "auto" not in listed


def test_mapped_lists_one_entry_for_each_mapping_under_the_id_that_pins_it(services):
    services.routing.catalogue.swap(PAIR)
    listed = entries(services, "mapped=true")
    assert {
        "keen/both",
        "safe/both:eu",
        "llmgateway/auto",
        "llmgateway/smart",
        "llmgateway/claude-smart",
        "llmgateway/custom",
    } == set(listed)
    assert listed["keen/both"]["context_length"] == 8000
    assert listed["keen/both"]["json_output"] is False
    assert [p["providerId"] for p in listed["safe/both:eu"]["providers"]] == ["safe"]


def test_the_pseudo_models_are_listed(services):
    listed = entries(services)
    assert listed["auto"]["providers"][0]["providerId"] == listed["custom"]["owned_by"] == "llmgateway"


def test_auto_takes_as_much_as_the_largest_of_its_choices(services):
    auto = entries(services)["auto"]
    assert (auto["context_length"], auto["max_output"]) == (9000, 0) and auto["created"] > 0
    assert entries(services)["custom"]["context_length"] == 0
    assert entries(services, "mapped=true")["llmgateway/auto"]["context_length"] == 9000


def test_auto_has_the_largest_context_of_reachable_models(equipped):
    assert entries(equipped, "available=true")["auto"]["context_length"] == 0
    equipped.routing.catalogue.swap(
        Catalogue((BOTH, model("wide", mapping("keen", "wide", context_length=7000))), (SAFE, KEEN), {}, "v4")
    )
    assert entries(equipped, "available=true")["auto"]["context_length"] == 7000
    assert entries(equipped, "available=true", authorization="Bearer own")["auto"]["context_length"] == 9000


def test_auto_has_the_sizes_of_what_its_caller_can_call_in_every_list(equipped):
    """A client that fits its prompt into `context_length` is promised only what it can call."""
    equipped.routing.catalogue.swap(
        Catalogue((BOTH, model("wide", mapping("keen", "wide", context_length=7000))), (SAFE, KEEN), {}, "v5")
    )
    assert entries(equipped, authorization="Bearer free")["auto"]["context_length"] == 7000
    assert entries(equipped, authorization="Bearer own")["auto"]["context_length"] == 9000
    assert entries(equipped, "mapped=true", authorization="Bearer free")["llmgateway/auto"]["context_length"] == 7000


def test_a_key_sees_only_models_that_its_rules_allow(services):
    assert "aging" not in entries(services, authorization="Bearer good")
    services.routing.catalogue.swap(PAIR)
    listed = entries(services, authorization="Bearer good")
    assert [p["providerId"] for p in listed["both"]["providers"]] == ["keen"]
    assert len(entries(services)["both"]["providers"]) == 2


def test_include_restricted_shows_the_public_catalogue_to_a_key(services):
    services.routing.catalogue.swap(PAIR)
    listed = entries(services, "include_restricted=true", authorization="Bearer good")
    assert len(listed["both"]["providers"]) == 2


@pytest.mark.parametrize("query", ["", "include_restricted=true"])
def test_an_invalid_key_is_refused(services, query):
    with pytest.raises(Unauthenticated):
        handle_models(services, ask(query, x_api_key="bad"))


READY = model("ready", mapping("keen", "ready"), mapping("safe", "ready"))
SPENT = model("spent", mapping("keen", "spent", deactivated="2026-01-01"))


@pytest.fixture
def equipped(services):
    services.routing.catalogue.swap(Catalogue((BOTH, OLD, READY, SPENT), (SAFE, KEEN), {}, "v3"))
    return services


@pytest.mark.parametrize(
    ("headers", "listed"),
    [
        ({}, {"auto", "smart", "claude-smart", "ready"}),
        ({"authorization": "Bearer free"}, {"auto", "smart", "claude-smart", "ready"}),
        (
            {"authorization": "Bearer own"},
            {"auto", "smart", "claude-smart", "ready", "both", "house/big", "house/small"},
        ),
    ],
)
def test_available_lists_models_with_a_credential(equipped, headers, listed):
    entries(equipped, **headers)
    assert set(entries(equipped, "available=true", **headers)) == listed
    assert set(entries(equipped, "available=true&include_deactivated=true", **headers)) == listed


def test_an_available_model_shows_only_the_providers_that_can_be_called(equipped):
    assert [provider["providerId"] for provider in entries(equipped, "available=1")["ready"]["providers"]] == ["keen"]
    assert set(entries(equipped, "available=true&mapped=true")) == {
        "llmgateway/auto",
        "llmgateway/smart",
        "llmgateway/claude-smart",
        "keen/ready",
    }
    assert [provider["providerId"] for provider in entries(equipped)["ready"]["providers"]] == ["keen", "safe"]


def test_a_key_sees_the_models_that_it_can_call_first(equipped):
    listed = list(entries(equipped, authorization="Bearer free"))
    assert listed == ["auto", "smart", "claude-smart", "ready", "both", "custom"]
    listed = list(entries(equipped, authorization="Bearer own"))
    assert listed == ["house/big", "house/small", "auto", "smart", "claude-smart", "both", "ready", "custom"]
    listed = list(entries(equipped, "mapped=true", authorization="Bearer free"))
    assert listed == [
        "llmgateway/auto",
        "llmgateway/smart",
        "llmgateway/claude-smart",
        "keen/ready",
        "safe/both:eu",
        "safe/ready",
        "llmgateway/custom",
    ]


def test_the_order_of_the_public_list_does_not_depend_on_credentials(equipped):
    assert list(entries(equipped)) == ["auto", "smart", "claude-smart", "custom", "both", "ready"]
    assert list(entries(equipped, "include_restricted=true", authorization="Bearer free")) == list(entries(equipped))


@pytest.mark.parametrize(
    ("query", "headers", "listed"),
    [
        ("", {}, {"auto", "smart", "claude-smart", "ready"}),
        ("", {"authorization": "Bearer free"}, {"auto", "smart", "claude-smart", "ready"}),
        (
            "available=false",
            {"authorization": "Bearer free"},
            {"auto", "smart", "claude-smart", "custom", "ready", "both"},
        ),
        (
            "include_restricted=true",
            {"authorization": "Bearer free"},
            {"auto", "smart", "claude-smart", "custom", "ready", "both"},
        ),
        (
            "include_restricted=true&available=true",
            {"authorization": "Bearer free"},
            {"auto", "smart", "claude-smart", "ready"},
        ),
    ],
)
def test_a_setting_lists_only_available_models_unless_all_are_requested(equipped, query, headers, listed):
    equipped.settings.catalogue.list_available = True
    assert set(entries(equipped, query, **headers)) == listed


def test_access_of_a_caller_is_computed_once_for_equal_credentials(equipped, monkeypatch):
    computed, find = [], availability_module._reachable

    def note(*arguments):
        computed.append(arguments)
        return find(*arguments)

    monkeypatch.setattr(availability_module, "_reachable", note)
    for key in ("free", "good", "free"):
        handle_models(equipped, ask(authorization=f"Bearer {key}"))
    assert len(computed) == 1
    handle_models(equipped, ask(authorization="Bearer own"))
    assert len(computed) == 2


def test_rules_apply_to_available_models(equipped):
    listed = entries(equipped, "available=true", authorization="Bearer ruled")
    assert "house/small" not in listed and "house/big" in listed


def test_an_unchanged_list_is_not_sent_again(services):
    tag = dict(handle_models(services, ask()).headers)["ETag"]
    again = handle_models(services, ask(if_none_match=f'"x", W/{tag}'))
    assert (again.status, again.body) == (304, b"")
    assert handle_models(services, ask("mapped=true", if_none_match=tag)).status == 200


def test_a_list_is_serialised_once_and_again_after_a_swap(services):
    first, second = handle_models(services, ask()), handle_models(services, ask())
    assert first.body is second.body
    services.routing.catalogue.swap(Catalogue((OLD,), (SAFE,), {}, "v2"))
    assert "both" not in entries(services)


FLAGS = ("include_restricted", "include_deactivated", "exclude_deprecated", "no_training", "mapped")


def test_all_variants_of_the_list_write_each_provider_once(services, monkeypatch):
    written, write = [], model_entries._provider_entry

    def note(catalogue, mapping, at_us):
        written.append(mapping.key)
        return write(catalogue, mapping, at_us)

    monkeypatch.setattr(model_entries, "_provider_entry", note)
    services.routing.catalogue.swap(CATALOGUE)
    for count in range(len(FLAGS)):
        for chosen in itertools.combinations(FLAGS, count):
            handle_models(services, ask("&".join(f"{flag}=true" for flag in chosen)))
    written = [key for key in written if not key.startswith(model_entries.PSEUDO_PROVIDER)]
    assert written and sorted(written) == sorted(set(written))


def test_concurrent_requests_share_one_serialization_of_the_list(services, monkeypatch):
    made, serialise = [], model_entries.EntryParts.serialise

    def note(parts, query, *more):
        made.append(query)
        return serialise(parts, query, *more)

    monkeypatch.setattr(model_entries.EntryParts, "serialise", note)
    services.routing.catalogue.swap(CATALOGUE)
    asking = [gevent.spawn(lambda: handle_models(services, ask("mapped=true")).body) for _ in range(8)]
    gevent.joinall(asking, timeout=60, raise_error=True)
    assert len(made) == 1 and len({one.value for one in asking}) == 1


def test_equal_lists_of_other_queries_are_compressed_once(services, monkeypatch):
    packed, compress = [], listing_module._compress
    monkeypatch.setattr(listing_module, "_compress", lambda parts: packed.append(1) or compress(parts))
    services.routing.catalogue.swap(CATALOGUE)
    for query in ("", "include_restricted=true", "include_restricted=1&unknown=2"):
        assert dict(handle_models(services, ask(query, accept_encoding="gzip")).headers)["Content-Encoding"] == "gzip"
    assert len(packed) == 1


def test_lists_under_other_rules_made_before_change_nothing_of_ones_own(services):
    queries = ("", "mapped=true", "no_training=true", "include_deactivated=true", "exclude_deprecated=true")
    fresh = {query: entries(services, query) for query in queries}
    services.routing.catalogue.swap(CATALOGUE)
    for query in queries:
        entries(services, query, authorization="Bearer good")
        assert entries(services, query) == fresh[query]


def model_of(services, ident: str, **headers) -> dict:
    inbound = ask(**headers)
    inbound.params = {"model": ident}
    return msgspec.json.decode(handle_model(services, inbound).body)


@pytest.mark.parametrize(
    ("asked", "found"), [("both", "both"), ("both-latest", "both"), ("safe/both:eu", "safe/both:eu")]
)
def test_one_model_is_retrieved_by_id_alias_or_pinned_id(services, asked, found):
    assert model_of(services, asked)["id"] == found


def test_a_pseudo_model_is_retrieved(services):
    assert model_of(services, "auto")["object"] == "model"


def test_an_unknown_model_is_not_found_and_near_names_are_reported(services):
    with pytest.raises(NotFound, match="Did you mean both") as raised:
        model_of(services, "bothe")
    assert (raised.value.param, raised.value.code) == ("model", "model_not_found")


def test_a_model_that_the_key_may_not_use_is_not_found(services):
    with pytest.raises(NotFound, match="do not allow the model"):
        model_of(services, "aging", authorization="Bearer good")


def tag_of(services, query: str = "", token: str = "own") -> str:
    return dict(handle_models(services, ask(query, authorization=f"Bearer {token}")).headers)["ETag"]


@pytest.mark.parametrize("query", ["", "mapped=true"])
def test_an_organizations_own_models_are_listed_with_every_field_under_the_id_that_calls_them(services, query):
    entry = entries(services, query, authorization="Bearer own")["house/big"]
    assert set(entry) == ENTRY_FIELDS and set(entry["providers"][0]) == MAPPING_FIELDS
    assert (entry["providers"][0]["providerId"], entry["pricing"]["prompt"]) == ("custom:house", "0.00000015")


def test_an_organizations_own_models_are_listed_beside_all_others(services):
    listed = entries(services, authorization="Bearer own")
    assert set(listed) == {*entries(services), "house/big", "house/small"}


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer free"}])
@pytest.mark.parametrize("query", ["", "mapped=true", "include_deactivated=true"])
def test_no_other_organization_sees_its_own_models(services, headers, query):
    entries(services, query, authorization="Bearer own")
    assert not [ident for ident in entries(services, query, **headers) if ident.startswith("house")]
    with pytest.raises(NotFound):
        model_of(services, "house/big", **headers)


@pytest.mark.parametrize("query", ["include_restricted=true", "no_training=true"])
def test_public_and_no_training_lists_omit_own_models(services, query):
    assert "house/big" not in entries(services, query, authorization="Bearer own")


def test_rules_count_for_own_models(services):
    listed = entries(services, authorization="Bearer ruled")
    assert "house/big" in listed and "house/small" not in listed
    with pytest.raises(NotFound):
        model_of(services, "house/small", authorization="Bearer ruled")


def test_one_of_the_own_models_is_retrieved_by_the_id_that_calls_it(services):
    assert model_of(services, "house/small", authorization="Bearer own")["owned_by"] == "custom:house"


def test_own_models_behind_the_name_of_a_catalogued_provider_are_not_listed(services, own):
    own["two"] = CurrentCatalogue(own_catalogue("big", provider="keen"))
    assert "keen/big" not in entries(services, authorization="Bearer own")


def test_a_change_of_the_own_models_changes_the_etag_of_that_organization_alone(services, own):
    before, others = tag_of(services), tag_of(services, token="free")
    assert before == tag_of(services) and before != others
    own["two"] = CurrentCatalogue(own_catalogue("big"))
    assert tag_of(services) != before and tag_of(services, token="free") == others
    assert "house/small" not in entries(services, authorization="Bearer own")


def test_a_list_of_own_models_alone_is_whole(services):
    services.routing.catalogue.swap(Catalogue((), (), {}, "v3"))
    assert set(entries(services, authorization="Bearer own")) == {
        "auto",
        "claude-smart",
        "smart",
        "custom",
        "house/big",
        "house/small",
    }
    assert entries(services, "no_training=true", authorization="Bearer own") == {}


def test_the_official_client_reads_every_entry(services):
    types = pytest.importorskip("openai.types")
    for query in ("", "mapped=true"):
        for entry in entries(services, query).values():
            assert types.Model.model_validate(entry, strict=True).owned_by


@pytest.mark.parametrize(
    "query", [Query(), Query(mapped=True), Query(no_training=True), Query(exclude_deprecated=True)]
)
@pytest.mark.parametrize("refuse", [None, lambda mapping, provider: "no" if mapping.model == "small" else None])
def test_models_that_are_alike_are_written_as_each_by_itself(query, refuse):
    own = own_catalogue("big", "small", 'odd "name" \u00e9/\u2603', NAME_PLACEHOLDER)
    models = list(own.models.values())
    written = write_entries(own, models, query, NOW_US, refuse)
    alike = list(serialise_alike(own, models, query, NOW_US, refuse))
    assert list(map(msgspec.json.decode, alike)) == list(map(msgspec.to_builtins, written))


def test_a_list_of_thousands_that_are_alike_writes_one_entry(monkeypatch):
    own, written = own_catalogue(*(f"m{number}" for number in range(3000))), []
    whole = model_entries._entry
    monkeypatch.setattr(model_entries, "_entry", lambda *args, **more: written.append(1) or whole(*args, **more))
    assert len(list(serialise_alike(own, own.models.values(), Query(), NOW_US, None))) == 3000
    assert len(written) == 1


def test_a_model_is_excluded_by_the_dates_that_its_entry_shows(services):
    """The other provider ended long ago and was never deprecated, so it has no effect on the remaining one."""
    ended, fading = (
        mapping("keen", "fading", deactivated="2025-01-01"),
        mapping("safe", "fading", deprecated="2026-01-01"),
    )
    services.routing.catalogue = CurrentCatalogue(
        Catalogue((model("fading", ended, fading), BOTH), (SAFE, KEEN), {}, "v2")
    )
    assert entries(services)["fading"]["deprecated_at"].startswith("2026-01-01")
    for query in ("exclude_deprecated=true", "exclude_deprecated=true&mapped=true"):
        shown = entries(services, query)
        assert not any("fading" in ident for ident in shown)
        assert not any(entry["deprecated_at"] for entry in shown.values())


def test_a_model_is_excluded_where_the_callers_rules_leave_a_deprecated_provider_alone(services):
    kept = mapping("safe", "mixed")
    fading = mapping("keen", "mixed", deprecated="2026-01-01")
    services.routing.catalogue = CurrentCatalogue(Catalogue((model("mixed", kept, fading),), (SAFE, KEEN), {}, "v3"))
    assert "mixed" in entries(services, "exclude_deprecated=true")
    assert "mixed" not in entries(services, "exclude_deprecated=true", authorization="Bearer good")


def test_a_model_without_a_price_is_not_listed_as_free(services):
    """A model without a price cannot be called."""
    assert [p["providerId"] for p in entries(services)["both"]["providers"]] == ["safe"]
    assert "keen/both" not in entries(services, "mapped=true")
    unpriced = model("unpriced", Mapping("keen", "unpriced", "x"))
    services.routing.catalogue.swap(Catalogue((unpriced,), (SAFE, KEEN), {}, "v8"))
    assert set(entries(services)) == {"auto", "smart", "claude-smart", "custom"}


def test_auto_shows_the_highest_price_of_its_choices(services):
    pricing = entries(services)["auto"]["pricing"]
    assert (pricing["prompt"], pricing["completion"]) == ("0.00000015", "0.0000006")
