"""Bodies of callers who speak this format themselves, with what the target would refuse changed in place. Members
that the neutral form lacks stay.

Values below the top level of a native body are shared with the parsed request. A body that needs a change is decoded
again, which costs nothing where no change is needed.
"""

from typing import Any

from msgspec import json

from gateway.dialects.anthropic import THINKING
from gateway.errors import ContentNeeded
from gateway.neutral.chat import ChatRequest, Conversation, WebSearch
from gateway.neutral.parts import Media
from gateway.neutral.request import Native
from gateway.providers.anthropic import host_rules
from gateway.providers.anthropic.conversation import OPENING
from gateway.providers.anthropic.request import SAMPLING, has_fixed_sampling, write_sampling
from gateway.providers.anthropic.thinking import ADAPTIVE, BUDGET, forms_of, write_thinking
from gateway.providers.anthropic.turns import place_instructions, results_first
from gateway.providers.protocol import Target

Body = dict[str, Any]
RESULT = "tool_result"
SEARCH = "web_search_"  # the beginning of the types of its versions


def takes_whole(native: Native, request: ChatRequest, target: Target) -> bool:
    """Return whether the target takes a native body as it is."""
    body = native.body
    if native.instructed or native.adapted or ("temperature" in body and "top_p" in body):
        return False
    if request.requirements.media and not host_rules.takes_addresses(target):
        return False
    if not _takes_thinking(body, target):
        return False
    # Models with fixed sampling accept temperature 1, which is their only value.
    fixed_names = [name for name in SAMPLING if name in body and (name, body[name]) != ("temperature", 1)]
    return not (fixed_names and has_fixed_sampling(target))


def mend(native: Native, request: ChatRequest, target: Target, warnings: list[str]) -> Body:
    """Return the body as the target takes it. ContentNeeded for media at addresses that the host does not load."""
    body: Body = json.decode(json.encode(native.body))
    if native.instructed:
        _place_instructions(body, target)
    if request.requirements.media and not host_rules.takes_addresses(target):
        for turn in body["messages"]:
            _load(turn["content"], request.contents or {})
    conversation = request.conversation()
    for name in SAMPLING:
        body.pop(name, None)
    config = body.get("output_config") or {}
    body["output_config"] = {name: value for name, value in config.items() if name != "effort"}
    write_sampling(conversation, target, body, warnings)
    _fit_tools(body, conversation)
    _fit_thinking(body, conversation, target, warnings)
    if not body["output_config"]:
        del body["output_config"]
    return body


def _place_instructions(body: Body, target: Target) -> None:
    """Place the instructions among the messages, which begin with a user turn."""
    front, messages = place_instructions(body["messages"], host_rules.takes_instructions(target))
    results_first(messages)
    if front:
        body["system"] = [*_system_of(body), *front]
    if not messages:
        messages = [{"role": "user", "content": body.pop("system")}]
    if messages[0]["role"] == "assistant":
        messages.insert(0, {"role": "user", "content": OPENING})
    body["messages"] = messages


def _fit_thinking(body: Body, conversation: Conversation, target: Target, warnings: list[str]) -> None:
    """Write the thinking that the model takes; further members of the caller's own stay."""
    thinking = body.pop("thinking", None)
    write_thinking(body, conversation.reasoning, target, warnings)
    if thinking and thinking.get("type") == body.get("thinking", {}).get("type"):
        body["thinking"] = thinking | body["thinking"]


def _fit_tools(body: Body, conversation: Conversation) -> None:
    """Remove what the model lacks: a web search that is only offered, and the option of one call at a time."""
    if body.get("tool_choice") and conversation.sampling.parallel_tool_calls is None:
        body["tool_choice"].pop("disable_parallel_tool_use", None)
    if body.get("tools") and not any(isinstance(tool, WebSearch) for tool in conversation.tools):
        _drop_search(body)


def _drop_search(body: Body) -> None:
    """Remove a web search that the request only offers, for a model without one."""
    body["tools"] = [tool for tool in body["tools"] if not str(tool.get("type") or "").startswith(SEARCH)]
    if not body["tools"]:
        del body["tools"]
        body.pop("tool_choice", None)


def _load(content: Any, contents: dict[str, Media]) -> None:
    """Replace the addresses of images and documents by their contents. ContentNeeded for an address without any."""
    for block in content if isinstance(content, list) else ():
        source = block.get("source")
        if isinstance(source, dict) and source.get("type") == "url":
            media = contents.get(source["url"])
            if media is None:
                raise ContentNeeded("This provider does not load URLs; send the content as base64.", param="messages")
            block["source"] = {"type": "base64", "media_type": media.media_type, "data": media.data}
        _load(block.get("content"), contents)


def _system_of(body: Body) -> list[Body]:
    system = body.get("system") or []
    return [{"type": "text", "text": system}] if isinstance(system, str) else system


def _takes_thinking(body: Body, target: Target) -> bool:
    """Return whether the model supports the requested effort and form of thinking with this conversation."""
    if getattr(body.get("output_config"), "effort", None) and not target.mapping.reasoning_efforts:
        return False
    thinking = body.get("thinking")
    if thinking is None:
        return True
    forms = forms_of(target)
    adaptive = getattr(thinking, "__struct_config__", None)
    if getattr(thinking, "budget_tokens", None) is not None:
        return forms != ADAPTIVE and not _lacks_thinking(body["messages"])
    return not (adaptive is not None and adaptive.tag == "adaptive" and forms == BUDGET)


def _lacks_thinking(messages: list[Any]) -> bool:
    """Return whether results answer calls of a turn without thinking, as that of another model."""
    if len(messages) < 2:
        return False
    answered = _first_type(messages[-1]) == RESULT
    return answered and _first_type(messages[-2]) not in THINKING


def _first_type(message: Any) -> str:
    content = message.content
    if not isinstance(content, list) or not content:
        return "text"
    first = content[0]
    return first["type"] if isinstance(first, dict) else first.__struct_config__.tag
