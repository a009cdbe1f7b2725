"""The contract's cases in the protocol of the AI SDK, as clients of each specification version say them."""

from typing import Any

from contract.cases import (
    ANSWER,
    CALLS,
    HELLO,
    IMAGE_URL,
    JSON,
    PDF,
    PLACE,
    PNG,
    SEARCHED,
    THOUGHT,
    THREE,
    WAV,
    Case,
    Json,
)  # fmt: skip
from contract.vendors import Say

VERSIONS = {"ai2": 2, "ai3": 3, "ai4": 4}
# The cases cover the differences between the versions and the features that every client uses each day.
STEPS = (
    "text", "tool loop", "parallel calls", "image from a tool", "image as bytes", "PDF", "sound by URL", "search",
    "reasoning in a tool loop", "schema", "length", "unmappable tool", "denied tool", "status 400", "status 429",
)  # fmt: skip


def said(content: Any, role: str = "user", **more: Any) -> Json:
    return {"role": role, "content": [text(content)] if isinstance(content, str) else content, **more}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def system_message(words: str, **more: Any) -> Json:
    return {"role": "system", "content": words, **more}


def request(content: Any = "Hello", **more: Any) -> Json:
    return {"prompt": [said(content)], **more}


def tool(name: str, **more: Any) -> Json:
    return {"type": "function", "name": name, "description": "Tells it.", "inputSchema": PLACE, **more}


def own(**options: Any) -> Json:
    return {"providerOptions": {"llmgateway": options, "somebody": {"else": 1}}}


def cached(ttl: str = "") -> Json:
    control = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    return {"providerOptions": {"anthropic": {"cacheControl": control}}}


def call(ident: str, name: str, tool_input: Any) -> Json:
    return {"type": "tool-call", "toolCallId": ident, "toolName": name, "input": tool_input}


def result(ident: str, name: str, output: Json) -> Json:
    return {"type": "tool-result", "toolCallId": ident, "toolName": name, "output": output}


RAIN = {"type": "text", "value": "Rain."}
TOOLS = {"tools": [tool("weather"), tool("clock")], "toolChoice": {"type": "auto"}}
PAST = [
    said("Weather?"),
    said([call("call_a", "weather", {}), call("call_b", "clock", {"city": "Rome"})], "assistant"),
    said([result("call_b", "clock", {"type": "json", "value": {"hour": 12}})], "tool"),
    said([result("call_a", "weather", {"type": "error-text", "value": "No sky."})], "tool"),
    said("And then?"),
]
SEARCH_PAST = [
    said("News?"),
    said(
        [
            {**call("ws_1", "finder", {"query": "news"}), "providerExecuted": True},
            result("ws_1", "finder", {"type": "json", "value": []}),
            text("Nothing new."),
        ],
        "assistant",
    ),
    said("Sure?"),
]
SCHEMA = {"responseFormat": {"type": "json", "schema": ANSWER, "name": "city"}}
WHERE = {"type": "approximate", "city": "Oslo", "country": "NO"}


def cases(version: int) -> dict[str, Case]:
    """All of them in the words of a version."""

    def tagged(data: str, kind: str = "data") -> Any:
        return {"type": kind, kind: data} if version == 4 else data

    def file(data: str, media: str, kind: str = "data", **more: Any) -> Json:
        return {"type": "file", "mediaType": media, "data": tagged(data, kind), **more}

    def vendors(ident: str, name: str, **args: Any) -> Json:
        kind = "provider-defined" if version == 2 else "provider"
        return {"type": kind, "id": ident, "name": name, "args": args}

    media = {
        2: {"type": "media", "data": PNG, "mediaType": "image/png"},
        3: {"type": "image-data", "data": PNG, "mediaType": "image/png"},
        4: file(PNG, "image/png"),
    }[version]
    # A client of version 2 has no word for a tool that was not allowed to run.
    denial = {"type": "execution-denied", "reason": "Not today."}
    denied = {"type": "text", "value": "Not today."} if version == 2 else denial
    wild = "image" if version == 4 else "image/*"
    search = vendors("openai.web_search", "finder", searchContextSize="low", userLocation=WHERE)
    data_url = f"data:image/png;base64,{PNG}"
    pictures = {"image as bytes": PNG if version == 4 else data_url, "image as base64": PNG}
    return {
        "text": Case(request(), (HELLO, Say("Still here."))),
        "cached prompt": Case(request(), (Say("Good day.", cached=9),)),
        "system": Case(
            {"prompt": [system_message("Be brief."), said("Hello"), system_message("Now be loud."), said("Again")]}
        ),
        "odd role order": Case(
            {"prompt": [said("I spoke first.", "assistant"), said("One."), said("Two."), said("", "assistant")]}
        ),
        "tool loop": Case(request(**TOOLS), (CALLS, HELLO), RAIN),
        "past calls": Case({"prompt": PAST, **TOOLS}),
        "past search": Case({"prompt": SEARCH_PAST}),
        "parallel calls": Case(request(**TOOLS), (THREE, HELLO), RAIN),
        "text and calls": Case(request(**TOOLS), (Say("Let me see.", (("weather", "{}"),)), HELLO), RAIN),
        "must call": Case(request(**TOOLS | {"toolChoice": {"type": "required"}}), (CALLS,)),
        "must call one": Case(request(**TOOLS | {"toolChoice": {"type": "tool", "toolName": "clock"}}), (CALLS,)),
        "must not call": Case(request(**TOOLS | {"toolChoice": {"type": "none"}})),
        "choice without tools": Case(request(toolChoice={"type": "auto"})),
        "tool with examples": Case(
            request(tools=[tool("weather", strict=False, inputExamples=[{"input": {"city": "Oslo"}}])]), (CALLS,)
        ),
        "image from a tool": Case(
            request(**TOOLS), (CALLS, HELLO), {"type": "content", "value": [text("See:"), media]}
        ),
        "denied tool": Case(request(**TOOLS), (CALLS, HELLO), denied),
        "empty result": Case(request(**TOOLS), (CALLS, HELLO), {"type": "text", "value": ""}),
        **{name: Case(request([text("What is it?"), file(data, wild)])) for name, data in pictures.items()},
        "image by URL": Case(request([text("What is it?"), file(IMAGE_URL, wild, "url")])),
        "PDF": Case(request([text("Sum it up."), file(PDF, "application/pdf", filename="paper.pdf")])),
        "sound": Case(request([text("What is it?"), file(WAV, "audio/wav")])),
        "sound by URL": Case(
            request([text("What is it?"), file("https://sounds.example/bell.wav", "audio/wav", "url")])
        ),
        "text as a file": Case(request([text("Sum it up."), file("V29yZHMu", "text/plain", filename="words.txt")])),
        "reasoning in a tool loop": Case(request(**TOOLS, **own(reasoning_effort="high")), (THOUGHT, HELLO), RAIN),
        "reasoning then text": Case(request(reasoning="low"), (Say("Aha.", thinking="Hm."), HELLO)),
        "no reasoning": Case(request(reasoning="none")),
        "provider's reasoning": Case(request(reasoning="provider-default")),
        "schema": Case(request(**SCHEMA), (JSON,)),
        "JSON object": Case(request("Answer in JSON.", responseFormat={"type": "json"}), (JSON,)),
        "schema and tools": Case(request(**TOOLS, **SCHEMA), (CALLS, JSON), RAIN),
        "cache marks": Case(
            {
                "prompt": [
                    system_message("Be brief.", **cached("1h")),
                    said([text("A long text.", **cached()), text("Sum it up.")]),
                    said([text("Well.")], "assistant", **cached()),
                    said("Go on."),
                ],
                "tools": [tool("weather", **cached("1h"))],
            }
        ),
        "options of our own": Case(
            request(
                temperature=0.1, maxOutputTokens=9, **own(temperature=0.9, max_tokens=99, verbosity="low", user="u-1")
            )
        ),
        "refusal": Case(request(), (Say(refusal="I cannot help with that."), HELLO)),
        "length": Case(request(maxOutputTokens=16), (Say("Cut sh", finish="length"),)),
        "filtered": Case(request(), (Say("Half an ans", finish="filter"),)),
        "search": Case(request(tools=[search]), (SEARCHED, HELLO)),
        "must search": Case(request(tools=[search], toolChoice={"type": "tool", "toolName": "finder"}), (SEARCHED,)),
        "search by option": Case(request(**own(web_search=True)), (SEARCHED,)),
        "unmappable tool": Case(
            request(
                tools=[vendors("openai.code_interpreter", "runner", container="auto")],
                toolChoice={"type": "tool", "toolName": "runner"},
                stopSequences=["END"],
                seed=7,
                topK=5,
            )
        ),
        "unknown fields": Case(
            request(
                frobnicate={"a": 1}, includeRawChunks=True, headers={"authorization": "Bearer secret"}, logprobs=True
            )
        ),
        "hot": Case(request(temperature=2, topP=0.9, frequencyPenalty=1, presencePenalty=-1)),
        **{
            f"status {code}": Case(request(), (Say(broken=code),) * 4, streams=False)
            for code in (400, 401, 429, 500, 503)
        },
    }


CASES = cases(4)
OLDER = {name: {step: cases(version)[step] for step in STEPS} for name, version in VERSIONS.items() if version < 4}
