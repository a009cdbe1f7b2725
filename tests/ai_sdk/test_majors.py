"""The AI SDK's majors 5, 6 and 7 through the gateway, over OpenAI, Anthropic and Google upstreams."""

import time

import pytest
from ai_sdk.clients import MAJORS, PREFIXES
from ai_sdk.scene import Scene
from contract.cases import ANSWER, PDF, PLACE, PNG, WAV
from contract.vendors import SOURCE, Say

PATIENCE = 0.5
UPSTREAMS = ("openai", "anthropic", "google")
WEATHER = {"description": "Tells the weather.", "schema": PLACE, "result": {"sky": "rain"}}
OSLO, ROME = '{"city": "Oslo"}', '{"city": "Rome"}'


def able(vendor: str) -> str:
    return f"fake-{vendor}/{vendor}-able"


@pytest.fixture(params=list(MAJORS))
def major(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(params=UPSTREAMS)
def vendor(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("prefix", list(PREFIXES.values()))
@pytest.mark.parametrize("op", ["text", "stream"])
def test_every_major_generates_and_streams_at_every_prefix(scene: Scene, major: int, prefix: str, op: str) -> None:
    scene.script("openai", Say("Good day."))
    result = scene.sdks[major].run(op, able("openai"), prefix=prefix, prompt="Hello", maxOutputTokens=50)
    assert result.get("error") is None and result.get("errors", []) == []
    assert (result["text"], result["finishReason"]) == ("Good day.", "stop")
    usage = result["usage"]
    assert usage["inputTokens"] > 0 and usage["outputTokens"] > 0
    assert usage["totalTokens"] == usage["inputTokens"] + usage["outputTokens"]
    own = result["providerMetadata"]["llmgateway"]
    assert own["used_provider"] == "fake-openai" and own["cost"] > 0 and len(own["routing"]) == 1
    (body,) = scene.bodies_sent_to("openai")
    assert body["max_completion_tokens"] == 50


@pytest.mark.parametrize("op", ["text", "stream"])
def test_tools_are_called_over_several_steps(scene: Scene, major: int, vendor: str, op: str) -> None:
    says = [Say(tools=(("weather", OSLO),)), Say("And there?", tools=(("weather", ROME),)), Say("Rain in both.")]
    scene.script(vendor, *says)
    result = scene.sdks[major].run(op, able(vendor), prompt="Weather?", tools={"weather": WEATHER}, steps=5)
    assert result.get("error") is None and result.get("errors", []) == []
    assert [step["finishReason"] for step in result["steps"]] == ["tool-calls", "tool-calls", "stop"]
    assert [call["input"] for step in result["steps"] for call in step["toolCalls"]] == [
        {"city": "Oslo"},
        {"city": "Rome"},
    ]
    assert result["text"] == "Rain in both." and len(scene.bodies_sent_to(vendor)) == 3


def test_parallel_calls_of_a_stream_are_all_run(scene: Scene, major: int, vendor: str) -> None:
    scene.script(vendor, Say(tools=(("weather", OSLO), ("weather", ROME)), piece=1, fragment=1), Say("Both wet."))
    result = scene.sdks[major].run("stream", able(vendor), prompt="Weather?", tools={"weather": WEATHER}, steps=3)
    assert result["errors"] == [] and result["text"] == "Both wet."
    assert [call["input"] for call in result["steps"][0]["toolCalls"]] == [{"city": "Oslo"}, {"city": "Rome"}]


@pytest.mark.parametrize("op", ["text", "stream"])
@pytest.mark.parametrize("vendor", ["anthropic", "google", "responses"])
def test_reasoning_comes_back_with_its_signature_over_two_turns(scene: Scene, major: int, vendor: str, op: str) -> None:
    """The strict vendors refuse reasoning that lacks what they signed or sealed."""
    says = [Say(thinking="I must look.", sealed="gAAAsealed==", tools=(("weather", OSLO),)), Say("Rain.")]
    scene.script(vendor, *says)
    options = {"llmgateway": {"reasoning_effort": "high"}}
    result = scene.sdks[major].run(
        op, able(vendor), prompt="Weather?", tools={"weather": WEATHER}, steps=3, providerOptions=options
    )
    assert result.get("error") is None and result.get("errors", []) == []
    assert result["text"] == "Rain." and [step["finishReason"] for step in result["steps"]] == ["tool-calls", "stop"]
    scene.bodies_sent_to(vendor)


def test_a_session_of_one_vendors_model_goes_on_with_anothers(scene: Scene, major: int, vendor: str) -> None:
    """One vendor's signed parts never reach another vendor, and nothing else of the conversation is lost."""
    first = "google" if vendor == "anthropic" else "anthropic"
    scene.script(first, Say("Aha.", thinking="Hm.", tools=(("weather", OSLO),)), Say("Rain."))
    options = {"llmgateway": {"reasoning_effort": "high"}}
    question = [{"role": "user", "content": "Weather?"}]
    options_of_both = {"messages": question, "tools": {"weather": WEATHER}, "steps": 2, "providerOptions": options}
    result = scene.sdks[major].run("text", able(first), **options_of_both)
    assert result.get("error") is None and result["text"] == "Rain."
    scene.script(vendor, Say("Still rain."))
    going_on = [*question, *result["messages"], {"role": "user", "content": "And now?"}]
    result = scene.sdks[major].run("text", able(vendor), **options_of_both | {"messages": going_on})
    assert result.get("error") is None and result["text"] == "Still rain."
    sent = str(scene.bodies_sent_to(vendor))
    assert "Oslo" in sent and "And now?" in sent


def test_a_conversation_goes_on_with_the_messages_that_the_sdk_made(scene: Scene, major: int) -> None:
    scene.script("anthropic", Say("Aha.", thinking="Hm."), Say("Still so."))
    options = {"llmgateway": {"reasoning_effort": "high"}}
    question = [{"role": "user", "content": "Why?"}]
    first = scene.sdks[major].run("text", able("anthropic"), messages=question, providerOptions=options)
    assert first["reasoningText"] == "Hm."
    going_on = [*question, *first["messages"], {"role": "user", "content": "Sure?"}]
    result = scene.sdks[major].run("text", able("anthropic"), messages=going_on, providerOptions=options)
    assert result["text"] == "Still so."
    blocks = scene.bodies_sent_to("anthropic")[1]["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"] and blocks[0]["signature"]


@pytest.mark.parametrize("op", ["object", "streamObject"])
def test_objects_fit_their_schema(scene: Scene, major: int, vendor: str, op: str) -> None:
    scene.script(vendor, Say('{"city": "Oslo", "people": 700000}'))
    result = scene.sdks[major].run(op, able(vendor), prompt="The largest city?", schema=ANSWER)
    assert result.get("errors", []) == [] and result["object"] == {"city": "Oslo", "people": 700000}
    scene.bodies_sent_to(vendor)


FILES = {
    "bytes": ({"$bytes": PNG}, {"$bytes": PDF}),
    "base64": (PNG, PDF),
    "data URL": (f"data:image/png;base64,{PNG}", f"data:application/pdf;base64,{PDF}"),
}


@pytest.mark.parametrize("form", FILES)
def test_images_and_documents_reach_every_vendor(scene: Scene, major: int, vendor: str, form: str) -> None:
    scene.script(vendor, Say("A cat."))
    image, paper = FILES[form]
    content = [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "image": image},
        {"type": "file", "data": paper, "mediaType": "application/pdf", "filename": "paper.pdf"},
    ]
    result = scene.sdks[major].run("text", able(vendor), messages=[{"role": "user", "content": content}])
    assert result.get("error") is None and result["text"] == "A cat."
    sent = str(scene.bodies_sent_to(vendor))
    assert PNG in sent and PDF in sent


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
def test_images_by_address_reach_the_vendors_that_load_them(scene: Scene, major: int, vendor: str) -> None:
    scene.script(vendor, Say("A cat."))
    image = {"type": "image", "image": {"$url": "https://pictures.example/cat.png"}}
    result = scene.sdks[major].run("text", able(vendor), messages=[{"role": "user", "content": [image]}])
    assert result.get("error") is None and result["text"] == "A cat."
    assert "https://pictures.example/cat.png" in str(scene.bodies_sent_to(vendor))


BY_ADDRESS = {
    "anthropic": ("https://papers.example/a.pdf", "application/pdf"),
    "google": ("https://sounds.example/bell.wav", "audio/wav"),
}


@pytest.mark.parametrize("vendor", BY_ADDRESS)
def test_documents_and_audio_by_url_reach_the_vendors_that_load_them(scene: Scene, major: int, vendor: str) -> None:
    address, kind = BY_ADDRESS[vendor]
    scene.script(vendor, Say("As it says."))
    content = [{"type": "text", "text": "What?"}, {"type": "file", "data": {"$url": address}, "mediaType": kind}]
    result = scene.sdks[major].run("text", able(vendor), messages=[{"role": "user", "content": content}])
    assert (
        result.get("error") is None and result["text"] == "As it says." and address in str(scene.bodies_sent_to(vendor))
    )


@pytest.mark.parametrize("vendor", ["openai", "google"])
@pytest.mark.parametrize("sound", [{"$bytes": WAV}, WAV], ids=["bytes", "base64"])
def test_sound_reaches_vendors_that_accept_it(scene: Scene, major: int, vendor: str, sound: object) -> None:
    scene.script(vendor, Say("A bell."))
    content = [{"type": "text", "text": "What?"}, {"type": "file", "data": sound, "mediaType": "audio/wav"}]
    result = scene.sdks[major].run("text", able(vendor), messages=[{"role": "user", "content": content}])
    assert result.get("error") is None and result["text"] == "A bell." and WAV in str(scene.bodies_sent_to(vendor))


IMAGES_OF_TOOLS = {
    5: {"type": "media", "data": PNG, "mediaType": "image/png"},
    6: {"type": "image-data", "data": PNG, "mediaType": "image/png"},
    7: {"type": "file", "data": {"type": "data", "data": PNG}, "mediaType": "image/png"},
}


def test_an_image_from_a_tool_reaches_the_model(scene: Scene, major: int, vendor: str) -> None:
    scene.script(vendor, Say(tools=(("camera", "{}"),)), Say("A cat."))
    content = [{"type": "text", "text": "See:"}, IMAGES_OF_TOOLS[major]]
    camera = {"description": "Takes a picture.", "schema": {"type": "object"}, "result": "taken", "content": content}
    result = scene.sdks[major].run("text", able(vendor), prompt="What do you see?", tools={"camera": camera}, steps=2)
    assert result.get("error") is None and result["text"] == "A cat."
    assert PNG in str(scene.bodies_sent_to(vendor)[1])


SEARCHES = {
    "openai": "openai.webSearch",
    "openai preview": "openai.webSearchPreview",
    "anthropic": "anthropic.webSearch_20250305",
    "anthropic 2026": "anthropic.webSearch_20260209",
    "google": "google.googleSearch",
}


@pytest.mark.parametrize("op", ["text", "stream"])
@pytest.mark.parametrize("tool", SEARCHES)
@pytest.mark.parametrize("vendor", ["anthropic", "google", "responses"])
def test_every_vendors_search_tool_is_the_models_own(scene: Scene, major: int, vendor: str, tool: str, op: str) -> None:
    scene.script(vendor, Say("News of today.", source=SOURCE))
    result = scene.sdks[major].run(
        op, able(vendor), prompt="News?", tools={"finder": {"vendor": SEARCHES[tool]}}, steps=2
    )
    if "has no" in str(result.get("error")) or "is not a function" in str(result.get("error")):
        pytest.skip("this major has no such tool")
    assert result.get("error") is None and result.get("errors", []) == []
    assert result["text"] == "News of today." and result["finishReason"] == "stop"
    assert [source["url"] for source in result["sources"]] == [SOURCE]
    kinds = [part["type"] for part in result["content"]]
    assert kinds.index("tool-call") < kinds.index("tool-result") < kinds.index("source")
    (call,) = [part for part in result["content"] if part["type"] == "tool-call"]
    assert call["toolName"] == "finder" and call["providerExecuted"] and not call.get("invalid")
    assert len(scene.bodies_sent_to(vendor)) == 1


@pytest.mark.parametrize("op", ["text", "stream"])
def test_a_search_switched_on_by_an_option_shows_its_sources_alone(scene: Scene, major: int, op: str) -> None:
    scene.script("anthropic", Say("News of today.", source=SOURCE))
    options = {"llmgateway": {"web_search": True}}
    result = scene.sdks[major].run(op, able("anthropic"), prompt="News?", providerOptions=options)
    assert result.get("error") is None and [source["url"] for source in result["sources"]] == [SOURCE]
    assert result["toolCalls"] == []


@pytest.mark.parametrize("op", ["text", "stream"])
def test_options_without_counterpart_bring_a_warning(scene: Scene, major: int, op: str) -> None:
    scene.script("openai", Say("Good day."))
    runner = {"vendor": "openai.codeInterpreter"}
    result = scene.sdks[major].run(
        op, able("openai"), prompt="Hello", stopSequences=["END"], seed=7, topK=5, tools={"runner": runner}
    )
    assert result.get("error") is None and result["text"] == "Good day."
    kinds = [(warning["type"], warning.get("feature")) for warning in result["warnings"]]
    named = [("unsupported", name) for name in ("stopSequences", "seed", "topK")]
    assert kinds == [*named, ("unsupported-tool", "tool openai.code_interpreter")]
    assert result["warnings"][3]["tool"]["name"] and not scene.bodies_sent_to("openai")[0].get("tools")


@pytest.mark.parametrize("op", ["text", "stream"])
def test_options_that_a_target_lacks_bring_a_warning(scene: Scene, major: int, op: str) -> None:
    scene.script("openai", Say("Good day."))
    options = {"llmgateway": {"verbosity": "low"}}
    result = scene.sdks[major].run(op, "fake-openai/openai-plain", prompt="Hello", providerOptions=options)
    assert [warning["type"] for warning in result["warnings"]] == ["other"] and "verbosity" in result["warnings"][0][
        "message"
    ]


PREFERENCES = {
    "order, openai": ({"order": ["fake-openai", "fake-anthropic"]}, "openai"),
    "order, anthropic": ({"order": ["fake-anthropic", "fake-openai"]}, "anthropic"),
    "only openai": ({"only": ["fake-openai"]}, "openai"),
    "only anthropic": ({"only": ["fake-anthropic"]}, "anthropic"),
    "the cheapest": ({"sort": "cost"}, "anthropic"),
}


@pytest.mark.parametrize("op", ["text", "stream"])
@pytest.mark.parametrize("case", PREFERENCES)
def test_the_sdks_own_options_choose_the_provider(scene: Scene, major: int, case: str, op: str) -> None:
    options, chosen = PREFERENCES[case]
    for vendor in ("openai", "anthropic"):
        scene.script(vendor, Say("Good day."))
    result = scene.sdks[major].run(op, "common", prompt="Hello", providerOptions={"gateway": options})
    assert result.get("error") is None and result.get("errors", []) == [] and result["text"] == "Good day."
    assert result["providerMetadata"]["llmgateway"]["used_provider"] == f"fake-{chosen}"
    assert {vendor: len(scene.bodies_sent_to(vendor)) for vendor in ("openai", "anthropic")}[chosen] == 1


@pytest.mark.parametrize("op", ["text", "stream"])
def test_without_a_provider_of_the_sdks_own_options_there_is_an_error(scene: Scene, major: int, op: str) -> None:
    options = {"gateway": {"only": ["fake-google"]}}
    result = scene.sdks[major].run(op, "common", prompt="Hello", providerOptions=options)
    error = result.get("error") or result["errors"][0]
    assert "common" in str(error)


# Case → class, status and isRetryable of the error; the SDK's own texts replace the gateway's where it has some.
ERRORS = {
    "wrong key": ("GatewayAuthenticationError", 401, False),
    "bad option": ("GatewayInvalidRequestError", 400, False),
    "unknown model": ("GatewayModelNotFoundError", 404, False),
    "smart": ("GatewayInvalidRequestError", 400, False),
    "rate limited": ("GatewayRateLimitError", 429, True),
    "broken": ("GatewayInternalServerError", 502, True),
    "overloaded": ("GatewayInternalServerError", 529, True),
}


@pytest.mark.parametrize("op", ["text", "stream"])
@pytest.mark.parametrize("case", ERRORS)
def test_every_error_is_of_its_class(scene: Scene, major: int, case: str, op: str) -> None:
    name, status, retryable = ERRORS[case]
    statuses = {"rate limited": 429, "broken": 500, "overloaded": 503}
    scene.script("openai", *[Say(broken=statuses[case])] * 4 if case in statuses else [])
    model = {"unknown model": "fake-openai/nothing", "smart": "smart"}.get(case, able("openai"))
    options = {"temperature": 3} if case == "bad option" else {}
    key = "llmgtwy_unknown_to_everybody_0000000000000000" if case == "wrong key" else ""
    result = scene.sdks[major].run(op, model, prompt="Hello", key=key, **options)
    error = result.get("error") or result["errors"][0]
    while "cause" in error and "statusCode" not in error:
        error = error["cause"]
    if case == "wrong key" and "statusCode" not in error:
        assert "nauthenticated" in error["text"] or error["name"] == name  # the SDK shows its own text
        return
    assert (error["name"], error["statusCode"], error["isRetryable"]) == (name, status, retryable)


def test_a_cut_upstream_never_looks_whole(scene: Scene, major: int, vendor: str) -> None:
    scene.script(vendor, Say("Good day to you and all of yours.", cut=900 if vendor != "google" else 600))
    result = scene.sdks[major].run("stream", able(vendor), prompt="Hello")
    assert result["finishReason"] == "error" and result["errors"] and "error" in result["parts"]


def test_an_aborted_stream_is_closed_at_the_provider_and_leaves_one_row(scene: Scene, major: int) -> None:
    before = len({row[0] for row in scene.rows()})
    scene.script("openai", Say("Good day. " * 400, piece=4, fragment=16))
    began = time.monotonic()
    answer = scene.sdks[major].run("abortStream", able("openai"), prompt="Hello", afterMs=300)
    assert not answer.get("whole")
    aborted = time.monotonic()
    rows = scene.rows(before + 1)
    assert time.monotonic() - aborted < 0.5 + PATIENCE and aborted - began < 5
    assert len({row[0] for row in rows}) == before + 1 and rows[-1][2] == "client_disconnect"


def test_an_aborted_plain_call_is_read_on_for_its_usage_and_leaves_one_row(scene: Scene, major: int) -> None:
    """The provider bills an answer in one piece, whether the caller waits for it or not."""
    before = len({row[0] for row in scene.rows()})
    scene.script("openai", Say("Good day. " * 400, silence_s=2))
    answer = scene.sdks[major].run("abort", able("openai"), prompt="Hello", afterMs=300)
    assert not answer.get("whole")
    rows = scene.rows(before + 1)
    assert len({row[0] for row in rows}) == before + 1 and rows[-1][2] == "client_disconnect" and rows[-1][3] > 0


def test_the_models_and_credits_of_a_key_are_listed(scene: Scene, major: int) -> None:
    listed = scene.sdks[major].run("models")["models"]
    known = {entry["id"]: entry for entry in listed}
    entry = known[able("openai")]
    assert entry["pricing"]["input"] == "0.000001" and entry["pricing"]["output"] == "0.000002"
    assert entry["specification"]["specificationVersion"] == f"v{ {5: 2, 6: 3, 7: 4}[major] }"
    assert not {"auto", "smart", "openai-able"} & set(known)
    credits = scene.sdks[major].run("credits")
    assert 0 < float(credits["balance"]) <= 100 and float(credits["totalUsed"]) >= 0


@pytest.mark.parametrize("prefix", list(PREFIXES.values()))
def test_a_list_of_another_version_is_refused_by_the_sdk_itself(scene: Scene, major: int, prefix: str) -> None:
    result = scene.sdks[major].run("models", prefix=prefix)
    assert ("models" in result) is (prefix == PREFIXES[major])


@pytest.mark.parametrize("op", ["text", "stream"])
def test_the_sdks_own_list_of_models_is_tried_in_order(scene: Scene, major: int, op: str) -> None:
    """The provider of the first model fails, later it is in cooldown."""
    scene.script("responses", *[Say(broken=500)] * 4)
    scene.script("google", Say("Good day."))
    options = {"gateway": {"models": [able("google"), able("anthropic")]}}
    result = scene.sdks[major].run(op, able("responses"), prompt="Hello", providerOptions=options)
    assert result.get("error") is None and result.get("errors", []) == [] and result["text"] == "Good day."
    own = result["providerMetadata"]["llmgateway"]
    assert (own["used_provider"], own["used_model"]) == ("fake-google", "google-able")
    scene.script("responses")
