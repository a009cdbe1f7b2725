import gzip
import json
from decimal import Decimal
from types import SimpleNamespace

import pytest

pytest.importorskip("genai_prices")

from genai_prices.data import providers

from gateway.catalogue import build as builder
from gateway.catalogue.entries import RATE_NAMES
from gateway.catalogue.loader import FOLDER, SNAPSHOT
from gateway.catalogue.offered_models import (
    ListedModel,
    fingerprint,
    join_offers,
    keep_known,
    keep_one,
    normalise,
    other_names,
)


def offer(provider: str, external_id: str, **more) -> ListedModel:
    return ListedModel(provider, external_id, normalise(external_id), **more)


@pytest.mark.slow
def test_the_committed_snapshot_is_what_the_sources_give():
    packed, problems = builder.build()
    assert problems == []
    assert json.loads(gzip.decompress(packed)) == json.loads(gzip.decompress((FOLDER / SNAPSHOT).read_bytes()))


@pytest.mark.parametrize(
    ("external_id", "strip", "ident"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "", "llama-3.3-70b-instruct"),
        ("claude-haiku-4-5@20251001", "", "claude-haiku-4-5-20251001"),
        ("anthropic.claude-opus-4-6-v1:0", r"^[a-z]+\.(?=[a-z])|(-v\d+|-\d+)?:\d+$|-v\d+$", "claude-opus-4-6"),
        ("openai/gpt-oss-120b-maas", "-maas$", "gpt-oss-120b"),
    ],
)
def test_ids_are_brought_to_one_form(external_id, strip, ident):
    assert normalise(external_id, strip) == ident


def test_equal_letters_and_digits_are_one_model_spelled_as_its_vendor_does():
    offers = [offer("a", "x/qwen-3-8b"), offer("b", "x/qwen-3-8b"), offer("vendor", "qwen3-8b", first_party=True)]
    assert join_offers(offers, {}) == []
    assert {o.model for o in offers} == {"qwen3-8b"}
    assert fingerprint("qwen-3-8b") == fingerprint("qwen3-8b") != fingerprint("qwen3-8b-fp8")


def test_a_join_rule_decides_first_and_its_id_draws_equal_names():
    offers = [offer("cloud", "v3"), offer("b", "deepseek-v3.1")]
    assert join_offers(offers, {"cloud/v3": "deepseek-v3.1"}) == []
    assert {o.model for o in offers} == {"deepseek-v3.1"}


def test_the_operation_of_a_model_of_text_follows_from_its_name():
    names = {
        "embeddings": "text-embedding-3-small bge-m3 multilingual-e5-large",
        "rerank": "rerank-v3.5",
        "transcriptions": "whisper-large-v3 gpt-4o-transcribe",
        "speech": "tts-1 playai-tts canopy-orpheus-v1 speech-2.6",
        "chat": "gpt-4o attstral",
    }
    for operation, ids in names.items():
        for ident in ids.split():
            assert builder._operations(ident, ["text"]) == [operation], ident


@pytest.mark.parametrize(("status", "stability"), [("alpha", "experimental"), ("beta", "beta"), ("", None)])
def test_a_preview_is_listed_as_one(status, stability):
    entry = {"modalities": {"input": ["text"], "output": ["text"]}, "limit": {}, "status": status}
    assert builder._capabilities(entry, "m", {}).get("stability") == stability


def test_two_vendors_or_two_kinds_under_one_id_need_a_rule():
    vendors = [offer("a", "one-7b", vendor="x"), offer("b", "one-7b", vendor="y")]
    kinds = [offer("a", "two"), offer("b", "two", entry={"operations": ["images"]})]
    assert "made by x and y" in join_offers(vendors, {})[0]
    assert "used for chat and images" in join_offers(kinds, {})[0]
    assert join_offers(vendors, {"b/one-7b": "one-7b-of-y"}) == []


def test_a_join_only_provider_adds_no_models():
    offers = [offer("a", "known"), offer("many", "known", join_only=True), offer("many", "odd", join_only=True)]
    join_offers(offers, {})
    assert [(o.provider, o.model) for o in keep_known(offers)] == [("a", "known"), ("many", "known")]


def test_one_of_several_names_at_a_provider_serves_and_the_others_are_aliases():
    offers = [offer("a", "model-20250101"), offer("a", "model")]
    join_offers(offers, {"*/model-20250101": "model"})
    assert [o.external_id for o in keep_one(offers)] == ["model"]
    assert other_names(offers) == {"model": ["model-20250101"]}


def prices_of(provider: str, model: str) -> list:
    owner = next(p for p in providers if p.id == provider)
    return builder._convert(owner.find_model(model).prices)


def test_stepped_prices_become_tiers_with_inclusive_ends():
    (prices,) = prices_of("google", "gemini-2.5-pro")
    assert prices["prompt"] == "0.00000125"
    assert prices["tiers"][0] == {"up_to": 200000}
    assert prices["tiers"][1]["prompt"] == "0.0000025"


def test_a_price_by_the_hour_of_sound_is_read():
    assert prices_of("openai", "whisper-1") == [{"input_audio_hour": "0.36"}]


# Prices of genai-prices that no unit of the catalogue has, or that the provider's file states.
UNREAD = {
    "cache_image_read_mtok",
    "input_audio_hours",  # beside audio_hours
    "input_text_messages_kcount",
    "input_video_mtok",
    "output_citation_mtok",
    "output_video_mtok",
    "storage_searches_kcount",
}


def test_each_price_of_the_data_sets_is_read_as_that_of_one_unit():
    units = {"mtok": 10**6, "mchars": 10**6, "kcount": 1000, "kpages": 1000, "hours": 1}
    tables = (
        getattr(entry, "prices", entry)
        for owner in providers
        for model in owner.models
        for entry in (model.prices if isinstance(model.prices, list) else [model.prices])
    )
    keys = {key for table in tables for key, value in vars(table).items() if value is not None}
    for key in keys - UNREAD:
        ((name, price),) = builder._convert(SimpleNamespace(**{key: Decimal(3)}))[0].items()
        assert name in RATE_NAMES and Decimal(price) * units[key.rpartition("_")[2]] == 3, key
    for key in ("input", "output", "cache_read", "cache_write", "reasoning", "input_audio", "output_audio"):
        ((name, price),) = builder._convert_cost({key: 3})[0].items()
        assert name in RATE_NAMES and price == "0.000003", key


def test_dated_prices_become_dated_lists():
    lists = prices_of("openai", "o3")
    assert [(item.get("from", ""), item["prompt"]) for item in lists] == [("", "0.00001"), ("2025-06-10", "0.000002")]


def test_daily_spans_become_peaks_of_the_newest_list():
    lists = prices_of("deepseek", "deepseek-v4-pro")
    assert [peak["utc"] for peak in lists[-1]["peaks"]] == ["01:00-04:00", "06:00-10:00"]
    assert "peaks" not in lists[0]


def test_a_cost_of_zeros_alone_is_taken_as_unknown():
    assert builder._convert_cost({"input": 0, "output": 0}) == []
    assert builder._convert_cost({"input": 0.15, "output": 0}) == [{"prompt": "0.00000015", "completion": "0"}]


def test_service_tiers_become_multipliers():
    openai = next(p for p in providers if p.id == "openai")
    tiers = builder._tiers_of(openai.find_model("gpt-6-sol"))["service_tiers"]
    assert tiers == {"flex": "0.5", "priority": "2"}
    google = next(p for p in providers if p.id == "google")  # of prices that double in 2027, the tiers' with them
    tiers = builder._tiers_of(google.find_model("gemini-3.8-flash-tts"))["service_tiers"]
    assert tiers == {"flex": "0.5", "priority": "1.8"}
    assert builder._tiers_of(SimpleNamespace(prices=None, price_variants=None)) == {}
