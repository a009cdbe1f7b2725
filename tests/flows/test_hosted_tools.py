"""Hosted tools, further models and stored objects: refused by name, or reserved and billed at least as the vendor does.

Every type of tool that the vendors' SDKs know is sent, whole, streamed, and left by its caller after the tools ran.
"""

from __future__ import annotations

import copy
import hashlib
import http.client
import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

import pytest
from fakes.hosted_tools import FakeToolVendors
from support.gateways import LocalGateway, local_gateway
from support.shared import Share
from support.spending import until

from gateway.accounts import rules
from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.billing.provider_objects import KIND
from gateway.configuration.settings import Settings
from gateway.dialects.hosted_tools import CALLERS, find_tool

Json = dict[str, Any]
CLAUDE, OPENAI, GEMINI = "anthropic", "responses", "google"
MODELS = {
    CLAUDE: "anthropic/claude-haiku-4-5",
    OPENAI: "openai/gpt-5.6-luna",
    GEMINI: "google-ai-studio/gemini-3.8-flash",
}
OVERRUN = 8
# Types that vendors publish without a price.
UNKNOWN = {
    (OPENAI, "programmatic_tool_calling"),
    (GEMINI, "parallelAiSearch"),
    (GEMINI, "exaAiSearch"),
    (GEMINI, "enterpriseWebSearch"),  # of Vertex AI alone
    (GEMINI, "retrieval"),
}


def types_of(union: Any) -> Iterator[str]:
    """The values of `type` in a union of types."""
    for one in get_args(union):
        if hasattr(one, "model_fields"):
            yield from _texts(one.model_fields["type"].annotation)
        elif isinstance(one, type) and "type" in (hints := get_type_hints(one)):
            yield from _texts(hints["type"])
        else:
            yield from types_of(one)


def _texts(hint: Any) -> Iterator[str]:
    for one in get_args(hint):
        if isinstance(one, str):
            yield one
        yield from _texts(one)


def published_tools() -> list[tuple[str, str]]:
    """Each vendor with each type of tool in its SDK."""
    genai = importlib.import_module("google.genai.types")
    google = [field.alias or name for name, field in genai.Tool.model_fields.items()]
    found = {
        CLAUDE: set(types_of(importlib.import_module("anthropic.types.beta").BetaToolUnionParam)) | {"mcp_toolset"},
        OPENAI: set(types_of(importlib.import_module("openai.types.responses").Tool)),
        GEMINI: set(google),
    }
    assert all(len(kinds) > 8 for kinds in found.values()), found
    return sorted((vendor, kind) for vendor, kinds in found.items() for kind in kinds)


PUBLISHED_TYPES = {
    CLAUDE: (
        "advisor_20260301",
        "bash_20241022",
        "bash_20250124",
        "browser_toolset_20260801",
        "code_execution_20250522",
        "code_execution_20250825",
        "code_execution_20260120",
        "code_execution_20260521",
        "computer_20241022",
        "computer_20250124",
        "computer_20251124",
        "computer_toolset_20260801",
        "custom",
        "mcp_toolset",
        "memory_20250818",
        "text_editor_20241022",
        "text_editor_20250124",
        "text_editor_20250429",
        "text_editor_20250728",
        "tool_search_tool_bm25",
        "tool_search_tool_bm25_20251119",
        "tool_search_tool_regex",
        "tool_search_tool_regex_20251119",
        "web_fetch_20250910",
        "web_fetch_20260209",
        "web_fetch_20260309",
        "web_fetch_20260318",
        "web_search_20250305",
        "web_search_20260209",
        "web_search_20260318",
    ),
    OPENAI: (
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use_preview",
        "custom",
        "file_search",
        "function",
        "image_generation",
        "local_shell",
        "mcp",
        "namespace",
        "programmatic_tool_calling",
        "shell",
        "tool_search",
        "web_search",
        "web_search_2025_08_26",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    ),
    GEMINI: (
        "codeExecution",
        "computerUse",
        "enterpriseWebSearch",
        "exaAiSearch",
        "fileSearch",
        "functionDeclarations",
        "googleMaps",
        "googleSearch",
        "googleSearchRetrieval",
        "mcpServers",
        "parallelAiSearch",
        "retrieval",
        "urlContext",
    ),
}
PUBLISHED = sorted((vendor, kind) for vendor, kinds in PUBLISHED_TYPES.items() for kind in kinds)
MORE: dict[tuple[str, str], Json] = {
    (CLAUDE, "advisor_20260301"): {"model": "claude-opus-4-6", "max_tokens": 2_000},
    (CLAUDE, "mcp_toolset"): {"mcp_server_name": "one"},
    (OPENAI, "code_interpreter"): {"container": {"type": "auto", "memory_limit": "64g"}},
    (OPENAI, "shell"): {"environment": {"type": "container_auto", "memory_limit": "16g"}},
    (OPENAI, "file_search"): {"vector_store_ids": ["vs_1"]},
    (OPENAI, "mcp"): {"server_label": "one", "server_url": "https://mcp.example"},
    (OPENAI, "custom"): {"name": "one"},
    (OPENAI, "function"): {"name": "one", "parameters": {}},
    (OPENAI, "namespace"): {"name": "one", "description": "x", "tools": []},
}


def tool_of(vendor: str, kind: str) -> Json:
    more = MORE.get((vendor, kind), {})
    if vendor == GEMINI:
        return {kind: [] if kind in ("functionDeclarations", "mcpServers") else more}
    if vendor == CLAUDE and kind == "custom":
        return {"name": "one", "input_schema": {"type": "object"}}
    name = {} if vendor == OPENAI or "toolset" in kind else {"name": kind.rstrip("_0123456789")}
    return {"type": kind, **name, **more}


def request_of(vendor: str, streamed: bool, **more: Any) -> tuple[str, Json]:
    """The path and the body of a request with further members."""
    model = MODELS[vendor]
    if vendor == GEMINI:
        contents = [{"role": "user", "parts": [{"text": "Hello"}]}]
        method = "streamGenerateContent?alt=sse" if streamed else "generateContent"
        limit = {"generationConfig": {"maxOutputTokens": 500}}
        return f"/v1beta/models/{model}:{method}", {"contents": contents, **limit, **more}
    if vendor == OPENAI:
        body = {"input": "Hello", "max_output_tokens": 500, "store": False}
        return "/v1/responses", {"model": model, "stream": streamed, **body, **more}
    said = [{"role": "user", "content": "Hello"}]
    return "/v1/messages", {"model": model, "stream": streamed, "messages": said, "max_tokens": 500, **more}


def environment_of(vendors: FakeToolVendors) -> dict[str, str]:
    places = {"ANTHROPIC": "/v1", "OPENAI": "/v1", "GOOGLE_AI_STUDIO": "/v1beta", "MISTRAL": "/v1"}
    return {
        **{f"LLM_{name}_API_KEY": "sk-upstream" for name in places},
        **{f"LLM_{name}_BASE_URL": vendors.url + path for name, path in places.items()},
        "GATEWAY_METERING_DRAIN_S": "0",
    }


class Sent:
    """A request that was sent, with its status and its answer, of which a caller who leaves read the beginning."""

    def __init__(self, gateway: LocalGateway, way: str, vendor: str, **more: Any) -> None:
        path, body = request_of(vendor, way != "whole", **more)
        connection = http.client.HTTPConnection(gateway.address.removeprefix("http://"), timeout=60)
        headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        self.status = answer.status
        read = b""
        if way != "left" or answer.status != 200:
            read = answer.read()
        while way == "left" and answer.status == 200 and b"word" not in read:
            piece = answer.read1(65536)
            assert piece, read
            read += piece
        answer.close()
        connection.close()
        self.text = read.decode()


def row_of(gateway: LocalGateway) -> tuple[int, int, Json]:
    """The cost, the flags and the details of the organization's only row."""
    database = gateway.services.store.database
    organization = bytes.fromhex(gateway.organization_id.removeprefix("org_"))
    query = "SELECT cost_nusd, flags, extra FROM usage WHERE organization = ?"
    found: list[Any] = []

    def settled() -> bool:
        found[:] = database.read(lambda: database.execute(query, (organization,)).fetchall())
        return bool(found)

    assert until(settled)
    [(cost, flags, extra)] = found
    return cost, flags, json.loads(extra or "{}")


@pytest.fixture
def vendors(share: Share) -> FakeToolVendors:
    return share.fake(FakeToolVendors)


@pytest.fixture
def gateway(share: Share, vendors: FakeToolVendors) -> LocalGateway:
    return share.gateway(environment_of(vendors))


def test_the_types_of_tools_here_are_those_of_the_sdks() -> None:
    assert published_tools() == PUBLISHED


def test_every_published_tool_is_in_the_table_or_has_no_price() -> None:
    missing = {(vendor, kind) for vendor, kind in PUBLISHED if find_tool(vendor, kind) is None}
    assert missing == {one for one in UNKNOWN if find_tool(*one) is None}
    for vendor, kinds in CALLERS.items():
        for kind in kinds:
            assert any(one == kind or one.startswith(kind) for owner, one in PUBLISHED if owner == vendor) or kind in (
                "computer_use",
            ), kind


@pytest.mark.parametrize("way", ["whole", "streamed", "left"])
@pytest.mark.parametrize(("vendor", "kind"), PUBLISHED)
def test_a_hosted_tool_is_refused_by_name_or_costs_what_its_vendor_bills(
    gateway: LocalGateway, vendors: FakeToolVendors, vendor: str, kind: str, way: str
) -> None:
    sent = Sent(gateway, way, vendor, tools=[tool_of(vendor, kind)])
    if sent.status != 200:
        assert sent.status == 400 and kind in sent.text, sent.text
        expected = (vendor, kind) in UNKNOWN or "vector_store_ids" in sent.text
        assert expected == ("routing." in sent.text), sent.text
        assert not vendors.calls
        return
    assert (vendor, kind) not in UNKNOWN
    cost, flags, extra = row_of(gateway)
    assert cost >= vendors.calls[0].bill and not flags & OVERRUN, (cost, vendors.calls[0].bill, extra)
    assert "unpriced" not in extra


@pytest.mark.parametrize("way", ["whole", "streamed", "left"])
def test_an_advisor_costs_the_price_of_its_model(gateway: LocalGateway, vendors: FakeToolVendors, way: str) -> None:
    """100,000 tokens of Opus were $0.003."""
    Sent(gateway, way, CLAUDE, tools=[tool_of(CLAUDE, "advisor_20260301")])
    cost, _, extra = row_of(gateway)
    if way == "left":
        assert cost >= 2 * 2_000 * 25_000
    else:
        assert vendors.calls[0].bill <= cost <= vendors.calls[0].bill + 2_000_000
        assert extra["price_key"] == "claude-opus-4-6"
    assert extra["units"]["tool_model_output"] > 0 and extra["nusd"]["tool_model_written"] > 0


@pytest.mark.parametrize("vendor", [CLAUDE, OPENAI])
def test_a_further_model_is_subject_to_the_rules_of_the_key(
    gateway: LocalGateway, vendors: FakeToolVendors, vendor: str
) -> None:
    """A key that may call only a cheap model called the advisor's."""
    tool = {CLAUDE: "advisor_20260301", OPENAI: "image_generation"}[vendor]
    allow_only(gateway, MODELS[vendor].partition("/")[2])
    sent = Sent(gateway, "whole", vendor, tools=[tool_of(vendor, tool)])
    assert sent.status == 403 and tool in sent.text, sent.text
    assert not vendors.calls and Sent(gateway, "whole", vendor).status == 200


def bring_key(gateway: LocalGateway, vendors: FakeToolVendors, vendor: str) -> None:
    """Store a provider key of the organization, which alone pays."""
    services = gateway.services
    provider = MODELS[vendor].partition("/")[0]
    draft = ProviderKeyDraft(provider, "sk-own", base_url=vendors.url + ("/v1beta" if vendor == GEMINI else "/v1"))
    services.accounts.provider_keys.add(gateway.organization_id, draft, actor="operator")
    change = ProjectChange(mode="api-keys")
    update_project(services.store.database, services.store.control, gateway.project_id, change, actor="test")


def allow_only(gateway: LocalGateway, model: str) -> None:
    services = gateway.services
    place = ("organization", gateway.organization_id)
    stores = (services.store.database, services.store.control)
    rules.add_rule(*stores, *place, "allow_models", {"models": [model]}, actor="operator")


OBJECTS: list[tuple[str, Json]] = [
    (CLAUDE, {"container": "container_1"}),
    (CLAUDE, {"container": {"id": "container_1"}}),
    (CLAUDE, {"container": {"skills": [{"type": "custom", "skill_id": "skill_1"}]}}),
    (
        CLAUDE,
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "document", "source": {"type": "file", "file_id": "file_1"}}],
                }
            ]
        },
    ),
    (CLAUDE, {"messages": [{"role": "user", "content": [{"type": "container_upload", "file_id": "file_1"}]}]}),
    (OPENAI, {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]}),
    (OPENAI, {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}),
    (OPENAI, {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file_1"]}}]}),
    (OPENAI, {"tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_1"}}]}),
    (OPENAI, {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]}),
    (OPENAI, {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}]}),
    (GEMINI, {"cachedContent": "cachedContents/1"}),
    (GEMINI, {"contents": [{"parts": [{"fileData": {"mimeType": "image/png", "fileUri": "gs://bucket/one.png"}}]}]}),
    (
        GEMINI,
        {
            "contents": [
                {
                    "parts": [
                        {
                            "fileData": {
                                "mimeType": "image/png",
                                "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/1",
                            }
                        }
                    ]
                }
            ]
        },
    ),
    (GEMINI, {"tools": [{"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/1"]}}]}),
]


@pytest.mark.parametrize(("vendor", "members"), OBJECTS)
def test_objects_of_the_platforms_account_are_refused(
    gateway: LocalGateway, vendors: FakeToolVendors, vendor: str, members: Json
) -> None:
    sent = Sent(gateway, "whole", vendor, **members)
    assert sent.status == 400 and "routing.provider_objects" in sent.text, sent.text
    assert not vendors.calls


@pytest.fixture
def lenient(settings: Callable[..., Settings]) -> Iterator[tuple[LocalGateway, FakeToolVendors]]:
    with FakeToolVendors() as vendors:
        more = {"GATEWAY_ROUTING_UNPRICED_TOOLS": "parallelAiSearch", "GATEWAY_ROUTING_PROVIDER_OBJECTS": "true"}
        with local_gateway(settings, **environment_of(vendors), **more) as running:
            yield running, vendors


def test_settings_allow_tools_without_a_price_and_objects(lenient: tuple[LocalGateway, FakeToolVendors]) -> None:
    running, vendors = lenient
    assert Sent(running, "whole", GEMINI, tools=[{"exaAiSearch": {}}]).status == 400
    assert Sent(running, "whole", GEMINI, tools=[{"parallelAiSearch": {}}]).status == 200
    assert row_of(running)[2]["unpriced"] == ["parallelAiSearch"]
    assert Sent(running, "whole", GEMINI, cachedContent="cachedContents/1").status == 200
    assert len(vendors.calls) == 2


def test_a_tool_that_a_message_adds_is_treated_as_one_of_the_request(
    gateway: LocalGateway, vendors: FakeToolVendors
) -> None:
    tool = {"type": "hologram_20270101", "name": "hologram", "model": "claude-opus-4-6"}
    block = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}}
    said = [{"role": "user", "content": [{"type": "text", "text": "Hello"}, block]}]
    sent = Sent(gateway, "whole", CLAUDE, messages=said)
    assert sent.status == 400 and "hologram" in sent.text, sent.text
    later = {"type": "additional_tools", "tools": [tool_of(OPENAI, "programmatic_tool_calling")]}
    sent = Sent(gateway, "whole", OPENAI, input=[{"role": "user", "content": "Hello"}, later])
    assert sent.status == 400 and "programmatic_tool_calling" in sent.text, sent.text
    assert not vendors.calls


def test_a_model_that_is_chosen_in_the_body_is_no_way_round_the_requests_model(
    gateway: LocalGateway, vendors: FakeToolVendors
) -> None:
    config = {"routingConfig": {"manualMode": {"modelName": "gemini-3.1-pro-preview"}}}
    sent = Sent(gateway, "whole", GEMINI, generationConfig=config)
    assert sent.status == 400 and "routingConfig" in sent.text and not vendors.calls


@pytest.mark.parametrize(("vendor", "kind"), [(GEMINI, "exaAiSearch"), (OPENAI, "programmatic_tool_calling")])
def test_a_provider_key_of_the_organization_pays_for_a_tool_without_a_price(
    gateway: LocalGateway, vendors: FakeToolVendors, vendor: str, kind: str
) -> None:
    """The row names the part that has no price."""
    bring_key(gateway, vendors, vendor)
    sent = Sent(gateway, "whole", vendor, tools=[tool_of(vendor, kind)])
    assert sent.status == 200, sent.text
    cost, _, extra = row_of(gateway)
    assert extra["unpriced"] == [kind] and cost > 0
    assert Sent(gateway, "whole", vendor, **OWN_OBJECTS[vendor]).status == 200


# Requests that have a container made, and those that name it.
CONTAINERS: dict[str, tuple[str, Json, Json]] = {
    "code of OpenAI": (
        OPENAI,
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "4g"}}]},
        {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]},
    ),
    "shell of OpenAI": (
        OPENAI,
        {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
        {"tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_2"}}]},
    ),
    "code of Anthropic": (
        CLAUDE,
        {"tools": [tool_of(CLAUDE, "code_execution_20250825")]},
        {"tools": [tool_of(CLAUDE, "code_execution_20250825")], "container": "container_own"},
    ),
}


@pytest.mark.parametrize("way", ["whole", "streamed"])
@pytest.mark.parametrize("kind", CONTAINERS)
def test_a_container_is_named_again_by_the_organization_that_got_it_alone(
    gateway: LocalGateway, vendors: FakeToolVendors, kind: str, way: str
) -> None:
    """It was refused like an object of the platform's account."""
    vendor, makes, names = CONTAINERS[kind]
    assert Sent(gateway, way, vendor, **makes).status == 200
    again = Sent(gateway, way, vendor, **names)
    assert again.status == 200, again.text
    assert len(vendors.calls) == 2
    stranger = copy.copy(gateway)
    stranger.key = gateway.add_organization(f"stranger-{kind}-{way}".replace(" ", "-"))
    refused = Sent(stranger, "whole", vendor, **names)
    assert refused.status == 400 and "routing.provider_objects" in refused.text, refused.text


def test_a_container_has_the_size_with_which_it_was_made(gateway: LocalGateway, vendors: FakeToolVendors) -> None:
    """One of unknown size costs as much as the largest."""
    _, makes, names = CONTAINERS["code of OpenAI"]
    Sent(gateway, "whole", OPENAI, **makes)
    again = Sent(gateway, "whole", OPENAI, **names)
    assert again.status == 200
    assert costs_of(gateway)[1] < 2 * 4 * 30_000_000


def test_a_container_at_a_provider_key_of_the_organization_is_not_remembered(
    gateway: LocalGateway, vendors: FakeToolVendors
) -> None:
    """The organization chooses the address of such a provider, which could name the containers of others."""
    bring_key(gateway, vendors, OPENAI)
    _, makes, _ = CONTAINERS["code of OpenAI"]
    assert Sent(gateway, "whole", OPENAI, **makes).status == 200
    documents = gateway.services.store.documents
    key = hashlib.sha256(b"cntr_1").hexdigest()
    owner = (documents.get(KIND, key) or b"").decode().partition(" ")[0]
    assert owner != gateway.organization_id


def costs_of(gateway: LocalGateway) -> list[int]:
    """The costs of the organization's two rows, in order."""
    database = gateway.services.store.database
    organization = bytes.fromhex(gateway.organization_id.removeprefix("org_"))
    query = "SELECT cost_nusd FROM usage WHERE organization = ? ORDER BY posted_at"
    found: list[int] = []

    def settled() -> bool:
        found[:] = [row[0] for row in database.read(lambda: database.execute(query, (organization,)).fetchall())]
        return len(found) == 2

    assert until(settled)
    return found


OWN_OBJECTS: dict[str, Json] = {
    GEMINI: {"cachedContent": "cachedContents/1"},
    OPENAI: {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
}


def test_an_advisor_of_a_dearer_service_has_its_multiplier(gateway: LocalGateway, vendors: FakeToolVendors) -> None:
    tools = [tool_of(CLAUDE, "advisor_20260301")]
    Sent(gateway, "whole", CLAUDE, tools=tools, model="anthropic/claude-opus-4-6", inference_geo="us")
    _, flags, extra = row_of(gateway)
    written = 2 * 1_500 * 25_000
    assert extra["nusd"]["tool_model_written"] == written * 11 // 10 and not flags & OVERRUN


CHAT_TOOLS = (
    "web_search_premium",
    "code_interpreter",
    "image_generation",
    "document_library",
    "connector",
    "retrieval",
)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v2/chat"])
@pytest.mark.parametrize("kind", CHAT_TOOLS)
def test_tools_that_other_formats_do_not_carry_are_refused_by_name(
    gateway: LocalGateway, vendors: FakeToolVendors, path: str, kind: str
) -> None:
    body = {"model": MODELS[OPENAI], "messages": [{"role": "user", "content": "Hello"}], "tools": [{"type": kind}]}
    status, text = post(gateway, path, body)
    assert status == 400 and kind in text and not vendors.calls, text


FILES = "https://generativelanguage.googleapis.com/v1beta/files/1"
ADDRESSED: dict[str, tuple[str, Json]] = {
    "/v1/chat/completions": ("messages", {"type": "file", "file": {"file_data": FILES}}),
    "/v2/chat": ("messages", {"type": "image_url", "image_url": {"url": FILES}}),
    "/v1/messages": ("messages", {"type": "document", "source": {"type": "url", "url": FILES.upper()}}),
    "/v1/responses": ("input", {"type": "input_file", "file_url": FILES}),
}


@pytest.mark.parametrize("path", ADDRESSED)
def test_a_stored_file_is_refused_by_its_address_in_every_format(
    gateway: LocalGateway, vendors: FakeToolVendors, path: str
) -> None:
    """Only Gemini's own format knew that it belongs to the account."""
    member, part = ADDRESSED[path]
    more = {"max_tokens": 10} if member == "messages" else {}
    body = {"model": MODELS[GEMINI], member: [{"role": "user", "content": [part]}], **more}
    status, text = post(gateway, path, body)
    assert status == 400 and "routing.provider_objects" in text and not vendors.calls, text


STORED: dict[str, Json] = {
    "/v1/chat/completions": {
        "model": MODELS[OPENAI],
        "messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}],
    },
    "/v1/ocr": {"model": "mistral/mistral-ocr-latest", "document": {"type": "file", "file_id": "file-1"}},
}


@pytest.mark.parametrize("path", STORED)
def test_a_stored_file_is_refused_by_every_operation_that_reads_files(
    gateway: LocalGateway, vendors: FakeToolVendors, path: str
) -> None:
    status, text = post(gateway, path, STORED[path])
    assert status == 400 and "routing.provider_objects" in text and not vendors.calls, text


def post(gateway: LocalGateway, path: str, body: Json) -> tuple[int, str]:
    connection = http.client.HTTPConnection(gateway.address.removeprefix("http://"), timeout=60)
    headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text
