"""Call options and prompts of every version as neutral requests."""

import json
from base64 import b64decode, b64encode
from typing import Any

import orjson
import pytest

from gateway.configuration import settings as settings_module
from gateway.errors import InvalidRequest
from gateway.neutral.chat import WebSearch
from gateway.neutral.file_types import BASE64_PIECE_LENGTH
from gateway.neutral.parts import Audio, CacheMark, File, Image, Media, Reasoning, Text, ToolCall, ToolResult
from gateway.surfaces.aisdk import reader
from gateway.surfaces.web.http import Inbound

LIMITS = settings_module.load({"GATEWAY_ENV": "test"}).limits
PNG = "iVBORw0KGgoAAAANSUhEUgAA"


def read(stream: bool = False, **options: Any) -> reader.Question:
    headers = {reader.MODEL_HEADER: "openai/x", reader.STREAMING_HEADER: str(stream).lower()}
    body = json.dumps({"prompt": [user("Hello")], **options})
    return reader.read_question(Inbound("POST", "/v4/ai/language-model", headers, body.encode()), 4, LIMITS)


def user(*content: Any, **more: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return {"role": "user", "content": parts, **more}


def assistant(*content: Any) -> dict[str, Any]:
    return {**user(*content), "role": "assistant"}


def tool(*content: Any) -> dict[str, Any]:
    return {"role": "tool", "content": list(content)}


def file(data: Any, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "file", "data": data, "mediaType": kind, **more}


def parts_of(*messages: dict[str, Any]) -> list[tuple]:
    return [message.parts for message in read(prompt=list(messages)).request.conversation().messages]


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (file(f"data:image/png;base64,{PNG}", "image/*"), Image(Media("image/png", data=PNG))),
        (file(PNG, "image/*"), Image(Media("image/png", data=PNG))),
        (file("/9j/4AAQ", "image"), Image(Media("image/jpeg", data="/9j/4AAQ"))),
        (file({"type": "data", "data": "R0lGODlh"}, "image"), Image(Media("image/gif", data="R0lGODlh"))),
        (file("UklGRgAA", "image/*"), Image(Media("image/webp", data="UklGRgAA"))),
        (file("https://x.example/a", "image/*"), Image(Media(url="https://x.example/a"))),
        (file("http://x.example/a", "image/*"), Image(Media(url="http://x.example/a"))),
        (file({"type": "url", "url": "https://x.example/a"}, "image/png"),
         Image(Media("image/png", url="https://x.example/a"))),
        (file("AAAA", "audio/mpeg"), Audio(Media("audio/mpeg", data="AAAA"), "mp3")),
        (file("AAAA", "audio/x-wav"), Audio(Media("audio/x-wav", data="AAAA"), "wav")),
        (file("AAAA", "application/pdf", filename="a.pdf"), File(Media("application/pdf", data="AAAA"), "a.pdf")),
        (file("V29yZHMu", "text/plain", filename="a.txt"), Text("a.txt\n\nWords.")),
        (file({"type": "text", "text": "Words."}, "text/plain"), Text("Words.")),
    ],
)  # fmt: skip
def test_files_are_reported_by_their_kind_and_form(given: dict, part: Any) -> None:
    assert parts_of(user(given)) == [(part,)]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        (file("data:image/png,AAAA", "image/png"), "prompt.0.content.0.data"),
        (file("", "image/png"), "prompt.0.content.0.data"),
        (file("////", "text/plain"), "prompt.0.content.0.data"),
        (file("!!! not base64", "image/png"), "prompt.0.content.0.data"),
        (file("data:image/png;base64,A", "image/png"), "prompt.0.content.0.data"),
        (file({"type": "data", "data": "größe"}, "application/pdf"), "prompt.0.content.0.data.data"),
        (file({"type": "reference", "reference": {"openai": "file-1"}}, "image/png"), "prompt.0.content.0.data"),
    ],
)
def test_unreadable_files_are_rejected(given: dict, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(prompt=[user(given)])
    assert refused.value.param == param


@pytest.mark.parametrize("written", ["_-8", "/+8", "/+8=\n", "/ +8="])
def test_base64_in_any_variant_becomes_standard_base64(written: str) -> None:
    assert parts_of(user(file(written, "image/png"))) == [(Image(Media("image/png", data="/+8=")),)]


def test_client_executed_calls_come_back_unchanged() -> None:
    said = assistant(
        {"type": "tool-call", "toolCallId": "a", "toolName": "look", "input": {"b": 1.5, "a": []}},
        {"type": "tool-call", "toolCallId": "b", "toolName": "look", "input": "no JSON {"},
        {"type": "tool-call", "toolCallId": "c", "toolName": "look"},
        {"type": "tool-call", "toolCallId": "d", "toolName": "look"},
    )
    outputs: list[Any] = [
        {"type": "json", "value": {"sky": None}},
        {"type": "error-text", "value": "no sky"},
        {"type": "execution-denied"},
        {"type": "error-json", "value": {"code": 5}},
    ]
    told = [
        {"type": "tool-result", "toolCallId": ident, "toolName": "look", "output": output}
        for ident, output in zip("abcd", outputs, strict=True)
    ]
    calls, results = parts_of(
        said, tool(*told, {"type": "tool-approval-response", "approvalId": "x", "approved": True})
    )
    assert calls == (
        ToolCall("a", "look", '{"b": 1.5, "a": []}'), ToolCall("b", "look", "no JSON {"),
        ToolCall("c", "look", ""), ToolCall("d", "look", ""),
    )  # fmt: skip
    assert results[0] == ToolResult("a", (Text('{"sky": null}'),), "look")
    assert results[1] == ToolResult("b", (Text("no sky"),), "look", is_error=True)
    assert results[2].parts[0].text and not results[2].is_error
    assert results[3] == ToolResult("d", (Text('{"code": 5}'),), "look", is_error=True)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "media", "data": PNG, "mediaType": "image/png"},
        {"type": "image-data", "data": PNG, "mediaType": "image/png"},
        {"type": "file-data", "data": PNG, "mediaType": "image/png"},
        {"type": "file", "data": {"type": "data", "data": PNG}, "mediaType": "image/png"},
    ],
)
def test_images_of_tools_are_read_in_every_versions_words(item: dict) -> None:
    output = {"type": "content", "value": [{"type": "text", "text": "See:"}, item, {"type": "custom"}]}
    result = {"type": "tool-result", "toolCallId": "a", "toolName": "look", "output": output}
    question = read(prompt=[tool(result)])
    ((found,),) = [message.parts for message in question.request.conversation().messages]
    assert found.parts == (Text("See:"), Image(Media("image/png", data=PNG)))
    assert question.request.requirements.vision and question.request.requirements.media == 1


def test_provider_executed_calls_are_left_out_wherever_their_result_is() -> None:
    call = {"type": "tool-call", "toolCallId": "w", "toolName": "finder", "input": {}, "providerExecuted": True}
    result = {"type": "tool-result", "toolCallId": "w", "toolName": "finder", "output": {"type": "json", "value": []}}
    assert parts_of(user("News?"), assistant(call, result, "None."), assistant(call), tool(result)) == [
        (Text("News?"),), (Text("None."),)
    ]  # fmt: skip


def test_provider_metadata_is_read_back() -> None:
    own = {"signature": "s+/=", "sealed": "é", "vendor": "anthropic", "id": "rs_1", "summary": True}
    thought = {"type": "reasoning", "text": "Hm.", "providerOptions": {"llmgateway": own, "other": 1}}
    text = {"type": "text", "text": "So.", "providerOptions": {"llmgateway": {"signature": "t", "vendor": "google"}}}
    call = {
        "type": "tool-call",
        "toolCallId": "a",
        "toolName": "x",
        "input": {},
        "providerOptions": {"llmgateway": {"signature": "c", "vendor": "google"}},
    }
    (parts,) = parts_of(assistant(thought, {"type": "reasoning", "text": ""}, text, call))
    assert parts == (
        Reasoning("Hm.", "s+/=", "é", "anthropic", "rs_1", True),
        Text("So.", signature="t", vendor="google"),
        ToolCall("a", "x", "{}", "c", "google"),
    )


def marked(ttl: Any = None, **more: Any) -> dict[str, Any]:
    control = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    return {"providerOptions": {"anthropic": {"cacheControl": control}}, **more}


def test_cache_marks_stand_on_parts_messages_and_tools() -> None:
    spelled = {"anthropic": {"cache_control": {"type": "ephemeral", "ttl": "5m"}}}
    question = read(
        prompt=[
            {"role": "system", "content": "Be brief.", **marked("1h")},
            user({"type": "text", "text": "Long.", **marked()}, "Short."),
            user("One.", "Two.", **marked("9d")),
        ],
        tools=[{"type": "function", "name": "look", "inputSchema": {}, "providerOptions": spelled}],
    )
    talk = question.request.conversation()
    marks = [getattr(part, "cache", None) for message in talk.messages for part in message.parts]
    assert marks == [CacheMark("1h"), CacheMark(), None, None, CacheMark()]
    assert talk.tools[0].cache == CacheMark("5m") and question.request.requirements.cache_marks


@pytest.mark.parametrize(
    "odd", [1, "x", [], {"anthropic": 1}, {"anthropic": {"cacheControl": "yes"}}, {"llmgateway": 3}]
)
def test_odd_options_of_parts_never_fail(odd: Any) -> None:
    assert parts_of({**user({"type": "text", "text": "x", "providerOptions": odd}), "providerOptions": odd})


@pytest.mark.parametrize("ident", ["openai.web_search", "openai.web_search_preview", "google.google_search",
                                   "anthropic.web_search_20250305", "anthropic.web_search_20260209"])  # fmt: skip
@pytest.mark.parametrize("kind", ["provider", "provider-defined"])
def test_search_tools_of_vendors_are_the_models_own(ident: str, kind: str) -> None:
    args = {
        "searchContextSize": "low",
        "maxUses": 2,
        "filters": {"allowedDomains": ["a.example"]},
        "userLocation": {"type": "approximate", "city": "Oslo"},
        "externalWebAccess": True,
    }
    bound = {"type": kind, "id": ident, "name": "finder", "args": args}
    question = read(tools=[bound], toolChoice={"type": "tool", "toolName": "finder"})
    talk = question.request.conversation()
    assert talk.tools == (WebSearch(2, ("a.example",), context_size="low", city="Oslo"),)
    assert talk.tool_choice.mode == "web_search" and question.search == "finder" and question.warnings == []


def test_each_choice_of_a_tool_has_a_neutral_word() -> None:
    tool = {"type": "function", "name": "f", "inputSchema": {"type": "object"}}
    for kind in ("auto", "none", "required"):
        talk = read(tools=[tool], toolChoice={"type": kind}).request.conversation()
        assert talk.tool_choice is not None and talk.tool_choice.mode == kind


@pytest.mark.parametrize(("criterion", "routing"), [("cost", "price"), ("ttft", "latency"), ("tps", "throughput")])
def test_providers_are_chosen_as_with_the_sdks_own_gateway(criterion: str, routing: str) -> None:
    chosen = {"order": ["north", "south"], "only": ["north", "south", "west"], "sort": criterion}
    options = read(providerOptions={"gateway": chosen}).request.options
    assert options.routing == routing and options.provider is not None
    assert (options.provider.order, options.provider.only) == (("north", "south"), ("north", "south", "west"))


def test_a_search_leaves_out_blocked_domains() -> None:
    args = {"blockedDomains": ["b.example"]}
    question = read(tools=[{"type": "provider", "id": "anthropic.web_search_20250305", "name": "web", "args": args}])
    assert question.request.conversation().tools == (WebSearch(blocked_domains=("b.example",)),)


@pytest.mark.parametrize("own", [{"model": "openai/y"}, {"messages": []}, {"stream": True}])
def test_options_of_the_gateway_change_nothing_that_the_call_itself_says(own: dict[str, Any]) -> None:
    given = read(providerOptions={"llmgateway": own}).request
    plain = read().request
    assert given.requested_model == plain.requested_model and given.requirements == plain.requirements
    assert given.conversation().messages == plain.conversation().messages


def test_each_option_without_counterpart_is_reported_once() -> None:
    odd = {"type": "provider", "id": "openai.shell", "name": "shell", "args": {"big": 2**80}}
    question = read(
        tools=[odd], toolChoice={"type": "auto"}, stopSequences=["x"], seed=0, topK=1, includeRawChunks=True
    )
    kinds = [(warning["type"], warning["feature"]) for warning in question.warnings]
    named = [("unsupported", name) for name in ("stopSequences", "seed", "topK")]
    assert kinds == [*named, ("unsupported-tool", "tool openai.shell")]
    assert question.request.conversation().tools == () and question.request.conversation().tool_choice is None
    orjson.dumps(question.warnings)


def test_a_choice_of_an_omitted_tool_becomes_auto() -> None:
    tools = [
        {"type": "provider", "id": "x.y", "name": "y", "args": {}},
        {"type": "function", "name": "z", "inputSchema": {}},
    ]
    question = read(tools=tools, toolChoice={"type": "tool", "toolName": "y"})
    assert question.request.conversation().tool_choice.mode == "auto"


def test_a_body_as_large_as_its_tools_is_read_in_one_go() -> None:
    schema = {"type": "object", "description": "x" * 600_000}
    question = read(tools=[{"type": "function", "name": "look", "inputSchema": schema}])
    assert question.request.large and question.request.requirements.prompt_bytes > 600_000


@pytest.mark.parametrize(
    ("given", "name"),
    [("A recipe, at last", "A_recipe__at_last"), ("", "response"), ("city", "city"), ("é" * 99, "_" * 64)],
)
def test_a_schema_has_a_name_that_every_vendor_takes(given: str, name: str) -> None:
    question = read(responseFormat={"type": "json", "schema": {"type": "object"}, "name": given, "description": "d"})
    wanted = question.request.conversation().response_format
    assert (wanted.name, wanted.description, wanted.kind) == (name, "d", "json_schema")


@pytest.mark.parametrize("depth", [300, 2000])
def test_options_nested_without_end_are_read_or_refused(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    headers = {reader.MODEL_HEADER: "openai/x"}
    for member in ('"args":%s', '"args":{"allowedDomains":%s}'):
        for ident in ("openai.shell", "openai.web_search"):
            tool = f'{{"type":"provider","id":"{ident}","name":"y",{member % deep}}}'
            raw = f'{{"prompt":[{{"role":"system","content":"x"}}],"tools":[{tool}]}}'
            try:
                question = reader.read_question(Inbound("POST", "/", headers, raw.encode()), 4, LIMITS)
                orjson.dumps(question.warnings)
            except InvalidRequest:
                continue


def test_a_long_text_file_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding 24 MB in one call blocked every other request of the worker for a tenth of a second."""
    sizes = []

    def noting(text: str, **given: Any) -> bytes:
        sizes.append(len(text))
        return b64decode(text, **given)

    monkeypatch.setattr("gateway.neutral.file_types.b64decode", noting)
    monkeypatch.setattr("gateway.surfaces.aisdk.prompt.b64decode", noting)
    text = "größe\n" * 500_000
    data = b64encode(text.encode()).decode()
    assert parts_of(user(file(data, "text/plain"))) == [(Text(text),)]
    assert sum(sizes) == len(data) and max(sizes) <= BASE64_PIECE_LENGTH


@pytest.mark.parametrize("of_path", [2, 3, 4])
def test_the_specification_version_is_that_of_the_header_or_else_of_the_path(of_path: int) -> None:
    for stated in ("2", "v3", "4"):
        inbound = Inbound("POST", "/", {reader.VERSION_HEADER: stated})
        assert reader.version_of(inbound, of_path) == int(stated[-1])
    assert reader.version_of(Inbound("POST", "/", {}), of_path) == of_path
