"""Parts that the contract cases of the three surfaces share, and functions that continue a conversation."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from contract.vendors import SOURCE, Say

Json = dict[str, Any]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKMSAwIG9iago8PD4+CmVuZG9iagp0cmFpbGVyCjw8Pj4KJSVFT0YK"
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
IMAGE_URL = "https://pictures.example/cat.png"
PLACE = {"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}}, "required": ["city"]}
PLACE["$defs"] = {"city": {"type": "string", "minLength": 1}}
ANSWER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
OSLO, ROME, LIMA = (f'{{"city": "{name}"}}' for name in ("Oslo", "Rome", "Lima"))

HELLO = Say("Good day to you.")
CALLS = Say(tools=(("weather", OSLO),))
THREE = Say(tools=(("weather", OSLO), ("weather", ROME), ("clock", LIMA)), piece=1, fragment=7)
THOUGHT = Say(thinking="I must look.", sealed="gAAAsealed==", tools=(("weather", OSLO),))
JSON = Say('{"city": "Oslo", "people": 700000}')
SEARCHED = Say("News of today.", source=SOURCE)


@dataclass(frozen=True)
class Case:
    """A request of the contract and the answers that the vendor's fake gives to it.

    `body` lacks the model. Each further item of `says` continues the conversation by one turn, which sends the answer
    unchanged and the results of its calls, made from `result`. `streams` is False where the stream differs from the
    whole answer. `faulty` means that every vendor refuses the request, and the caller receives the reason."""

    body: Json
    says: tuple[Say, ...] = (HELLO,)
    result: Any = "Rain."
    streams: bool = True
    faulty: bool = False


GoOn = Callable[[Json, Json, Any], Json]


def go_on_chat(body: Json, reply: Json, result: Any) -> Json:
    """The next turn's body. `reply` is the whole answer."""
    message = reply["choices"][0]["message"]
    kept = ("role", "content", "tool_calls", "refusal", "reasoning", "reasoning_details")
    said = {"role": "assistant"} | {name: message[name] for name in kept if message.get(name) is not None}
    calls = message.get("tool_calls") or ()
    results: list[Json] = [{"role": "tool", "tool_call_id": call["id"], "content": result} for call in calls]
    return body | {"messages": [*body["messages"], said, *(results or [{"role": "user", "content": "Go on."}])]}


def go_on_messages(body: Json, reply: Json, result: Any) -> Json:
    calls = [block for block in reply["content"] if block["type"] == "tool_use"]
    results: list[Json] = [{"type": "tool_result", "tool_use_id": call["id"], "content": result} for call in calls]
    content: Any = results or "Go on."
    said = {"role": "assistant", "content": reply["content"]}
    return body | {"messages": [*body["messages"], said, {"role": "user", "content": content}]}


def go_on_responses(body: Json, reply: Json, result: Any) -> Json:
    before = body["input"]
    items = [{"role": "user", "content": before}] if isinstance(before, str) else before
    said = reply["output"]
    calls = [item for item in said if item["type"] == "function_call"]
    results: list[Json] = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": result} for call in calls
    ]
    return body | {"input": [*items, *said, *(results or [{"role": "user", "content": "Go on."}])]}


def go_on_ai(body: Json, reply: Json, result: Any) -> Json:
    """As the SDK does: metadata comes back as options, what the provider ran in one message with its result."""
    said: list[Json] = []
    for part in reply["content"]:
        kept = {name: value for name, value in part.items() if name not in ("providerMetadata", "input", "result")}
        if "providerMetadata" in part:
            kept["providerOptions"] = part["providerMetadata"]
        if part["type"] == "tool-call":
            kept["input"] = json.loads(part["input"] or "{}")
        elif part["type"] == "tool-result":
            kept["output"] = {"type": "json", "value": part["result"]}
        if part["type"] not in ("source", "file"):
            said.append(kept)
    calls = [part for part in said if part["type"] == "tool-call" and not part.get("providerExecuted")]
    results: list[Json] = [
        {"type": "tool-result", "toolCallId": call["toolCallId"], "toolName": call["toolName"], "output": result}
        for call in calls
    ]
    following = [{"role": "tool", "content": results}]
    if not results:
        following = [{"role": "user", "content": [{"type": "text", "text": "Go on."}]}]
    return body | {"prompt": [*body["prompt"], {"role": "assistant", "content": said}, *following]}


GO_ON: dict[str, GoOn] = {
    "chat": go_on_chat,
    "messages": go_on_messages,
    "responses": go_on_responses,
    **dict.fromkeys(("ai2", "ai3", "ai4"), go_on_ai),
}
