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


def told(words: str, **more: Any) -> Json:
    return {"role": "system", "content": words, **more}


def ask(content: Any = "Hello", **more: Any) -> Json:
    return {"prompt": [said(content)], **more}


def tool(name: str, **more: Any) -> Json:
    return {"type": "function", "name": name, "description": "Tells it.", "inputSchema": PLACE, **more}


def own(**options: Any) -> Json:
    return {"providerOptions": {"llmgateway": options, "somebody": {"else": 1}}}


def cached(ttl: str = "") -> Json:
    control = {"type": "ephemeral", **({"ttl": ttl} if ttl else {})}
    return {"providerOptions": {"anthropic": {"cacheControl": control}}}


def call(ident: str, name: str, given: Any) -> Json:
    return {"type": "tool-call", "toolCallId": ident, "toolName": name, "input": given}


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
        "text": Case(ask(), (HELLO, Say("Still here."))),
        "cached prompt": Case(ask(), (Say("Good day.", cached=9),)),
        "system": Case({"prompt": [told("Be brief."), said("Hello"), told("Now be loud."), said("Again")]}),
        "odd role order": Case(
            {"prompt": [said("I spoke first.", "assistant"), said("One."), said("Two."), said("", "assistant")]}
        ),
        "tool loop": Case(ask(**TOOLS), (CALLS, HELLO), RAIN),
        "past calls": Case({"prompt": PAST, **TOOLS}),
        "past search": Case({"prompt": SEARCH_PAST}),
        "parallel calls": Case(ask(**TOOLS), (THREE, HELLO), RAIN),
        "text and calls": Case(ask(**TOOLS), (Say("Let me see.", (("weather", "{}"),)), HELLO), RAIN),
        "must call": Case(ask(**TOOLS | {"toolChoice": {"type": "required"}}), (CALLS,)),
        "must call one": Case(ask(**TOOLS | {"toolChoice": {"type": "tool", "toolName": "clock"}}), (CALLS,)),
        "must not call": Case(ask(**TOOLS | {"toolChoice": {"type": "none"}})),
        "choice without tools": Case(ask(toolChoice={"type": "auto"})),
        "tool with examples": Case(
            ask(tools=[tool("weather", strict=False, inputExamples=[{"input": {"city": "Oslo"}}])]), (CALLS,)
        ),
        "image from a tool": Case(ask(**TOOLS), (CALLS, HELLO), {"type": "content", "value": [text("See:"), media]}),
        "denied tool": Case(ask(**TOOLS), (CALLS, HELLO), denied),
        "empty result": Case(ask(**TOOLS), (CALLS, HELLO), {"type": "text", "value": ""}),
        **{name: Case(ask([text("What is it?"), file(data, wild)])) for name, data in pictures.items()},
        "image by URL": Case(ask([text("What is it?"), file(IMAGE_URL, wild, "url")])),
        "PDF": Case(ask([text("Sum it up."), file(PDF, "application/pdf", filename="paper.pdf")])),
        "sound": Case(ask([text("What is it?"), file(WAV, "audio/wav")])),
        "sound by URL": Case(ask([text("What is it?"), file("https://sounds.example/bell.wav", "audio/wav", "url")])),
        "text as a file": Case(ask([text("Sum it up."), file("V29yZHMu", "text/plain", filename="words.txt")])),
        "reasoning in a tool loop": Case(ask(**TOOLS, **own(reasoning_effort="high")), (THOUGHT, HELLO), RAIN),
        "reasoning then text": Case(ask(reasoning="low"), (Say("Aha.", thinking="Hm."), HELLO)),
        "no reasoning": Case(ask(reasoning="none")),
        "provider's reasoning": Case(ask(reasoning="provider-default")),
        "schema": Case(ask(**SCHEMA), (JSON,)),
        "JSON object": Case(ask("Answer in JSON.", responseFormat={"type": "json"}), (JSON,)),
        "schema and tools": Case(ask(**TOOLS, **SCHEMA), (CALLS, JSON), RAIN),
        "cache marks": Case(
            {
                "prompt": [
                    told("Be brief.", **cached("1h")),
                    said([text("A long text.", **cached()), text("Sum it up.")]),
                    said([text("Well.")], "assistant", **cached()),
                    said("Go on."),
                ],
                "tools": [tool("weather", **cached("1h"))],
            }
        ),
        "options of our own": Case(
            ask(temperature=0.1, maxOutputTokens=9, **own(temperature=0.9, max_tokens=99, verbosity="low", user="u-1"))
        ),
        "refusal": Case(ask(), (Say(refusal="I cannot help with that."), HELLO)),
        "length": Case(ask(maxOutputTokens=16), (Say("Cut sh", finish="length"),)),
        "filtered": Case(ask(), (Say("Half an ans", finish="filter"),)),
        "search": Case(ask(tools=[search]), (SEARCHED, HELLO)),
        "must search": Case(ask(tools=[search], toolChoice={"type": "tool", "toolName": "finder"}), (SEARCHED,)),
        "search by option": Case(ask(**own(web_search=True)), (SEARCHED,)),
        "unmappable tool": Case(
            ask(
                tools=[vendors("openai.code_interpreter", "runner", container="auto")],
                toolChoice={"type": "tool", "toolName": "runner"},
                stopSequences=["END"],
                seed=7,
                topK=5,
            )
        ),
        "unknown fields": Case(
            ask(frobnicate={"a": 1}, includeRawChunks=True, headers={"authorization": "Bearer secret"}, logprobs=True)
        ),
        "hot": Case(ask(temperature=2, topP=0.9, frequencyPenalty=1, presencePenalty=-1)),
        **{f"status {code}": Case(ask(), (Say(broken=code),) * 4, streams=False) for code in (400, 401, 429, 500, 503)},
    }


CASES = cases(4)
OLDER = {name: {step: cases(version)[step] for step in STEPS} for name, version in VERSIONS.items() if version < 4}
