"""The parts of an answer as the types of `@ai-sdk/provider` have them, in versions 2, 3 and 4.

Strict: a part or member that a version's types do not know fails. A client of version 2 never ends a stream that holds
one.
"""

from typing import Any

Json = dict[str, Any]

TEXT, MAYBE = str, (bool, type(None))
META = {"providerMetadata?": dict}
DELTA = {"id": str, "delta": str, **META}
START: Json = {"id": str, **META}
SOURCES: dict[str, Json] = {
    "url": {"id": str, "url": str, "title?": str, "sourceType": str, **META},
    "document": {"id": str, "mediaType": str, "title": str, "filename?": str, "sourceType": str, **META},
}
CALL: Json = {"toolCallId": str, "toolName": str, "input": str, "providerExecuted?": bool, **META}
RESULT: Json = {"toolCallId": str, "toolName": str, "result": object, "isError?": bool, **META}
METADATA: Json = {"id?": str, "timestamp?": str, "modelId?": str}
FINISHES = {"stop", "length", "content-filter", "tool-calls", "error", "other"}
# Names of parts → members, "?" behind those that may be missing; what all versions have in common.
COMMON: dict[str, Json] = {
    **{f"{kind}-start": START for kind in ("text", "reasoning")},
    **{f"{kind}-end": START for kind in ("text", "reasoning", "tool-input")},
    **{f"{kind}-delta": DELTA for kind in ("text", "reasoning", "tool-input")},
    "tool-input-start": {"id": str, "toolName": str, "providerExecuted?": bool, **META},
    "tool-call": CALL,
    "response-metadata": METADATA,
    "stream-start": {"warnings": list},
    "error": {"error": object},
}
OWN: dict[int, dict[str, Json]] = {
    2: {
        "file": {"mediaType": str, "data": str},
        "tool-result": RESULT | {"providerExecuted": bool},
        "finish": {"finishReason": str, "usage": dict, **META},
    },
    3: {
        "file": {"mediaType": str, "data": str, **META},
        "tool-result": RESULT,
        "finish": {"finishReason": dict, "usage": dict, **META},
    },
    4: {
        "file": {"mediaType": str, "data": dict, **META},
        "tool-result": RESULT,
        "finish": {"finishReason": dict, "usage": dict, **META},
    },
}
WHOLE: dict[str, Json] = {"text": {"text": str, **META}, "reasoning": {"text": str, **META}}
NUMBERS = {"inputTokens", "outputTokens", "totalTokens", "reasoningTokens", "cachedInputTokens"}


def check_part(part: Json, version: int) -> None:
    """A stream part that clients of the version know."""
    kind = part["type"]
    if kind == "source":
        _check(part, SOURCES[part["sourceType"]])
        return
    shapes = COMMON | OWN[version]
    assert kind in shapes, f"a client of version {version} knows no part {kind}"
    _check(part, shapes[kind])
    if kind == "finish":
        check_finish(part["finishReason"], part["usage"], version)
    if kind == "stream-start":
        check_warnings(part["warnings"], version)
    if kind == "tool-result":
        assert part["result"] is not None and (version > 2 or part["providerExecuted"] is True)


def check_body(body: Json, version: int) -> None:
    """The body of a generate call."""
    for part in body["content"]:
        if part["type"] in WHOLE:
            _check(part, WHOLE[part["type"]])
        else:
            assert part["type"] in ("tool-call", "tool-result", "file", "source")
            check_part(part, version)
    check_finish(body["finishReason"], body["usage"], version)
    check_warnings(body["warnings"], version)
    _check({"type": "response", **body["response"]}, METADATA)


def check_finish(reason: Any, usage: Json, version: int) -> None:
    if version == 2:
        assert reason in FINISHES | {"unknown"}
        assert set(usage) <= NUMBERS and all(type(value) is int for value in usage.values())
        return
    assert set(reason) == {"unified", "raw"} and reason["unified"] in FINISHES and isinstance(reason["raw"], str)
    assert set(usage) == {"inputTokens", "outputTokens", "raw"}
    assert set(usage["inputTokens"]) == {"total", "noCache", "cacheRead", "cacheWrite"}
    assert set(usage["outputTokens"]) == {"total", "text", "reasoning"}
    assert all(type(value) is int for side in ("inputTokens", "outputTokens") for value in usage[side].values())


def check_warnings(warnings: list[Json], version: int) -> None:
    for warning in warnings:
        kind = warning["type"]
        assert kind in ("unsupported", "unsupported-tool", "other")
        assert kind != "unsupported-tool" or isinstance(warning["tool"], dict)
        assert kind != "other" or isinstance(warning["message"], str)
        assert kind != "unsupported" or (warning["feature"] and (("setting" in warning) is (version == 2)))


def _check(part: Json, shape: Json) -> None:
    known = {name.rstrip("?"): (kind, name.endswith("?")) for name, kind in shape.items()}
    assert set(part) - {"type"} <= set(known), part
    for name, (kind, optional) in known.items():
        assert name in part or optional, (name, part)
        assert name not in part or kind is object or isinstance(part[name], kind), (name, part)


def check_order(parts: list[Json]) -> None:
    """Blocks are started before they go on and ended before the next begins; calls follow their input; the first part
    has the warnings, the last is the finish."""
    assert parts[0]["type"] == "stream-start" and parts[-1]["type"] == "finish"
    assert [part["type"] for part in parts].count("finish") == 1
    used: set[tuple[str, str]] = set()
    opened: tuple[str, str] | None = None
    for part in parts:
        kind, _, step = part["type"].rpartition("-")
        if kind not in ("text", "reasoning"):
            continue
        place = (kind, part["id"])
        if step == "start":
            assert opened is None and place not in used
            opened = place
            used.add(place)
        else:
            assert opened == place
            opened = None if step == "end" else opened
    broken = any(part["type"] == "error" for part in parts)
    assert opened is None or broken
    started = [part["id"] for part in parts if part["type"] == "tool-input-start"]
    ended = [part["id"] for part in parts if part["type"] == "tool-input-end"]
    whole = [part["toolCallId"] for part in parts if part["type"] == "tool-call" and not part.get("providerExecuted")]
    assert ended == whole and (sorted(started) == sorted(ended) or broken)
