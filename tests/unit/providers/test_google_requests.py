import base64

import orjson
import pytest
from fakes.google import Answer, FakeGoogle
from msgspec.structs import replace

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import ContentNeeded, InvalidRequest, NotSupported, UpstreamFailed
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    FunctionTool,
    Options,
    ReasoningOptions,
    Requirements,
    ResponseFormat,
    Sampling,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.neutral.events import collect
from gateway.neutral.parts import Audio, File, Image, Media, Message, Reasoning, Text, ToolCall, ToolResult, VendorPart
from gateway.neutral.request import Native
from gateway.providers.google.contents import NO_SIGNATURE
from gateway.providers.google.generate import GoogleGenerate
from gateway.providers.protocol import Call, Credential, Target
from gateway.providers.registry import chat_wire
from gateway.providers.tool_names import GOOGLE
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import Network
from gateway.transport import Transport

PNG = base64.b64encode(b"\x89PNG pixels").decode()
LOOK = FunctionTool("look", "Looks", {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]})
HELLO = (Message("user", (Text("Hello?"),)),)
PROTOCOL = GoogleGenerate(lambda secret: "ya29.x")
STUDIO = "http://127.0.0.1:1/v1beta"
VERTEX = "http://127.0.0.1:1/v1/publishers/google"


def ask(*messages: Message, stream=False, options=Options(), needs=None, **talk) -> ChatRequest:
    conversation = Conversation(messages or HELLO, **talk)
    return ChatRequest(
        "m", needs or Requirements(stream=stream, n=conversation.sampling.n), lambda: conversation, options
    )


def at(address=STUDIO, model="gemini-3-flash", secret="AIza-good", settings=None, cap=None, auth="bearer", **mapping):
    mapping = {"web_search": True, "reasoning": True, "reasoning_efforts": ("minimal", "low", "high")} | mapping
    provider = Provider("acme", "Acme", "google", auth=auth, service_tiers={"flex": "0.5"}, headers={"X-Fixed": "1"})
    place = Mapping("acme", "m", model, **mapping)
    return Target(provider, place, Credential(secret), address, settings or {}, trusted=True, output_cap=cap)


def write(request: ChatRequest, target: Target | None = None) -> dict:
    return orjson.loads(PROTOCOL.write(request, target or at()).body)


def warnings_of(request: ChatRequest, target: Target | None = None) -> str:
    return " ".join(PROTOCOL.write(request, target or at()).warnings)


def called(*calls: ToolCall) -> tuple[Message, Message]:
    return HELLO[0], Message("assistant", calls)


def result(ident: str, *parts, **more) -> Message:
    return Message("tool", (ToolResult(ident, parts or (Text("blue"),), **more),))


@pytest.fixture
def upstream():
    with FakeGoogle() as fake:
        yield fake


@pytest.fixture
def upstreams(settings, clock):
    """The protocol over the real transport."""
    chosen = settings()
    network = Network(Transport(chosen.timeouts, chosen.security, clock=clock))
    return Upstreams({"google": chat_wire("google", PROTOCOL)}, network, {}, 5.0)


def send(upstreams: Upstreams, clock, request: ChatRequest, target: Target):
    deadline = clock.monotonic() + 60
    if request.requirements.stream:
        return collect(upstreams.stream(request, target, deadline).batches)
    return upstreams.send(request, target, deadline)


# Through the strict upstream.


@pytest.mark.parametrize("stream", [False, True])
def test_answer_comes_with_thoughts_and_counts(upstreams, upstream, clock, stream):
    upstream.script(Answer("Hello there, friend.", thoughts="Hm.", thought_tokens=9, fragment=7))
    answer = send(upstreams, clock, ask(stream=stream), at(upstream.url))
    thought, text = answer.choices[0].parts
    assert (thought.text, text.text, text.signature in upstream.signatures) == ("Hm.", "Hello there, friend.", True)
    truth = upstream.calls[0].usage
    assert answer.usage.input_total + answer.usage.output_total == truth["totalTokenCount"]
    assert "AIza" not in upstream.calls[0].query + upstream.calls[0].path


@pytest.mark.parametrize("model", ["gemini-3-flash", "gemini-2.5-flash", "gemma-3-27b-it"])
@pytest.mark.parametrize("stream", [False, True])
def test_two_turn_tool_loop_brings_signatures_back_byte_for_byte(upstreams, upstream, clock, model, stream):
    upstream.script(Answer(tools=(("look", {"at": "sky"}), ("look", {"at": "sea"})), call_ids=stream))
    target = at(upstream.url, model)
    answer = send(upstreams, clock, ask(stream=stream, tools=(LOOK,)), target)
    calls = answer.choices[0].parts
    assert calls[0].signature in upstream.signatures and not calls[1].signature
    turn = (*called(*calls), result(calls[0].id), result(calls[1].id))
    assert send(upstreams, clock, ask(*turn, stream=stream, tools=(LOOK,)), target).choices[0].parts[0].text == "Hello."
    assert upstream.calls[1].body["contents"][1]["parts"][0]["thoughtSignature"] == calls[0].signature


def test_call_without_its_signature_is_sent_with_the_documented_stand_in(upstreams, upstream, clock):
    turn = (*called(ToolCall("c1", "look", '{"at":"sky"}', "c2lnbmVk", "anthropic")), result("c1"))
    send(upstreams, clock, ask(*turn, tools=(LOOK,)), at(upstream.url))
    assert upstream.calls[0].body["contents"][1]["parts"][0]["thoughtSignature"] == NO_SIGNATURE


def test_a_changed_signature_is_refused_by_the_strict_upstream(upstreams, upstream, clock):
    turn = (*called(ToolCall("c1", "look", "{}", "AAAA", "google")), result("c1"))
    with pytest.raises(InvalidRequest, match="Corrupted thought signature"):
        send(upstreams, clock, ask(*turn, tools=(LOOK,)), at(upstream.url))


@pytest.mark.parametrize("model", ["gemini-3-flash", "gemini-2.5-flash"])
def test_images_in_tool_results_arrive(upstreams, upstream, clock, model):
    turn = (*called(ToolCall("c1", "look", "{}")), result("c1", Text("see"), Image(Media("image/png", data=PNG))))
    send(upstreams, clock, ask(*turn, tools=(LOOK,)), at(upstream.url, model))
    assert PNG in orjson.dumps(upstream.calls[0].body["contents"]).decode()


def test_everything_at_once_is_accepted_by_the_strict_upstream(upstreams, upstream, clock):
    media = (
        Image(Media(data=PNG)),
        Audio(Media(data=PNG), "mp3"),
        File(Media("application/pdf", url="https://a.test/b")),
    )
    messages = (Message("system", (Text("Be brief."),)), Message("user", (Text("So?"), *media)))
    talk = {
        "tools": (LOOK, WebSearch()),
        "tool_choice": ToolChoice("tool", "look"),
        "response_format": ResponseFormat("json_schema", schema={"type": "array", "items": {"type": "string"}}),
        "reasoning": ReasoningOptions(effort="max"),
        "sampling": Sampling(100, 1.5, 0.9, 40, 0.1, 0.2, 2, ("END",)),
    }
    send(upstreams, clock, ask(*messages, **talk, options=Options(service_tier="flex")), at(upstream.url))
    assert upstream.calls[0].body["serviceTier"] == "flex"


@pytest.mark.parametrize("secret", ["AIza-good", "ya29.token"])
def test_vertex_takes_keys_and_tokens_and_tiers_in_headers(upstreams, upstream, clock, secret):
    settings = {"token_type": "oauth" if secret.startswith("ya29") else "api-key"}
    target = at(upstream.vertex_url, secret=secret, settings=settings)
    send(upstreams, clock, ask(options=Options(service_tier="flex")), target)
    call = upstream.calls[0]
    assert call.headers["x-vertex-ai-llm-shared-request-type"] == "flex"
    assert call.headers["x-vertex-ai-llm-request-type"] == "shared"
    assert ("x-goog-api-key" in call.headers) is (secret == "AIza-good")
    assert "serviceTier" not in call.body


def test_stream_cut_on_the_wire_never_looks_complete(upstreams, upstream, clock):
    request, target = ask(stream=True), at(upstream.url)
    send(upstreams, clock, request, target)
    whole = upstream.calls[0].sent
    for cut in range(1, whole, 37):
        upstream.script(Answer("Hello.", cut=cut))
        with pytest.raises(UpstreamFailed):
            send(upstreams, clock, request, target)
    assert len(upstream.calls) > 10 and upstream.calls[0].whole


# The body.


def test_neighbours_of_one_role_are_one_content_and_instructions_stand_apart():
    system, user, model = Message("system", (Text("s"),)), HELLO[0], Message("assistant", (Text("a"),))
    body = write(ask(system, user, user, model, model, Message("developer", (Text("d"),)), user))
    assert [(c["role"], len(c["parts"])) for c in body["contents"]] == [("user", 2), ("model", 2), ("user", 2)]
    assert body["contents"][2]["parts"][0] == {"text": "<system-reminder>\nd\n</system-reminder>"}
    assert body["systemInstruction"] == {"parts": [{"text": "s"}]}


def test_instructions_alone_are_the_users_words():
    assert write(ask(Message("system", (Text("s"),))))["contents"] == [{"role": "user", "parts": [{"text": "s"}]}]


def test_result_without_a_call_is_the_callers_fault():
    with pytest.raises(InvalidRequest, match="c9"):
        write(ask(*HELLO, result("c9")))


def test_error_result_is_reported_as_one():
    turn = (*called(ToolCall("c1", "look", "{}")), result("c1", is_error=True))
    assert write(ask(*turn))["contents"][2]["parts"][0]["functionResponse"]["response"] == {"error": "blue"}


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [("", {}), ('{"a":1}', {"a": 1}), ("[1]", {"input": [1]}), ("{bad", {"input": "{bad"})],
)
def test_arguments_are_always_an_object(arguments, sent):
    parts = write(ask(*called(ToolCall("c1", "look", arguments)), result("c1")))["contents"][1]["parts"]
    assert parts[0]["functionCall"] == {"name": "look", "args": sent, "id": "c1"}


def test_reasoning_of_another_vendor_is_dropped_and_own_goes_back_when_signed():
    thoughts = (
        Reasoning("x", "s", vendor="anthropic"),
        Reasoning("y", vendor="google"),
        Reasoning("z", "q==", vendor="google"),
    )
    body = write(ask(*HELLO, Message("assistant", (*thoughts, Text("a", signature="t+/=", vendor="google"))), *HELLO))
    assert body["contents"][1]["parts"] == [
        {"text": "z", "thought": True, "thoughtSignature": "q=="},
        {"text": "a", "thoughtSignature": "t+/="},
    ]


def test_own_parts_go_back_as_they_came_and_foreign_ones_are_refused():
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "a"}
    body = write(ask(*HELLO, Message("assistant", (VendorPart("google", "executableCode", code),)), *HELLO))
    assert body["contents"][1]["parts"] == [code]
    with pytest.raises(NotSupported):
        write(ask(*HELLO, Message("assistant", (VendorPart("anthropic", "server_tool_use", {}),)), *HELLO))


@pytest.mark.parametrize(
    ("media", "data"),
    [
        (
            Media(url="https://a.test/b.png?c=d.gif"),
            {"fileUri": "https://a.test/b.png?c=d.gif", "mimeType": "image/png"},
        ),
        (Media(url="gs://b/c"), {"fileUri": "gs://b/c", "mimeType": "image/jpeg"}),
        (Media(file_id="files/abc"), {"fileUri": f"{STUDIO}/files/abc", "mimeType": "image/jpeg"}),
    ],
)
def test_media_by_address(media, data):
    assert write(ask(Message("user", (Image(media),))))["contents"][0]["parts"] == [{"fileData": data}]


@pytest.mark.parametrize("kind", [Image, File])
@pytest.mark.parametrize("url", ["http://a.test/b.png", "https://a.test/b"])
def test_a_url_that_the_model_does_not_load_must_be_sent_as_data(kind, url):
    with pytest.raises(ContentNeeded):
        write(ask(Message("user", (kind(Media(url=url)),))))


def test_file_of_another_service_is_not_supported():
    with pytest.raises(NotSupported):
        write(ask(Message("user", (File(Media(file_id="file-abc")),))))


@pytest.mark.parametrize(
    ("model", "asked", "thinking"),
    [
        ("gemini-3-flash", ReasoningOptions(), {"includeThoughts": True}),
        ("gemini-3-flash", ReasoningOptions(effort="medium"), {"includeThoughts": True, "thinkingLevel": "LOW"}),
        ("gemini-3-flash", ReasoningOptions(effort="max"), {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-3-flash", ReasoningOptions(effort="none"), {"thinkingLevel": "MINIMAL"}),
        ("gemini-3-flash", ReasoningOptions(budget=9000), {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-3-flash", ReasoningOptions(effort="low", show="omitted"), {"thinkingLevel": "LOW"}),
        ("gemini-2.5-flash", ReasoningOptions(effort="high"), {"includeThoughts": True, "thinkingBudget": 24576}),
        ("gemini-2.5-flash", ReasoningOptions(effort="none"), {"thinkingBudget": 0}),
        ("gemini-2.5-flash", ReasoningOptions(enabled=True), {"includeThoughts": True, "thinkingBudget": -1}),
        ("gemini-2.5-flash", ReasoningOptions(budget=90000), {"includeThoughts": True, "thinkingBudget": 24576}),
        ("gemini-2.5-flash-lite", ReasoningOptions(budget=9), {"includeThoughts": True, "thinkingBudget": 512}),
        ("gemini-2.5-pro", ReasoningOptions(effort="none"), {"thinkingBudget": 128}),
        ("gemini-2.5-pro", ReasoningOptions(budget=90000), {"includeThoughts": True, "thinkingBudget": 32768}),
    ],
)
def test_reasoning_is_a_level_or_a_budget(model, asked, thinking):
    assert write(ask(reasoning=asked), at(model=model))["generationConfig"]["thinkingConfig"] == thinking


@pytest.mark.parametrize(("budget", "level"), [(1024, "LOW"), (8192, "MEDIUM"), (8193, "HIGH")])
def test_a_budget_becomes_a_level_of_models_without_budgets(budget, level):
    place = at(reasoning_efforts=("low", "medium", "high"))
    body = write(ask(reasoning=ReasoningOptions(budget=budget)), place)
    assert body["generationConfig"]["thinkingConfig"]["thinkingLevel"] == level


@pytest.mark.parametrize(
    ("effort", "budget"),
    [("minimal", 1024), ("low", 1024), ("medium", 8192), ("high", 24576), ("xhigh", 24576), ("max", 24576)],
)
def test_an_effort_is_the_budget_of_googles_own_compatible_endpoint(effort, budget):
    body = write(ask(reasoning=ReasoningOptions(effort=effort)), at(model="gemini-2.5-flash"))
    assert body["generationConfig"]["thinkingConfig"]["thinkingBudget"] == budget


@pytest.mark.parametrize(
    ("model", "level"),
    [
        ("gemini-3-pro-preview", "LOW"),
        ("gemini-3.1-pro", "MEDIUM"),
        ("gemini-flash-latest", "MEDIUM"),
        ("gemma-4-31b-it", "MINIMAL"),
    ],
)
def test_level_of_a_model_whose_entry_names_none(model, level):
    body = write(ask(reasoning=ReasoningOptions(effort="medium")), at(model=model, reasoning_efforts=()))
    assert body["generationConfig"]["thinkingConfig"]["thinkingLevel"] == level


def test_an_older_image_model_gets_no_thinking_configuration():
    target = at(model="gemini-2.5-flash-image", operations=("chat", "images"))
    assert "thinkingConfig" not in write(ask(), target)["generationConfig"]


def test_model_that_cannot_stop_reasoning_is_reported():
    assert "cannot stop reasoning" in warnings_of(ask(reasoning=ReasoningOptions(effort="none")))


def test_a_model_without_reasoning_gets_no_reasoning_effort():
    assert "generationConfig" not in write(ask(reasoning=ReasoningOptions(effort="high")), at(reasoning=False))


def test_schema_is_json_for_newer_models_and_googles_own_for_older_ones():
    newer = write(ask(tools=(LOOK,)))["tools"][0]["functionDeclarations"][0]
    older = write(ask(tools=(LOOK,)), at(model="gemini-2.0-flash"))["tools"][0]["functionDeclarations"][0]
    assert newer["parametersJsonSchema"]["properties"] == {"at": {"type": "string"}}
    assert older["parameters"]["properties"] == {"at": {"type": "STRING"}}


def test_words_that_a_schema_loses_are_reported_by_tool():
    tool = FunctionTool("put", schema={"type": "object", "properties": {"a": {"type": "string", "pattern": "^x"}}})
    assert "keywords in the schema of tool put: pattern" in warnings_of(ask(tools=(tool,)))


@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, {"type": "object", "properties": {}}])
def test_function_without_parameters_has_no_schema(schema):
    assert write(ask(tools=(FunctionTool("now", schema=schema),)))["tools"] == [
        {"functionDeclarations": [{"name": "now"}]}
    ]


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (ToolChoice("auto"), {"mode": "AUTO"}),
        (ToolChoice("none"), {"mode": "NONE"}),
        (ToolChoice("required"), {"mode": "ANY"}),
        (ToolChoice("tool", "look"), {"mode": "ANY", "allowedFunctionNames": ["look"]}),
    ],
)
def test_tool_choice_is_a_calling_mode(choice, config):
    assert write(ask(tools=(LOOK,), tool_choice=choice))["toolConfig"] == {"functionCallingConfig": config}


def test_search_beside_functions_goes_only_to_models_that_accept_both():
    request = ask(tools=(LOOK, WebSearch(blocked_domains=("a.test",), city="Bern")))
    body = write(request)
    assert body["tools"][1] == {"googleSearch": {}}
    assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert "user_location, blocked_domains" in warnings_of(request)
    for target in (at(model="gemini-2.5-flash"), at(VERTEX)):
        with pytest.raises(NotSupported):
            write(request, target)


def test_vertex_excludes_domains():
    search = ask(tools=(WebSearch(blocked_domains=("a.test",)),))
    assert write(search, at(VERTEX))["tools"] == [{"googleSearch": {"excludeDomains": ["a.test"]}}]


@pytest.mark.parametrize(
    ("talk", "target"),
    [
        ({"tools": (WebSearch(),)}, at(web_search=False)),
        ({"tools": (VendorTool("anthropic", "bash_20250124", {}),)}, at()),
        ({"tools": (LOOK,), "response_format": ResponseFormat("json_object")}, at(model="gemini-2.5-flash")),
        ({"sampling": Sampling(n=9)}, at()),
    ],
)
def test_content_without_a_counterpart_is_not_supported(talk, target):
    with pytest.raises(NotSupported):
        write(ask(**talk), target)


def test_choices_are_not_streamed():
    with pytest.raises(NotSupported):
        write(ask(stream=True, sampling=Sampling(n=2)))


def test_limits_hold():
    sampling = Sampling(max_tokens=500, temperature=9.0, stop=tuple("abcdef"), top_k=3)
    target = at(cap=200, reasoning=False, supported_parameters=("temperature",))
    request = ask(sampling=sampling)
    config = write(request, target)["generationConfig"]
    assert config == {"maxOutputTokens": 200, "temperature": 2.0, "stopSequences": list("abcde")}
    assert "top_k is not supported" in warnings_of(request, target) and "stop" in warnings_of(request, target)
    unlisted = write(ask(sampling=Sampling(stop=tuple("abcdef"))), at())
    assert unlisted["generationConfig"]["stopSequences"] == list("abcde")


@pytest.mark.parametrize("tools", [(), (LOOK,)])
def test_parallel_calls_are_mentioned_once_where_they_cannot_be_switched_off(tools):
    for wanted in (True, False):
        request = ask(sampling=Sampling(parallel_tool_calls=wanted), tools=tools)
        assert warnings_of(request, at()).count("parallel_tool_calls") == (wanted is False and len(tools))


def test_image_models_get_the_image_modality():
    options = Options(image_config={"aspect_ratio": "16:9", "image_size": "2K", "seed": 7, "image_quality": "high"})
    target = at(operations=("chat", "images"), reasoning=False)
    config = write(ask(options=options), target)["generationConfig"]
    assert config["responseModalities"] == ["TEXT", "IMAGE"]
    assert (config["imageConfig"], config["seed"]) == ({"aspectRatio": "16:9", "imageSize": "2K"}, 7)
    assert "image_quality" in warnings_of(ask(options=options), target)


@pytest.mark.parametrize(
    ("model", "kept"), [("gemini-2.5-flash-image", {}), ("gemini-3-pro-image", {"imageSize": "4K"})]
)
def test_an_image_config_that_a_model_lacks_is_left_out(model, kept):
    options = Options(image_config={"aspect_ratio": "7:3", "image_size": "4K"})
    target = at(model=model, operations=("chat", "images"), reasoning=False)
    assert write(ask(options=options), target)["generationConfig"].get("imageConfig", {}) == kept
    warning = warnings_of(ask(options=options), target)
    assert "aspect_ratio 7:3 was left out" in warning
    assert ("image_size 4K was left out" in warning) is not bool(kept)


# The call.


def call(target: Target, stream=False) -> Call:
    return PROTOCOL.write(ask(stream=stream), target)


def test_key_travels_in_a_header_never_in_the_address():
    for auth in ("bearer", "query:key", "x-goog-api-key"):
        written = call(at(auth=auth), stream=True)
        assert written.url == f"{STUDIO}/models/gemini-3-flash:streamGenerateContent?alt=sse"
        assert written.headers["x-goog-api-key"] == "AIza-good"
        assert written.headers["x-fixed"] == "1"


def test_service_account_becomes_a_token_wherever_it_is_used():
    assert call(at(secret='{"type":"service_account"}')).headers["authorization"] == "Bearer ya29.x"
    assert call(at(auth="google-oauth", secret="ya29.own")).headers["authorization"] == "Bearer ya29.x"


def test_where_a_targets_calls_go_is_made_once_but_no_token_is_kept():
    to = at()
    assert call(to).endpoint is call(to).endpoint and call(to, stream=True).headers["accept"] == "text/event-stream"
    tokens = iter(("one", "two"))
    protocol, account = GoogleGenerate(lambda secret: next(tokens)), at(secret='{"type":"service_account"}')
    sent = [protocol.write(ask(), account).headers["authorization"] for _ in range(2)]
    assert sent == ["Bearer one", "Bearer two"]


def test_odd_names_of_models_stay_in_their_place():
    assert call(at(model="tunedModels/mine-1")).url == f"{STUDIO}/tunedModels/mine-1:generateContent"
    assert call(at(model="a?b#c")).url == f"{STUDIO}/models/a%3Fb%23c:generateContent"
    assert call(at(f"{STUDIO}?x=1"), stream=True).url.endswith(":streamGenerateContent?x=1&alt=sse")


def test_a_native_body_is_relayed_with_the_models_limits():
    native = Native("google", {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "labels": {"a": "b"}})
    sent = orjson.loads(PROTOCOL.relay(native, ask(), at()).body)
    assert sent["contents"] == native.body["contents"] and sent["labels"] == {"a": "b"}


def test_prefix_of_a_turn_is_the_same_in_the_next():
    first = write(ask(*called(ToolCall("c1", "look", '{"b":1,"a":2}')), result("c1")))
    second = write(
        ask(*called(ToolCall("c1", "look", '{"b":1,"a":2}')), result("c1"), Message("assistant", (Text("x"),)), *HELLO)
    )
    assert orjson.dumps(second["contents"][:3]) == orjson.dumps(first["contents"])


ODD_NAMES = ["1st", "mcp:look/at", "größe", "x" * 100, ""]


@pytest.mark.parametrize("name", ODD_NAMES[:-1])
@pytest.mark.parametrize("stream", [True, False])
def test_function_of_a_refused_name_is_called_by_the_callers(upstream, upstreams, clock, name, stream):
    upstream.script(Answer(tools=((GOOGLE.plain(name), {"at": "sea"}),)))
    past = called(ToolCall("c1", name, '{"at": "sky"}'))
    request = ask(*past, result("c1"), HELLO[0], tools=(replace(LOOK, name=name),),
                  tool_choice=ToolChoice("tool", name), stream=stream)  # fmt: skip
    target, deadline = at(upstream.url), clock.monotonic() + 60
    sent = upstreams.stream(request, target, deadline) if stream else None
    found = collect(sent.batches) if stream else upstreams.send(request, target, deadline)
    assert [part.name for part in found.choices[0].parts] == [name]


def test_refused_names_stay_apart_and_plain_ones_stay_themselves():
    made = [GOOGLE.plain(name) for name in (*ODD_NAMES, "mcp:look.at", "mcp/look:at", "x" * 101)]
    assert len(set(made)) == len(made) and all(map(GOOGLE.takes, made))
    assert GOOGLE.plain("look.at-1_b") == "look.at-1_b"


@pytest.mark.parametrize(("model", "told"), [("gemini-2.0-flash", 4), ("gemini-2.5-pro", 0), ("gemma-3-27b-it", 0)])
def test_filters_are_off_by_word_where_they_are_not_by_themselves(model, told):
    found = write(ask(), at(model=model)).get("safetySettings", [])
    assert [one["threshold"] for one in found] == ["BLOCK_NONE"] * told
    assert len({one["category"] for one in found}) == told
