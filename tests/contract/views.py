"""The caller's view of an answer, whole or folded from its stream, without values that differ from run to run."""

import json
import re
from typing import Any

from contract.ai_parts import check_body, check_order, check_part

from gateway.surfaces.anthropic.opaque_tokens import NEXT, TEXT, read_token

Json = dict[str, Any]

OURS = re.compile(r"(chatcmpl-|msg_|resp_|rs_|fc_|ctc_|ws_|ci_|gen_|src_|search_)[0-9a-f]{32}(_\d+|[0-9a-f]*)?")
HEX = re.compile(r"\b[0-9a-f]{32}\b")
TIMES = re.compile(r"gw1\.responses\.[0-9a-f]{16}\.")
PORT = re.compile(r"127\.0\.0\.1:\d+")
MONEY = ("cost", "is_byok", "cost_details")


def steady(value: Any) -> Any:
    """The value with run-dependent ids replaced."""
    text = json.dumps(value, ensure_ascii=False)
    text = OURS.sub(lambda found: found[1] + "ID", text)
    text = PORT.sub("127.0.0.1:PORT", TIMES.sub("gw1.responses.ORIGIN.", HEX.sub("ID", text)))
    return json.loads(text)


def events_of(raw: bytes) -> list[tuple[str, Any]]:
    """(event name, data) of a stream; data is JSON but for the closing [DONE]."""
    found = []
    for frame in raw.decode().split("\n\n"):
        lines = [line for line in frame.split("\n") if line and not line.startswith(":")]
        name = next((line[7:] for line in lines if line.startswith("event: ")), "")
        data = "".join(line[6:] for line in lines if line.startswith("data: "))
        if data:
            found.append((name, data if data == "[DONE]" else json.loads(data)))
    return found


def fold(surface: str, raw: bytes) -> Json:
    """Return the answer from a whole body or from a stream; {"error": …} when the stream ends in an error."""
    if raw[:1] == b"{":
        return json.loads(raw)
    return FOLDS[surface](events_of(raw))


def _fold_chat(events: list[tuple[str, Any]]) -> Json:
    choices: dict[int, Json] = {}
    whole: Json = {}
    for name, data in events:
        if name == "error" or (data != "[DONE]" and "error" in data):
            return {"error": data["error"]}
        if data == "[DONE]":
            continue
        whole |= {key: data[key] for key in ("usage", "metadata", "model") if data.get(key)}
        for choice in data["choices"]:
            known = choices.setdefault(
                choice["index"], {"index": choice["index"], "message": {}, "finish_reason": None}
            )
            known["finish_reason"] = choice["finish_reason"] or known["finish_reason"]
            _add_delta(known["message"], choice["delta"])
    assert events[-1][1] == "[DONE]"
    return whole | {"choices": [choices[index] for index in sorted(choices)]}


def _add_delta(message: Json, delta: Json) -> None:
    for name, value in delta.items():
        if name in ("content", "refusal", "reasoning", "reasoning_content") and value is not None:
            message[name] = message.get(name, "") + value
        elif name == "role":
            message[name] = value
        elif name == "tool_calls":
            for piece in value:
                _add_call(message.setdefault("tool_calls", []), piece)
        elif name == "reasoning_details":
            for piece in value:
                _add_detail(message.setdefault("reasoning_details", []), piece)
        elif isinstance(value, list):
            items = [{key: inner for key, inner in item.items() if key != "index"} for item in value]
            message.setdefault(name, []).extend(items)


def _add_call(calls: list[Json], piece: Json) -> None:
    place = piece["index"]
    while len(calls) <= place:
        calls.append({})
    known = calls[place]
    inner = next((name for name in ("function", "custom") if name in piece), "")
    known |= {key: piece[key] for key in ("id", "type", "extra_content") if piece.get(key)}
    for name, text in (piece.get(inner) or {}).items():
        known.setdefault(inner, {})[name] = known.get(inner, {}).get(name, "") + (text or "")


def _add_detail(details: list[Json], piece: Json) -> None:
    """Items of one index and type are one, and the first of an index has `format` and `id`: that is how the details are
    documented to come in pieces."""
    known = next((detail for detail in details if _place(detail) == _place(piece)), None)
    if known is None:
        first = next((detail for detail in details if detail["index"] == piece["index"]), {})
        details.append({name: first[name] for name in ("format", "id") if name in first} | piece)
        return
    for name in ("text", "summary", "signature", "data"):
        if piece.get(name):
            known[name] = (known.get(name) or "") + piece[name]


def _place(detail: Json) -> tuple[Any, ...]:
    return detail["index"], detail["type"]


def _fold_messages(events: list[tuple[str, Any]]) -> Json:
    whole: Json = {}
    inputs: dict[int, str] = {}
    for name, data in events:
        kind = data["type"]
        assert name == kind
        if kind == "error":
            return data
        if kind == "message_start":
            whole = {**data["message"], "content": []}
        elif kind == "content_block_start":
            assert data["index"] == len(whole["content"])
            whole["content"].append(dict(data["content_block"]))
        elif kind == "content_block_delta":
            _add_block_delta(whole["content"][data["index"]], data["delta"], inputs, data["index"])
        elif kind == "message_delta":
            whole |= data["delta"]
            whole["usage"] = {**whole["usage"], **data["usage"]}
            whole |= {key: data[key] for key in ("metadata",) if key in data}
    assert events[-1][0] == "message_stop"
    for place, text in inputs.items():
        whole["content"][place]["input"] = json.loads(text or "{}")
    return whole


def _add_block_delta(block: Json, delta: Json, inputs: dict[int, str], place: int) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = block.get("signature", "") + delta["signature"]
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        case "input_json_delta":
            inputs[place] = inputs.get(place, "") + delta["partial_json"]


def _fold_responses(events: list[tuple[str, Any]]) -> Json:
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    name, last = events[-1]
    if name == "error":
        return {"error": last["error"]}
    done = [data["item"] for kind, data in events if kind == "response.output_item.done"]
    items = [item for item in last["response"]["output"] if item in done]
    assert items == done, "an item's own end differs from the end of all"
    return last["response"]


def _fold_ai(version: int) -> Any:
    """Stream parts of a version, each checked, as the body of a generate call."""

    def fold_parts(events: list[tuple[str, Any]]) -> Json:
        assert not any(name for name, _ in events)
        parts = [data for _, data in events if data != "[DONE]"]
        for part in parts:
            check_part(part, version)
        check_order(parts)
        failure = next((part["error"] for part in parts if part["type"] == "error"), None)
        if failure is not None:
            assert events[-1][1] != "[DONE]"
            return {"error": failure}
        assert events[-1][1] == "[DONE]"
        return _fold_parts(parts)

    return fold_parts


def _fold_parts(parts: list[Json]) -> Json:
    whole: Json = {"content": [], "response": {}, "warnings": parts[0]["warnings"]}
    content = whole["content"]
    for part in parts:
        kind, _, step = part["type"].rpartition("-")
        if kind in ("text", "reasoning"):
            if step == "start":
                content.append({"type": kind, "text": ""})
            elif step == "delta":
                _last(content, kind)["text"] += part["delta"]
            elif part.get("providerMetadata"):
                _last(content, kind)["providerMetadata"] = part["providerMetadata"]
        elif part["type"] in ("tool-call", "tool-result", "source", "file"):
            content.append(part)
        elif part["type"] == "finish":
            whole |= {name: part[name] for name in ("finishReason", "usage", "providerMetadata")}
        elif part["type"] == "response-metadata":
            whole["response"] = {name: value for name, value in part.items() if name != "type"}
    return whole


def _last(content: list[Json], kind: str) -> Json:
    return next(part for part in reversed(content) if part["type"] == kind)


FOLDS = {
    "chat": _fold_chat,
    "messages": _fold_messages,
    "responses": _fold_responses,
    **{f"ai{version}": _fold_ai(version) for version in (2, 3, 4)},
}


def view(surface: str, status: int, body: Json) -> Json:
    """Return the caller's view of an answer without the gateway's ids, times and costs."""
    if body.get("error"):
        return steady({"status": status, "error": body["error"]})
    return steady(VIEWS[surface](body))


def _usage(usage: Json) -> Json:
    return {name: value for name, value in (usage or {}).items() if name not in MONEY}


def _view_chat(body: Json) -> Json:
    choices = [
        {"finish_reason": choice["finish_reason"], **{k: v for k, v in choice["message"].items() if v is not None}}
        for choice in body["choices"]
    ]
    return {"choices": choices, "usage": _usage(body["usage"]), "warnings": body["metadata"].get("warnings", [])}


def _view_messages(body: Json) -> Json:
    kept = {name: body[name] for name in ("content", "stop_reason", "stop_sequence")}
    return {**kept, "usage": _usage(body["usage"]), "warnings": body["metadata"].get("warnings", [])}


def _view_responses(body: Json) -> Json:
    kept = {name: body[name] for name in ("status", "incomplete_details", "output")}
    return {**kept, "usage": _usage(body["usage"]), "warnings": body["llmgateway"].get("warnings", [])}


UNSIGNED = {"type": "reasoning.text", "format": "unknown"}


def plain(value: Any) -> Any:
    """A view as streams and whole answers share it: arguments as values, nothing empty; details of reasoning without
    their numbers, and without text, which `reasoning` has too; a stream leaves out those that have nothing more."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {
        name: plain(one) for name, one in value.items() if one is not None and not (name == "content" and one == "")
    }
    if isinstance(found.get("arguments"), str):
        found["arguments"] = json.loads(found["arguments"] or "{}")
    if found.get("type") in ("reasoning.text", "reasoning.summary", "reasoning.encrypted"):
        found.pop("index", None)
        found.pop("text", None)
    if found.get("reasoning_details") == [UNSIGNED]:
        del found["reasoning_details"]
    return found


def unsigned(value: Any) -> Any:
    """Without signatures of texts, which a streamed message does not tell: its text is its last block."""
    if isinstance(value, list):
        return [unsigned(one) for one in value if not _is_text_mark(one)]
    if not isinstance(value, dict):
        return value
    dropped_field = "thoughtSignature" if "text" in value and not value.get("thought") else ""
    return {name: unsigned(one) for name, one in value.items() if name != dropped_field}


def unplaced(value: Any) -> Any:
    """Without positions of citations, which a stream does not know where the provider reports none."""
    if isinstance(value, list):
        return [unplaced(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: unplaced(one) for name, one in value.items() if name not in ("start_index", "end_index")}


def _is_text_mark(block: Any) -> bool:
    token = read_token(block.get("signature") or "") if isinstance(block, dict) else None
    return token is not None and token.what in (TEXT, NEXT)


def _view_ai(version: int) -> Any:
    """The answer in no version's words: what belongs to a search apart, for streams tell it when it is known."""

    def view_body(body: Json) -> Json:
        check_body(body, version)
        rest, searches, sources = [], [], []
        for part in body["content"]:
            if part["type"] == "source":
                sources.append(part)
            elif part["type"] == "tool-result" or part.get("providerExecuted"):
                searches.append({name: value for name, value in part.items() if name != "providerExecuted"})
            else:
                rest.append(_bare_part(part))
        reason, usage = body["finishReason"], body["usage"]
        counts = _flat_usage(usage) if version > 2 else usage
        warnings = [
            {name: value for name, value in warning.items() if name != "setting"} for warning in body["warnings"]
        ]
        for warning in warnings:
            if "tool" in warning:
                warning["tool"] = {**warning["tool"], "type": "provider"}
        return {
            "content": rest,
            "searches": searches,
            "sources": sources,
            "finish": reason if version == 2 else reason["unified"],
            "usage": counts,
            "warnings": warnings,
        }

    return view_body


def _bare_part(part: Json) -> Json:
    if part["type"] == "tool-call":
        return {**part, "input": json.loads(part["input"])}
    if part["type"] == "file" and isinstance(part["data"], dict):
        return {**part, "data": part["data"]["data"]}
    return part


def _flat_usage(usage: Json) -> Json:
    input_tokens, output_tokens = usage["inputTokens"], usage["outputTokens"]
    return {
        "inputTokens": input_tokens["total"],
        "outputTokens": output_tokens["total"],
        "totalTokens": input_tokens["total"] + output_tokens["total"],
        "reasoningTokens": output_tokens["reasoning"],
        "cachedInputTokens": input_tokens["cacheRead"],
    }


VIEWS = {
    "chat": _view_chat,
    "messages": _view_messages,
    "responses": _view_responses,
    **{f"ai{version}": _view_ai(version) for version in (2, 3, 4)},
}
