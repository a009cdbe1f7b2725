"""The messages protocol: builds calls, relays native bodies and classifies failures."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import json, structs
from msgspec.structs import replace

from gateway.dialects import anthropic as dialect
from gateway.dialects.anthropic import THINKING
from gateway.errors import ContentNeeded, ContentRefused, GatewayError, UpstreamRefused
from gateway.neutral.cache_marks import (
    AUTOMATIC,
    DISABLED,
    HOUR,
    SHORT,
    MarkableBlock,
    Ttl,
    choose_places,
    member,
    minimum_bytes,
    size_of,
)
from gateway.neutral.chat import ChatRequest, ChatResult, Conversation, Native, Options, WebSearch
from gateway.neutral.events import Batch
from gateway.neutral.parameters import lost_by
from gateway.neutral.parts import Media
from gateway.providers.anthropic import host_rules
from gateway.providers.anthropic.conversation import OPENING, place_instructions, results_first
from gateway.providers.anthropic.reply import read_result
from gateway.providers.anthropic.request import SAMPLING, has_fixed_sampling, write_body, write_sampling
from gateway.providers.anthropic.stream import AnthropicStreamReader
from gateway.providers.anthropic.thinking import (
    ADAPTIVE,
    BUDGET,
    MIN_BUDGET,
    forms_of,
    without_thinking,
    write_thinking,
)
from gateway.providers.failures import classify, diagnose, explain, read_refusal, retry_after
from gateway.providers.prepared_requests import prepare
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.tool_names import ANTHROPIC

# Applies a project's cache policy to a relayed body, as neutral/cache_marks.py does for a neutral conversation.
#
# Values below the top level are shared with the parsed request and may be structs: a changed value is copied first.

CACHE_CONTROL = "cache_control"
EPHEMERAL_MARK = {"type": "ephemeral"}
HOUR_MARK = {"type": "ephemeral", "ttl": HOUR}
SYSTEM_ROW = "system"
Body = dict[str, Any]


def apply_policy(body: Body, options: Options, prompt_bytes: int, minimum_tokens: int) -> Body:
    """Return the body with the cache marks of the options' policy; a copy if anything changes. `minimum_tokens` as in
    neutral/cache_marks.py."""
    if options.cache_marks == AUTOMATIC:
        return _add_marks(body, prompt_bytes, minimum_bytes(minimum_tokens), options.cache_ttl)
    if options.cache_marks == DISABLED and _is_marked(body):
        return _strip_marks(body)
    return body


def _is_marked(body: Body) -> bool:
    system = body.get("system")
    blocks = list(body.get("tools") or ())
    if isinstance(system, list):
        blocks += system
    for message in body["messages"]:
        for block in _blocks(message):
            blocks += [block, *_blocks(block)]
    return bool(body.get(CACHE_CONTROL)) or any(member(block, CACHE_CONTROL) for block in blocks)


def _add_marks(body: Body, prompt_bytes: int, minimum: int, ttl: Ttl) -> Body:
    system = body.get("system")
    rows = [(SYSTEM_ROW, _rows_of(system))]
    rows += [(member(message, "role"), _rows_of(member(message, "content"))) for message in body["messages"]]
    tools = [life for tool in body.get("tools") or () for life in _lives_of(tool)]
    at_end = next(iter(_lives_of(body)), "")
    places = choose_places(tools, rows, prompt_bytes, minimum, ttl, at_end)
    if not places:
        return body
    messages = [*body["messages"]]
    changed = {**body, "messages": messages}
    for (row, column), life in places.items():
        mark = HOUR_MARK if life == HOUR else EPHEMERAL_MARK
        if row:
            content = member(messages[row - 1], "content")
            messages[row - 1] = _set(messages[row - 1], "content", _with_mark(content, column, mark))
        else:
            changed[SYSTEM_ROW] = _with_mark(system, column, mark)
    return changed


def _rows_of(content: Any) -> list[MarkableBlock]:
    """Return the blocks of a content, of which a string is one."""
    if isinstance(content, str):
        return [MarkableBlock(size_of(content), bool(content.strip()))]
    return [_block_of(block) for block in content or ()]


def _block_of(block: Any) -> MarkableBlock:
    text = member(block, "text")
    lives = tuple([life for each in (*_blocks(block), block) for life in _lives_of(each)])
    if isinstance(text, str):
        return MarkableBlock(size_of(text), bool(text.strip()), lives)
    return MarkableBlock(0, _can_have_mark(block), lives)


def _lives_of(value: Any) -> tuple[str, ...]:
    """Return the lifetime of the mark of a block, a tool or a body, if it has one."""
    mark = member(value, CACHE_CONTROL)
    return (member(mark, "ttl") or SHORT,) if mark else ()


def _can_have_mark(block: Any) -> bool:
    if isinstance(block, dict):
        return block.get("type") not in THINKING
    return hasattr(block, CACHE_CONTROL)


def _with_mark(content: Any, column: int, mark: dict[str, str]) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content, CACHE_CONTROL: mark}]
    blocks = list(content)
    blocks[column] = _set(blocks[column], CACHE_CONTROL, mark)
    return blocks


def _strip_marks(body: Body) -> Body:
    changed = {name: value for name, value in body.items() if name != CACHE_CONTROL}
    changed["messages"] = [_strip_blocks(message) for message in body["messages"]]
    for name in ("system", "tools"):
        if isinstance(body.get(name), list):
            changed[name] = [_without_mark(block) for block in body[name]]
    return changed


def _strip_blocks(holder: Any) -> Any:
    """Return a message or a tool result without marks in its blocks."""
    if not _blocks(holder):
        return holder
    return _set(holder, "content", [_without_mark(_strip_blocks(block)) for block in _blocks(holder)])


def _without_mark(value: Any) -> Any:
    if not member(value, CACHE_CONTROL):
        return value
    if isinstance(value, dict):
        return {name: member for name, member in value.items() if name != CACHE_CONTROL}
    return structs.replace(value, **{CACHE_CONTROL: None})


def _blocks(holder: Any) -> list[Any]:
    content = member(holder, "content")
    if isinstance(content, list):
        return content
    return []


def _set(value: Any, name: str, new: Any) -> Any:
    if isinstance(value, dict):
        return {**value, name: new}
    return structs.replace(value, **{name: new})


# Bodies of callers who speak this format themselves, with what the target would refuse changed in place. Members that
# the neutral form lacks stay.
#
# Values below the top level of a native body are shared with the parsed request. A body that needs a change is
# decoded again, which costs nothing where no change is needed.

TOOL_RESULT = "tool_result"
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
    if not target.unseals:
        body["messages"] = without_thinking(body["messages"], warnings)
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
    answered = _first_type(messages[-1]) == TOOL_RESULT
    return answered and _first_type(messages[-2]) not in THINKING


def _first_type(message: Any) -> str:
    content = message.content
    if not isinstance(content, list) or not content:
        return "text"
    first = content[0]
    kind: str = first["type"] if isinstance(first, dict) else first.__struct_config__.tag
    return kind


# Messages of a 400 or 403 that is caused by the account and not by the request.
ACCOUNT_ERROR = re.compile(
    r"credit balance is too low|organization has been (?:disabled|suspended)|specified api usage limits"
    r"|workspace (?:is|has been) (?:archived|disabled)|spend(?:ing)? limit",
    re.IGNORECASE,
)
FILTERED = re.compile(r"blocked by content filtering policy", re.IGNORECASE)


class AnthropicMessages:
    """POST {address}/messages, or the path of the model for hosts with the quirk `vertex_raw_predict`.

    `tokens` exchanges a service account's JSON for an access token (raises UpstreamRefused). Without it, providers that
    need an access token are skipped.
    """

    dialect = dialect.NAME
    lost = lost_by(dialect) | {"json_object"}
    waits = False
    mends = True

    def __init__(self, tokens: host_rules.Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: ChatRequest, target: Target) -> Call:
        """Build the call for a neutral request. NotSupported for content that this format cannot carry."""
        warnings: list[str] = []
        native = request.native
        if request.contents and native is not None and native.dialect == self.dialect:
            return self._finish(mend(native, request, target, warnings), request, target, warnings)
        prepared = prepare(request, self.dialect, ANTHROPIC, warnings)
        call = self._finish(write_body(prepared.request, target, warnings), request, target, warnings)
        if request.names_files:
            call.endpoint = None
            call.headers = host_rules.with_files(call.headers)
        call.renamed = prepared.renamed
        call.custom = prepared.custom
        return call

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """Build the call from the caller's native body, with what this target would refuse changed in place."""
        body = dict(native.body)
        if request.options.cache_marks:
            size = request.requirements.prompt_bytes
            body = apply_policy(body, request.options, size, target.mapping.min_cacheable_tokens)
        native = replace(native, body=body)
        warnings: list[str] = []
        whole = target.unseals and takes_whole(native, request, target)
        if not whole:
            body = mend(native, request, target, warnings)
        cap = target.output_cap
        if cap is not None and body["max_tokens"] > cap:
            _cap_output(body, cap)
        return self._finish(body, request, target, warnings)

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """Read a complete response. UpstreamFailed for an unexpected shape or an empty response."""
        return read_result(reply.read_all(), relayed)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield the events of a streamed response, one batch for each receive."""
        return AnthropicStreamReader(relayed).read(reply)

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError:
        """Classify an error response.

        A 400 or 403 about the account counts against the provider, and a 400 of its content filter is a ContentRefused.
        """
        explanation = explain(read_refusal(reply), (target.credential.secret,))
        if reply.status in (400, 403) and ACCOUNT_ERROR.search(explanation.message or explanation.text):
            message = "The provider refused the gateway's account."
            return UpstreamRefused(message, details=diagnose(explanation, target), upstream_status=reply.status)
        if reply.status == 400 and FILTERED.search(explanation.message):
            return ContentRefused(explanation.message, code="content_filter", upstream_status=400)
        return classify(reply.status, explanation, target, retry_after(reply.headers))

    def _finish(self, body: dict[str, Any], request: ChatRequest, target: Target, warnings: list[str]) -> Call:
        """Complete a relayed or rebuilt body with model, stream and tier, and add the URL and the credential."""
        stream = request.requirements.stream
        body = host_rules.address_body(body, target)
        if stream:
            body["stream"] = True
        if request.options.service_tier:
            body |= dialect.fields_of_tier(request.options.service_tier)
        vendor_fields = request.options.extra.get(dialect.OWN_FIELDS)
        if vendor_fields:
            body |= host_rules.accepted_fields(vendor_fields, target, warnings)
        if "tools" in body:
            body["tools"] = host_rules.plain_tools(body["tools"], target)
        endpoint = host_rules.endpoint_of(request, target, stream, self._tokens)
        return Call("POST", endpoint.url, endpoint.headers, json.encode(body), stream, tuple(warnings), None, endpoint)


def _cap_output(body: dict[str, Any], cap: int) -> None:
    """Lower max_tokens to `cap`, and the thinking budget below it; thinking is disabled where no budget fits."""
    body["max_tokens"] = cap
    thinking = body.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else getattr(thinking, "budget_tokens", None)
    if budget is not None and budget >= cap:
        if cap > MIN_BUDGET:
            body["thinking"] = {"type": "enabled", "budget_tokens": cap - 1}
        else:
            body["thinking"] = {"type": "disabled"}
