"""The chat protocol: builds calls with their URL and credential."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import json
from msgspec.structs import replace

from gateway.dialects import cohere as dialect
from gateway.dialects.cohere import NAME
from gateway.errors import GatewayError, NotSupported
from gateway.neutral.chat import (
    ChatRequest,
    ChatResult,
    Conversation,
    FunctionTool,
    Native,
    ReasoningOptions,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
    VendorTool,
)
from gateway.neutral.events import Batch
from gateway.neutral.parts import Image, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult, VendorPart
from gateway.neutral.tool_arguments import object_text
from gateway.providers.cohere.reply import CohereStreamReader, read_result
from gateway.providers.failures import classify, explain, read_refusal, retry_after
from gateway.providers.grammars import COHERE as COHERE_GRAMMAR
from gateway.providers.grammars import OUTPUTS
from gateway.providers.json_schema_subset import rewrite
from gateway.providers.message_shapes import one_instruction_in_front, results_behind_calls
from gateway.providers.openai.address import address_of
from gateway.providers.openai.request import write_image
from gateway.providers.parameter_writer import ParameterWriter
from gateway.providers.prepared_requests import prepare
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.tool_names import COHERE
from gateway.providers.unsupported_parts import GENERATED, NOTHING_SAID, with_late_instructions

# Writes a neutral conversation as a chat body, with its messages in the roles and blocks of the format.
#
# Wire facts: Cohere API reference, v2/chat, its messages and its list of errors (ranges, incompatible parameters);
# guide, tool use (a turn with calls has a plan); guide, reasoning (thinking blocks are sent back with their turn).

Wire = dict[str, Any]

FOREIGN_SEARCH = "Past calls of another provider's server tools were left out."
NO_OUTPUT = "(no output)"


def write_messages(messages: Iterable[Message], *, thinks: bool, warnings: list[str]) -> list[Wire]:
    """Return the `messages` list. NotSupported for parts that the format has no field for.

    `thinks`: the model accepts thinking blocks; other models get past reasoning as the plan of a turn. Instructions
    are at the front ("system turn must be the first in the list"). A conversation that consists only of
    instructions is sent as a user message.
    """
    system: list[Wire] = []
    turns: list[Wire] = []
    waiting: list[Wire] = []  # images of the assistant, for the user's next turn: its own have texts only
    for message in messages:
        match message.role:
            case "system" | "developer":
                system += _write_system(message, turns)
            case "assistant":
                waiting = _show(turns, waiting)
                shown = [part for part in message.parts if isinstance(part, Image)]
                parts = tuple(part for part in message.parts if not isinstance(part, Image))
                _add(turns, _write_assistant(replace(message, parts=parts), thinks, warnings))
                if shown:
                    waiting = [{"type": "text", "text": GENERATED}, *map(_write_part, shown)]
            case "tool":
                waiting += _add_results(turns, message)
            case _:
                _add(turns, {"role": "user", "content": [*waiting, *_write_parts(message)]})
                waiting = []
    _show(turns, waiting)
    if not turns:
        return [{"role": "user", "content": system or [{"type": "text", "text": NOTHING_SAID}]}]
    if system:
        return [{"role": "system", "content": system}, *turns]
    return turns


def _show(turns: list[Wire], waiting: list[Wire]) -> list[Wire]:
    """Append the waiting content as a turn of the user, and return what waits then: nothing."""
    _add(turns, {"role": "user", "content": waiting})
    return []


def _add(turns: list[Wire], turn: Wire) -> None:
    """Append a turn unless it is empty; the API refuses empty turns."""
    if turn.get("content") or turn.get("tool_calls"):
        turns.append(turn)


def _write_system(message: Message, turns: list[Wire]) -> list[Wire]:
    """Return the text of instructions; their media go into a user message."""
    written = [_write_part(part) for part in message.parts]
    media = [part for part in written if part["type"] != "text"]
    _add(turns, {"role": "user", "content": media})
    return [part for part in written if part["type"] == "text"]


def _write_assistant(message: Message, thinks: bool, warnings: list[str]) -> Wire:
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    tool_calls = [_write_call(part) for part in calls if not part.executed]
    if len(tool_calls) < len(calls) and FOREIGN_SEARCH not in warnings:
        warnings.append(FOREIGN_SEARCH)
    thoughts = [part.text for part in message.parts if isinstance(part, Reasoning) and part.text]
    text_parts = [part for part in message.parts if not isinstance(part, ToolCall | ToolResult | Reasoning)]
    content = [_write_part(part) for part in text_parts if not isinstance(part, Text | Refusal) or part.text]
    turn: Wire = {"role": "assistant"}
    if thoughts and thinks:
        content = [{"type": "thinking", "thinking": "\n\n".join(thoughts)}, *content]
    elif thoughts and tool_calls:
        turn["tool_plan"] = "\n\n".join(thoughts)
    if content:
        turn["content"] = content
    if tool_calls:
        turn["tool_calls"] = tool_calls
    return turn


def _write_call(call: ToolCall) -> Wire:
    if call.custom:
        raise NotSupported("This provider has no tools with free-text input.", param="messages")
    function = {"name": call.name, "arguments": object_text(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _write_parts(message: Message) -> list[Wire]:
    """Return the content blocks of a message without its empty texts, which the API refuses."""
    return [_write_part(part) for part in message.parts if not isinstance(part, Text | Refusal) or part.text]


def _add_results(turns: list[Wire], message: Message) -> list[Wire]:
    """Add each result as a separate turn, and return the media of the results, which follow the last one."""
    following: list[Wire] = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            following.append(_write_part(part))
            continue
        blocks = [_write_part(content) for content in part.parts]
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text") or NO_OUTPUT
        if part.is_error and not text.lower().startswith("error"):
            text = f"Error: {text}"
        media = [block for block in blocks if block["type"] != "text"]
        if media:
            title = f"Output of {part.name or 'the tool'} (call {part.call_id}):"
            following += [{"type": "text", "text": title}, *media]
        turns.append({"role": "tool", "tool_call_id": part.call_id, "content": text})
    return following


def _write_part(part: Part) -> Wire:
    """Return a content block without cache marks. NotSupported for parts that the format has no field for."""
    match part:
        case Text() | Refusal():
            return {"type": "text", "text": part.text}
        case Image(media=media) if media.url or media.data:
            return write_image(part)
        case VendorPart(vendor=vendor) if vendor == NAME:
            return part.body
        case _:
            name = type(part).__name__.lower()
            raise NotSupported(f"This provider does not take a part of type {name} in this form.", param="messages")


Body = dict[str, Any]

STOP_LIMIT = 5
TEMPERATURE_LIMIT = 1.0
# Lowest and highest value of parameters, by their fields.
PARAMETER_RANGES = {"p": (0.01, 0.99), "k": (0, 500), "frequency_penalty": (0.0, 1.0), "presence_penalty": (0.0, 1.0)}
PARAMETER_WRITER = ParameterWriter(NAME, apart=("stop", "parallel_tool_calls"))
# Thinking budgets in tokens for efforts, which the format lacks; higher efforts have no budget.
THINKING_BUDGETS = {"minimal": 512, "low": 2048, "medium": 8192}


def write_body(request: ChatRequest, target: Target, warnings: list[str]) -> Body:
    """Return the body without model and stream, and append a warning for each dropped parameter.

    NotSupported for required parameters that the format lacks.
    """
    conversation = request.conversation()
    if conversation.sampling.n > 1:
        raise NotSupported("This provider returns one choice per request.", param="n")
    thinks = target.mapping.reasoning
    body: Body = {
        "messages": write_messages(with_late_instructions(conversation.messages), thinks=thinks, warnings=warnings)
    }
    tools = _write_tools(conversation, warnings)
    if tools:
        body["tools"] = tools
        _write_choice(conversation.tool_choice, body)
    if conversation.response_format is not None and conversation.response_format.kind != "text":
        body["response_format"] = _write_format(conversation.response_format, bool(tools), warnings)
    if thinks:
        thinking = _write_thinking(conversation.reasoning)
        if thinking:
            body["thinking"] = thinking
    _write_sampling(conversation.sampling, target, body, warnings)
    return body


def _write_tools(conversation: Conversation, warnings: list[str]) -> list[Body]:
    """Return the `tools` list; a forced call of one tool is a list of that tool alone."""
    choice = conversation.tool_choice
    written = [_write_tool(tool, warnings) for tool in conversation.tools if not _is_tool_search(tool)]
    if choice is not None and choice.mode == "tool" and choice.name:
        return [tool for tool in written if tool["function"]["name"] == choice.name]
    return written


def _is_tool_search(tool: Tool) -> bool:
    """Return whether a tool only searches deferred tools, which is needless where all tools are sent."""
    return isinstance(tool, VendorTool) and tool.kind == "tool_search"


def _write_tool(tool: Tool, warnings: list[str]) -> Body:
    """Return a function; the API requires `parameters`, even for a function without any."""
    if not isinstance(tool, FunctionTool):
        kind = tool.kind if isinstance(tool, VendorTool) else type(tool).__name__.lower()
        raise NotSupported(f"This provider has no tool of type {kind}.", param="tools")
    parameters: Body = {"type": "object", "properties": {}}
    if tool.schema:
        rewritten = rewrite(tool.schema, COHERE_GRAMMAR)
        parameters = rewritten.schema
        _warn_of_dropped(rewritten.dropped, f"the schema of tool {tool.name}", warnings)
    function: Body = {"name": tool.name, "parameters": parameters}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _warn_of_dropped(keywords: tuple[str, ...], place: str, warnings: list[str]) -> None:
    if keywords:
        warnings.append(f"This provider does not support these keywords in {place}: {', '.join(keywords)}.")


def _write_choice(choice: ToolChoice | None, body: Body) -> None:
    if choice is None or choice.mode in ("auto", "web_search"):
        return
    if choice.mode == "none":
        body["tool_choice"] = "NONE"
    else:
        body["tool_choice"] = "REQUIRED"


def _write_format(response_format: ResponseFormat, tools: bool, warnings: list[str]) -> Body:
    """Return the format of JSON output, which the service refuses beside tools."""
    if tools:
        raise NotSupported("This provider cannot combine JSON output with tools.", param="response_format")
    written: Body = {"type": "json_object"}
    if response_format.kind == "json_schema" and response_format.schema:
        rewritten = rewrite(response_format.schema, OUTPUTS[COHERE_GRAMMAR.name])
        written["json_schema"] = rewritten.schema
        _warn_of_dropped(rewritten.dropped, "the response schema", warnings)
    return written


def _write_thinking(reasoning: ReasoningOptions) -> Body:
    """Return `thinking`: disabled, or enabled with its budget in tokens; {} for the model's default."""
    if (reasoning.effort == "none" and not reasoning.budget) or reasoning.enabled is False:
        return {"type": "disabled"}
    budget = reasoning.budget or THINKING_BUDGETS.get(reasoning.effort)
    if budget:
        return {"type": "enabled", "token_budget": budget}
    if reasoning.effort or reasoning.enabled:
        return {"type": "enabled"}
    return {}


def _write_sampling(sampling: Sampling, target: Target, body: Body, warnings: list[str]) -> None:
    if sampling.stop:
        body["stop_sequences"] = list(sampling.stop[:STOP_LIMIT])
    PARAMETER_WRITER.write(sampling, body, warnings)
    cap = target.output_cap
    if cap is not None and body.get("max_tokens", cap + 1) > cap:
        body["max_tokens"] = cap
    highest = min(target.mapping.max_temperature or TEMPERATURE_LIMIT, TEMPERATURE_LIMIT)
    for name, (low, high) in (PARAMETER_RANGES | {"temperature": (0, highest)}).items():
        if name in body:
            body[name] = min(max(body[name], low), high)
    if body.get("frequency_penalty") and body.get("presence_penalty"):
        del body["presence_penalty"]
        warnings.append("This provider accepts one of the two penalties; presence_penalty was left out.")
    _warn_of_sampling(sampling, body, warnings)


def _warn_of_sampling(sampling: Sampling, body: Body, warnings: list[str]) -> None:
    if len(sampling.stop) > STOP_LIMIT:
        warnings.append(f"Only the first {STOP_LIMIT} stop sequences are used.")
    if sampling.parallel_tool_calls is False and "tools" in body:
        warnings.append("parallel_tool_calls cannot be switched off at this provider and was left out.")


PATH = "/chat"
# Non-standard statuses of the service (API reference, errors), and the standard statuses of the same meaning.
STATUSES = {498: 401, 499: 504}


def _is_refused(messages: list[Any]) -> bool:
    """Return whether the API refuses the order of a caller's own messages: instructions behind another message, or a
    message between a call and its result."""
    known: set[str] = set()
    open_ids: set[str] = set()  # of the last message, if nothing but results followed it
    for place, message in enumerate(messages):
        ident = _member(message, "tool_call_id")
        if ident is not None:
            if ident in known and ident not in open_ids:
                return True
            continue
        if place and _role(message) == "system":
            return True
        open_ids = {_member(call, "id") for call in _member(message, "tool_calls") or ()}
        known |= open_ids
    return False


def _role(message: Any) -> Any:
    return message["role"] if isinstance(message, dict) else message.__struct_config__.tag


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


class CohereChat:
    """POST {address}/chat."""

    dialect = dialect.NAME
    lost = frozenset(("cache_marks",))
    waits = False

    def write(self, request: ChatRequest, target: Target) -> Call:
        """Build the call for a neutral request. NotSupported for content that this format cannot carry."""
        warnings: list[str] = []
        stream = request.requirements.stream
        prepared = prepare(request, self.dialect, COHERE, warnings)
        written = write_body(prepared.request, target, warnings)
        body = {"model": target.mapping.external_id, "stream": stream, **written}
        call = self._finish(body, target, stream, tuple(warnings))
        call.renamed = prepared.renamed
        call.custom = prepared.custom
        return call

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """Build the call from the caller's native body."""
        stream = request.requirements.stream
        body = {**native.body, "model": target.mapping.external_id, "stream": stream}
        if _is_refused(body["messages"]):
            plain = json.decode(json.encode(body["messages"]))
            body["messages"] = results_behind_calls(one_instruction_in_front(plain))
        cap = target.output_cap
        if cap is not None and body.get("max_tokens", cap + 1) > cap:
            body["max_tokens"] = cap
        return self._finish(body, target, stream)

    def _finish(self, body: dict[str, Any], target: Target, stream: bool, warnings: tuple[str, ...] = ()) -> Call:
        url, headers = address_of(target, PATH)
        headers["content-type"] = "application/json"
        if stream:
            headers["accept"] = "text/event-stream"
        else:
            headers["accept"] = "application/json"
        return Call("POST", url, headers, json.encode(body), stream, warnings)

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """Read a complete response. UpstreamFailed for an unexpected shape, a failure inside it, or no content."""
        return read_result(reply.read_all(), relayed)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield the events of a streamed response, one batch for each receive."""
        return CohereStreamReader(relayed).read(reply)

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError:
        """Classify an error response, which is {id, message}."""
        explanation = explain(read_refusal(reply), (target.credential.secret,))
        return classify(STATUSES.get(reply.status, reply.status), explanation, target, retry_after(reply.headers))
