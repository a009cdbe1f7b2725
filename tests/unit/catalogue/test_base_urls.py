import dataclasses

import pytest

from gateway.catalogue.base_urls import address_of, fill_address, join_base
from gateway.catalogue.entries import Provider
from gateway.catalogue.loader import load

PROVIDERS = load().providers
ADDRESSED = sorted(ident for ident, provider in PROVIDERS.items() if provider.address)


@pytest.mark.parametrize("ident", ADDRESSED)
def test_a_base_url_counts_with_and_without_its_version_path(ident):
    provider = PROVIDERS[ident]
    ending = provider.version_path
    for base in ("http://127.0.0.1:9000", "http://127.0.0.1:9000/", f"http://127.0.0.1:9000{ending}"):
        assert join_base(provider, base) == f"http://127.0.0.1:9000{ending}"


@pytest.mark.parametrize("ident", ADDRESSED)
def test_the_documented_base_of_a_vendor_means_its_own_address(ident):
    provider = PROVIDERS[ident]
    without = provider.address.removesuffix(provider.version_path)
    assert join_base(provider, without) == provider.address
    assert join_base(provider, provider.address + "/") == provider.address
    assert join_base(provider, "") == provider.address


@pytest.mark.parametrize(
    "ident",
    [
        *("atlascloud", "aws-mantle", "azure-ai-foundry", "azure-anthropic", "bytedance", "google-vertex", "runpod"),
        *("vertex-anthropic", "vertex-openai", "zai"),
    ],
)
def test_a_host_alone_gets_the_whole_path_of_the_vendor(ident):
    path = PROVIDERS[ident].address.split("/", 3)[3]
    assert join_base(PROVIDERS[ident], "http://fake") == f"http://fake/{path}"


def test_a_provider_of_googles_format_has_the_paths_of_vertex():
    assert PROVIDERS["quartz"].version_path == PROVIDERS["google-vertex"].version_path


@pytest.mark.parametrize(
    ("ident", "base", "address"),
    [
        ("openai", "http://[::1]:9000", "http://[::1]:9000/v1"),
        ("openai", "http://fake/prefix", "http://fake/prefix/v1"),
        ("openai", "http://fake/v2", "http://fake/v2"),
        ("groq", "https://api.groq.com", "https://api.groq.com/openai/v1"),
        ("groq", "https://api.groq.com/openai", "https://api.groq.com/openai/v1"),
        ("groq", "http://fake", "http://fake/v1"),
        ("deepinfra", "https://api.deepinfra.com", "https://api.deepinfra.com/v1/openai"),
        ("alibaba", "https://dashscope-us.aliyuncs.com", "https://dashscope-us.aliyuncs.com/compatible-mode/v1"),
        ("alibaba", "http://fake/compatible-mode", "http://fake/compatible-mode/v1"),
        ("azure", "https://x.openai.azure.com/openai", "https://x.openai.azure.com/openai/v1"),
        ("google-ai-studio", "http://fake", "http://fake/v1beta"),
        ("ollama", "http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
    ],
)
def test_a_base_url_is_completed_as_documented(ident, base, address):
    assert join_base(PROVIDERS[ident], base) == address


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("https://own.example", "https://own.example/v1"),
        ("https://own.example/", "https://own.example/v1"),
        ("https://own.example/llm", "https://own.example/llm/v1"),
        ("https://own.example/v1", "https://own.example/v1"),
        ("https://own.example/api/v4", "https://own.example/api/v4"),
        ("https://own.example/v1beta/openai", "https://own.example/v1beta/openai"),
        ("https://own.example/v1/chat/completions", "https://own.example/v1"),
        ("https://own.example/chat/completions/", "https://own.example"),
        ("https://own.example/v1/models", "https://own.example/v1"),
    ],
)
def test_a_base_or_a_pasted_address_of_any_server_is_understood(base, address):
    own = Provider("custom:own", "own", "openai", version_path="/v1")
    assert join_base(own, base) == address
    assert join_base(dataclasses.replace(own, address=address), base) == address
    assert join_base(PROVIDERS["openai"], base) == address


def test_a_local_engine_gets_the_usual_version_path():
    assert PROVIDERS["ollama"].address == ""
    assert join_base(PROVIDERS["ollama"], "http://127.0.0.1:11434") == "http://127.0.0.1:11434/v1"
    assert join_base(PROVIDERS["ollama"], "") == ""


def test_settings_fill_the_address():
    assert fill_address("https://r.{region}.example/v1", {"region": "eu"}) == "https://r.eu.example/v1"


def test_an_address_whose_setting_is_missing_is_no_address():
    assert fill_address("https://{resource}.example/v1", {"resource": ""}) == ""


def test_a_part_in_brackets_is_left_out_when_its_setting_is_missing():
    template = "https://h/v1[/projects/{project}/locations/{region}]/x"
    assert fill_address(template, {"project": "", "region": "global"}) == "https://h/v1/x"
    assert fill_address(template, {"project": "p", "region": "eu"}) == "https://h/v1/projects/p/locations/eu/x"


def test_the_operators_base_url_wins_over_the_mappings_address():
    provider = dataclasses.replace(PROVIDERS["openai"], address="https://a.example/v1", version_path="/v1")
    assert address_of(provider, "", {}) == "https://a.example/v1"
    assert address_of(provider, "", {}, "https://b.example/v2") == "https://b.example/v2"
    assert address_of(provider, "http://c.example", {}, "https://b.example/v2") == "http://c.example/v1"
