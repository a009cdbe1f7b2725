"""Agents of each surface: they take an answer as it came and send it back in its own format with the results of its
calls, as SDKs and coding agents do."""

import json
from typing import Any, ClassVar

from contract.cases import PNG
from contract.views import events_of, fold

from gateway.dialects.aisdk import OWN_NAMESPACE

Json = dict[str, Any]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
# Names that the format of a surface takes and some vendors refuse.
DOTTED = "mcp__weather_of_all_cities_of_the_world_in_this_century__forecast.v2:daily"
LONG = "mcp__weather_of_all_cities_of_the_world_in_this_century__forecast_of_each_day_and_night"
DATA_URL = f"data:image/png;base64,{PNG}"
THOUGHTS = ("thought", "thought of one model", "thought before text", "failover with thought")
REMINDER = "<reminder>Two files changed.</reminder>"


class Agent:
    """A conversation with a model over one surface. `body` is the next request without its model."""

    surface = ""
    name = ""  # of this way to hold a session over the surface, where there are several
    instructs = True  # the surface has system messages within a conversation
    custom = False  # it has free-text tools
    features: tuple[str, ...] = ()  # that set this way apart from others; all of them if there are none
    long_name = DOTTED

    def __init__(self, feature: str, names: tuple[str, ...]) -> None:
        self.feature = feature
        self.body = self.open(names)

    def open(self, names: tuple[str, ...]) -> Json:
        raise NotImplementedError

    def take(self, reply: Json) -> None:
        """Add an answer and the results of its calls, or a next question of the user."""
        raise NotImplementedError

    def instruct(self, text: str) -> None:
        self.turns.append({"role": "system", "content": text})

    @property
    def turns(self) -> list[Any]:
        return self.body[self.place]

    place = "messages"

    def fold(self, raw: bytes) -> Json:
        return fold(self.surface, raw)


class ChatAgent(Agent):
    surface = "chat"
    custom = True

    def open(self, names: tuple[str, ...]) -> Json:
        content: Any = "Weather?"
        if self.feature == "images":
            content = [{"type": "text", "text": "Weather?"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
        tools: list[Json] = [{"type": "function", "function": {"name": name, "parameters": WEATHER}} for name in names]
        if self.feature == "custom tool":
            tools.append({"type": "custom", "custom": {"name": "patch", "description": "Patches."}})
        start = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
        return {"messages": start, "tools": tools, **({"reasoning_effort": "medium"} if self.thinks else {})}

    @property
    def thinks(self) -> bool:
        return "thought" in self.feature

    def take(self, reply: Json) -> None:
        message = reply["choices"][0]["message"]
        self.turns.append({name: value for name, value in message.items() if value is not None})
        calls = message.get("tool_calls") or ()
        late = {"role": "user", "content": "Hurry."}
        if self.feature == "question before results" and calls:
            self.turns.append(late)
        for call in calls:
            self.turns.append({"role": "tool", "tool_call_id": call["id"], "content": "Rain."})
        if not calls:
            self.turns.append({"role": "user", "content": "Go on."})


class PlainChatAgent(ChatAgent):
    """Keeps what OpenAI's format has, as most clients do: no thought, and no signature."""

    name = "plain chat"
    features = THOUGHTS

    def take(self, reply: Json) -> None:
        message = reply["choices"][0]["message"]
        calls = [
            {name: value for name, value in call.items() if name != "extra_content"}
            for call in message.get("tool_calls") or ()
        ]
        kept = {"role": "assistant", "content": message.get("content"), "tool_calls": calls or None}
        super().take({"choices": [{"message": kept}]})


class MessagesAgent(Agent):
    surface = "messages"
    long_name = LONG

    def open(self, names: tuple[str, ...]) -> Json:
        content: Any = "Weather?"
        if self.feature == "images":
            content = [{"type": "text", "text": "Weather?"}, self.picture]
        tools = [{"name": name, "input_schema": WEATHER} for name in names]
        body: Json = {"max_tokens": 8000, "system": "Be brief.", "messages": [{"role": "user", "content": content}]}
        if "thought" in self.feature:
            body["thinking"] = {"type": "enabled", "budget_tokens": 2000}
        return body | {"tools": tools}

    picture: ClassVar[Json] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}

    def take(self, reply: Json) -> None:
        self.turns.append({"role": "assistant", "content": reply["content"]})
        found: Any = "Rain."
        if self.feature == "images":
            found = [{"type": "text", "text": "Rain."}, self.picture]
        results: list[Json] = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": found}
            for block in reply["content"]
            if block["type"] == "tool_use"
        ]
        if results and self.feature == "question before results":
            results.insert(0, {"type": "text", "text": "Hurry."})
        self.turns.append({"role": "user", "content": results or "Go on."})


class PlainMessagesAgent(MessagesAgent):
    """Leaves out all thinking."""

    name = "plain messages"
    features = THOUGHTS

    def take(self, reply: Json) -> None:
        kept = [
            {name: value for name, value in block.items() if name != "signature"}
            for block in reply["content"]
            if block["type"] in ("text", "tool_use")
        ]
        super().take({"content": kept})


class ResponsesAgent(Agent):
    surface = "responses"
    custom = True
    place = "input"

    def open(self, names: tuple[str, ...]) -> Json:
        content: Any = "Weather?"
        if self.feature == "images":
            content = [{"type": "input_text", "text": "Weather?"}, self.picture]
        tools: list[Json] = [
            {"type": "function", "name": name, "parameters": WEATHER, "strict": False} for name in names
        ]
        if self.feature == "custom tool":
            tools.append({"type": "custom", "name": "patch", "description": "Patches."})
        thought = {"reasoning": {"effort": "medium", "summary": "auto"}} if "thought" in self.feature else {}
        return {
            "instructions": "Be brief.",
            "input": [{"role": "user", "content": content}],
            "tools": tools,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            **thought,
        }

    picture: ClassVar[Json] = {"type": "input_image", "image_url": DATA_URL, "detail": "low"}

    def instruct(self, text: str) -> None:
        part = {"type": "input_text", "text": text}
        self.turns.append({"type": "message", "role": "developer", "content": [part]})

    def take(self, reply: Json) -> None:
        self.turns.extend(reply["output"])
        calls = [item for item in reply["output"] if item["type"] in ("function_call", "custom_tool_call")]
        if calls and self.feature == "question before results":
            self.turns.append({"role": "user", "content": "Hurry."})
        found: Any = "Rain."
        if self.feature == "images":
            found = [{"type": "input_text", "text": "Rain."}, self.picture]
        for call in calls:
            kind = f"{call['type']}_output"
            self.turns.append({"type": kind, "call_id": call["call_id"], "output": found})
        if not calls:
            self.turns.append({"role": "user", "content": "Go on."})

    def fold(self, raw: bytes) -> Json:
        """Return the response of the closing event: items of parallel calls may end in another order."""
        if raw[:1] == b"{":
            return json.loads(raw)
        name, last = events_of(raw)[-1]
        return last if name == "error" else last["response"]


class StoredResponsesAgent(ResponsesAgent):
    """Sends what is new, and the id of the last response, which the gateway stores."""

    name = "stored responses"

    def open(self, names: tuple[str, ...]) -> Json:
        body = super().open(names)
        return {name: value for name, value in body.items() if name != "include"} | {"store": True}

    def take(self, reply: Json) -> None:
        self.body |= {"input": [], "previous_response_id": reply["id"]}
        super().take(reply)
        del self.turns[: len(reply["output"])]


class GeminiAgent(Agent):
    surface = "gemini"
    instructs = False
    place = "contents"

    def open(self, names: tuple[str, ...]) -> Json:
        parts: list[Json] = [{"text": "Weather?"}]
        if self.feature == "images":
            parts.append({"inlineData": {"mimeType": "image/png", "data": PNG}})
        body: Json = {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": parts}],
            "tools": [{"functionDeclarations": [{"name": name, "parametersJsonSchema": WEATHER} for name in names]}],
        }
        if "thought" in self.feature:
            body["generationConfig"] = {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 2000}}
        return body

    def take(self, reply: Json) -> None:
        content = reply["candidates"][0]["content"]
        self.turns.append(content)
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        results: list[Json] = [
            {
                "functionResponse": {
                    **{name: call[name] for name in ("id", "name") if name in call},
                    "response": {"output": "Rain."},
                }
            }
            for call in calls
        ]
        if results and self.feature == "question before results":
            results.insert(0, {"text": "Hurry."})
        self.turns.append({"role": "user", "parts": results or [{"text": "Go on."}]})

    def fold(self, raw: bytes) -> Json:
        if raw[:1] == b"{":
            return json.loads(raw)
        whole: Json = {}
        parts: list[Json] = []
        for _, event in events_of(raw.replace(b"\r\n", b"\n")):
            if "error" in event:
                return event
            whole |= event
            for candidate in event.get("candidates") or ():
                for part in candidate.get("content", {}).get("parts") or ():
                    _join(parts, part)
        return {**whole, "candidates": [{"content": {"role": "model", "parts": parts}}]}


def _join(parts: list[Json], part: Json) -> None:
    """Add a part of a stream; texts of one kind are joined up to a signature, as clients do."""
    last = parts[-1] if parts else {}
    joined = "text" in part and "text" in last and "thoughtSignature" not in last
    if joined and part.get("thought") == last.get("thought"):
        parts[-1] = {**last, **part, "text": last["text"] + part["text"]}
    elif part.get("text") != "" or "thoughtSignature" in part:
        parts.append(part)


class PlainGeminiAgent(GeminiAgent):
    """Leaves out all thoughts, and the signatures of other parts."""

    name = "plain gemini"
    features = THOUGHTS

    def take(self, reply: Json) -> None:
        content = reply["candidates"][0]["content"]
        kept = [
            {name: value for name, value in part.items() if name != "thoughtSignature"}
            for part in content["parts"]
            if not part.get("thought")
        ]
        super().take({"candidates": [{"content": {**content, "parts": kept}}]})


class SdkAgent(Agent):
    """The SDK's major version 7."""

    surface = "ai4"
    place = "prompt"
    thought: ClassVar[Json] = {"reasoning": "medium"}

    def open(self, names: tuple[str, ...]) -> Json:
        content: list[Json] = [{"type": "text", "text": "Weather?"}]
        if self.feature == "images":
            content.append(self.picture)
        tools = [{"type": "function", "name": name, "inputSchema": WEATHER} for name in names]
        start = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
        return {"prompt": start, "tools": tools, **(self.thought if "thought" in self.feature else {})}

    picture: ClassVar[Json] = {"type": "file", "mediaType": "image/png", "data": {"type": "data", "data": PNG}}
    found_picture = picture  # in the result of a tool

    def take(self, reply: Json) -> None:
        said = [_returned(part) for part in reply["content"] if part["type"] not in ("source", "file")]
        calls = [part for part in said if part["type"] == "tool-call"]
        output: Json = {"type": "text", "value": "Rain."}
        if self.feature == "images":
            output = {"type": "content", "value": [{"type": "text", "text": "Rain."}, self.found_picture]}
        results = [
            {"type": "tool-result", "toolCallId": call["toolCallId"], "toolName": call["toolName"], "output": output}
            for call in calls
        ]
        self.turns.append({"role": "assistant", "content": said})
        if results and self.feature == "question before results":
            self.turns.append({"role": "user", "content": [{"type": "text", "text": "Hurry."}]})
        following = {"role": "tool", "content": results}
        if not results:
            following = {"role": "user", "content": [{"type": "text", "text": "Go on."}]}
        self.turns.append(following)


class Sdk6Agent(SdkAgent):
    surface = "ai3"
    thought: ClassVar[Json] = {"providerOptions": {OWN_NAMESPACE: {"reasoning_effort": "medium"}}}
    picture: ClassVar[Json] = {"type": "file", "mediaType": "image/*", "data": DATA_URL}
    found_picture: ClassVar[Json] = {"type": "image-data", "mediaType": "image/png", "data": PNG}


class Sdk5Agent(Sdk6Agent):
    surface = "ai2"
    found_picture: ClassVar[Json] = {"type": "media", "mediaType": "image/png", "data": PNG}


class CohereAgent(Agent):
    """Calls are taken without their thought, for which an answer's `tool_plan` and blocks have no signature."""

    surface = "cohere"

    def open(self, names: tuple[str, ...]) -> Json:
        content: Any = "Weather?"
        if self.feature == "images":
            content = [{"type": "text", "text": "Weather?"}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
        tools = [{"type": "function", "function": {"name": name, "parameters": WEATHER}} for name in names]
        start = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
        thinking = {"thinking": {"type": "enabled", "token_budget": 2000}} if "thought" in self.feature else {}
        return {"messages": start, "tools": tools, **thinking}

    def take(self, reply: Json) -> None:
        message = reply["message"]
        self.turns.append({name: value for name, value in message.items() if value and name != "citations"})
        calls = message.get("tool_calls") or ()
        if self.feature == "question before results" and calls:
            self.turns.append({"role": "user", "content": "Hurry."})
        for call in calls:
            self.turns.append({"role": "tool", "tool_call_id": call["id"], "content": "Rain."})
        if not calls:
            self.turns.append({"role": "user", "content": "Go on."})

    def fold(self, raw: bytes) -> Json:
        if raw[:1] == b"{":
            body = json.loads(raw)
            return {"error": body} if isinstance(body.get("message"), str) else body
        blocks: dict[int, Json] = {}
        calls: dict[int, Json] = {}
        message: Json = {"role": "assistant", "tool_plan": ""}
        for _, event in events_of(raw):
            delta = (event.get("delta") or {}).get("message") or {}
            message["tool_plan"] += delta.get("tool_plan") or ""
            content = delta.get("content")
            if isinstance(content, dict):
                block = blocks.setdefault(event["index"], {"type": content.get("type")})
                for name in content.keys() & {"text", "thinking"}:
                    block[name] = block.get(name, "") + content[name]
            if event["type"] == "tool-call-start":
                calls[event["index"]] = delta["tool_calls"]
            elif event["type"] == "tool-call-delta":
                call = calls[event["index"]]["function"]
                call["arguments"] += delta["tool_calls"]["function"]["arguments"]
        return {"message": {**message, "tool_calls": [*calls.values()], "content": [*blocks.values()]}}


def _returned(part: Json) -> Json:
    """Return a part of an answer as the SDK sends it back: metadata comes back as options."""
    kept = {name: value for name, value in part.items() if name not in ("providerMetadata", "input")}
    if "providerMetadata" in part:
        kept["providerOptions"] = part["providerMetadata"]
    if part["type"] == "tool-call":
        kept["input"] = json.loads(part["input"] or "{}")
    return kept


AGENTS: dict[str, type[Agent]] = {
    agent.name or agent.surface: agent
    for agent in (
        *(ChatAgent, MessagesAgent, ResponsesAgent, StoredResponsesAgent, GeminiAgent, CohereAgent),
        *(Sdk5Agent, Sdk6Agent, SdkAgent, PlainChatAgent, PlainMessagesAgent, PlainGeminiAgent),
    )
}
