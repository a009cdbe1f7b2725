"""Reads chat completions as neutral results."""

from typing import Any

import orjson

from gateway import ids
from gateway.dialects import google
from gateway.dialects import openai as dialect
from gateway.dialects.openai import read_sources
from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.chat import ChatResult, Choice, FinishReason, Native
from gateway.neutral.parts import Image, Media, Part, Reasoning, Refusal, Source, Text, ToolCall
from gateway.neutral.tool_arguments import plain_arguments
from gateway.neutral.usage import Usage, with_shown
from gateway.providers.answer_checks import EMPTY, SHAPE_ERRORS, UNKNOWN_SHAPE, empty_answer, is_empty, read_object
from gateway.providers.failures import stream_failure

ENDED_WITH_ERROR = "The provider broke off its answer with an error."


def read_result(body: bytes, relayed: bool) -> ChatResult:
    """Return the result of a 2xx body. UpstreamFailed for an unexpected shape, an error in the body, or an empty
    answer."""
    wire = read_object(body)
    get = wire.get
    if get("error"):
        raise stream_failure(wire)
    if not get("choices"):
        refuse_error(wire)
    usage = dialect.read_usage(get("usage"))
    model = get("model")
    ident = get("id")
    tier = get("service_tier")
    if type(model) is not str:
        model = ""
    if type(ident) is not str:
        ident = ""
    if type(tier) is not str:
        tier = ""
    native = None
    if relayed:
        native = Native(dialect.NAME, wire)
        finish = _plain_finish(wire)
        if finish is not None:
            return ChatResult.deferred(_read_choices, finish, usage, model, ident, tier, native)
    choices = _check_choices(wire, usage)
    images = sum(type(part) is Image for choice in choices for part in choice.parts)
    return ChatResult(choices, with_shown(usage, _searched(wire), images), model, ident, tier, native=native)


def _plain_finish(wire: dict[str, Any]) -> FinishReason | None:
    """Return the finish reason of the first choice if all choices contain text or calls in OpenAI's exact shape,
    otherwise None. Reading such choices cannot fail and does not change the wire value, so a relayed answer is not read
    further."""
    first = None
    try:
        for choice in wire["choices"]:
            message = choice["message"]
            content = message["content"]
            calls = message.get("tool_calls")
            if calls and not all([_is_plain(call) for call in calls]):
                return None
            # Content is text. It may be null or empty beside calls.
            if (type(content) is not str and content is not None) or not (content or calls):
                return None
            if "images" in message or message.get("annotations"):
                return None
            finish = dialect.FINISH_READ[choice["finish_reason"]]
            if calls and finish == "stop":
                return None
            first = first or finish
    except SHAPE_ERRORS:
        return None
    return first


def _is_plain(call: dict[str, Any]) -> bool:
    function = call["function"]
    named = type(call["id"]) is str and call["id"] != "" and "custom" not in call
    return (
        named
        and type(function["name"]) is str
        and type(function["arguments"]) is str
        and function["arguments"][:1] == "{"
    )


def _check_choices(wire: dict[str, Any], usage: Usage | None) -> tuple[Choice, ...]:
    try:
        choices = _read_choices(wire)
    except GatewayError as error:
        error.spent = usage
        raise
    except SHAPE_ERRORS:
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200) from None
    if not choices:
        raise UpstreamFailed(EMPTY, upstream_status=200)
    if all(is_empty(bool(choice.parts), choice.finish, usage) for choice in choices):
        raise empty_answer(choices[0].finish, usage)
    return choices


def _read_choices(wire: dict[str, Any]) -> tuple[Choice, ...]:
    sources = read_sources(wire)
    return tuple([_choice(choice, sources) for choice in wire.get("choices") or ()])


def _choice(wire: dict[str, Any], sources: tuple[Source, ...]) -> Choice:
    refuse_failed(wire.get("finish_reason"))
    message = wire.get("message")
    if not isinstance(message, dict):
        text = wire.get("text")  # of a text completion
        message = wire["message"] = {"role": "assistant", "content": text if type(text) is str else None}
    flatten_content(message)
    parts: list[Part] = []
    thoughts = message.get("reasoning") or message.get("reasoning_content") or details_text(message)
    if isinstance(thoughts, str) and thoughts:
        parts.append(Reasoning(thoughts, vendor=""))
    if message.get("content"):
        parts.append(Text(message["content"], sources=read_annotations(message) or sources))
    if message.get("refusal"):
        parts.append(Refusal(message["refusal"]))
    parts += [read_image(image) for image in message.get("images") or ()]
    calls = message.get("tool_calls") or ()
    parts += [_call(call) for call in calls]
    finish = dialect.FINISH_READ.get(wire.get("finish_reason") or "stop") or dialect.read_finish(wire["finish_reason"])
    if calls and finish == "stop":  # some servers say so, while clients continue only after "tool_calls"
        finish = wire["finish_reason"] = "tool_calls"
    return Choice(tuple(parts), finish)


def _searched(wire: dict[str, Any]) -> bool:
    """Whether the answer cites web pages: not every server reports the usage of a web search."""
    return any(read_annotations(choice["message"]) for choice in wire["choices"])


def refuse_failed(reason: Any) -> None:
    """Raise UpstreamFailed for a finish reason that means a failure."""
    if reason in dialect.FINISH_FAILED:
        raise UpstreamFailed(
            ENDED_WITH_ERROR, details={"responseText": f"finish_reason: {reason}"}, upstream_status=200
        )


def refuse_error(wire: dict[str, Any]) -> None:
    """Raise the error that a body or chunk without choices is: some servers have no member `error`."""
    state = wire.get("base_resp")
    if isinstance(state, dict) and state.get("status_code"):
        raise stream_failure({"code": state["status_code"], "message": state.get("status_msg")})
    if "error" in (wire.get("object"), wire.get("type")):
        raise stream_failure(wire)


def details_text(holder: dict[str, Any]) -> str:
    """Return the reasoning that some servers only send in `reasoning_details`: [{type: reasoning.text, text}] (or
    summary)."""
    items = holder.get("reasoning_details")
    if not isinstance(items, list):
        return ""
    return "".join(text_of(item.get("text") or item.get("summary")) for item in items if isinstance(item, dict))


def _call(wire: dict[str, Any]) -> ToolCall:
    """Return a tool call. A missing id is generated, because the caller needs it for the result."""
    ident = text_of(wire.get("id")) or f"call_{ids.new_hex()}"
    wire["id"] = ident
    custom = wire.get("custom")
    if isinstance(custom, dict):
        return ToolCall(ident, text_of(custom.get("name")), text_of(custom.get("input")), custom=True)
    function = wire.get("function") or {}
    arguments = function["arguments"] = plain_arguments(function.get("arguments"))
    signature = google.read_extra(wire.get("extra_content"))
    vendor = google.NAME if signature else ""
    return ToolCall(ident, text_of(function.get("name")), arguments, signature=signature, vendor=vendor)


def arguments_text(function: dict[str, Any]) -> str:
    """Return the arguments as JSON text. An object, which some servers send, is replaced by its text in the wire value
    too."""
    arguments = function.get("arguments")
    if isinstance(arguments, dict | list):
        arguments = function["arguments"] = orjson.dumps(arguments).decode()
    if isinstance(arguments, str):
        return arguments
    return ""


def flatten_content(holder: dict[str, Any]) -> None:
    """Replace content that is a list of parts ({type: text} and {type: thinking}) by plain content and reasoning."""
    content = holder.get("content")
    if not isinstance(content, list):
        return
    text = []
    thoughts = []
    for part in content:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            pieces = inner if isinstance(inner, list) else [{"text": inner}]
            thoughts += [text_of(piece.get("text")) for piece in pieces if isinstance(piece, dict)]
        else:
            text.append(text_of(part.get("text")))
    holder["content"] = "".join(text)
    if any(thoughts):
        holder["reasoning"] = "".join(thoughts)


def read_annotations(holder: dict[str, Any]) -> tuple[Source, ...]:
    """Return the citations of a message or delta: {type: url_citation, url_citation: {url, title, start_index,
    end_index}}."""
    sources = []
    for entry in holder.get("annotations") or ():
        citation = entry.get("url_citation") if isinstance(entry, dict) else None
        if isinstance(citation, dict) and text_of(citation.get("url")):
            start = citation.get("start_index")
            end = citation.get("end_index")
            place = (start, end) if type(start) is int and type(end) is int else (-1, -1)
            sources.append(Source(citation["url"], text_of(citation.get("title")), "", *place))
    return tuple(sources)


def write_annotation(source: Source) -> dict[str, Any]:
    """Return a source that a server listed beside its choices as a citation without positions."""
    named = {"url": source.url, "title": source.title, "start_index": 0, "end_index": 0}
    return {"type": "url_citation", "url_citation": named}


def read_image(wire: Any) -> Image:
    """Return a generated image: {type: image_url, image_url: {url}} with a URL or a data URL."""
    holder = wire.get("image_url") if isinstance(wire, dict) else None
    url = text_of(holder.get("url") if isinstance(holder, dict) else holder)
    if url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        return Image(Media(media_type=head.partition(";")[0], data=data))
    return Image(Media(url=url))


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ""
