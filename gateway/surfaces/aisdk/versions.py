"""Converts a response of the newest specification version to an older one, one small step per version.

The formats are the types of `@ai-sdk/provider` 2, 3 and 4. A client of version 2 fails on parts that it does not know,
so no step may leave one in.
"""

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Step = dict[str, Callable[[Json], Json]]

NEWEST = 4
OLDEST = 2
BODY = "generate"  # the steps' name for the body of a complete response, which is no part


def takes_addresses(version: int) -> bool:
    """Return whether a file can be given by its URL; older versions accept only bytes, so there it becomes text."""
    return version == NEWEST


def downgrade_part(part: Any, version: int) -> Any:
    """Return a stream part or content part in the format of `version`."""
    if version == NEWEST:
        return part
    return _take(part, part["type"], version)


def downgrade_body(body: Any, version: int) -> Any:
    """Return the body of a complete response in the format of `version`."""
    if version == NEWEST:
        return body
    body["content"] = [downgrade_part(part, version) for part in body["content"]]
    return _take(body, BODY, version)


def _take(part: Json, kind: str, version: int) -> Json:
    for older, step in ((3, TO_3), (2, TO_2)):
        if version <= older and kind in step:
            part = step[kind](part)
    return part


def _bare_file(part: Json) -> Json:
    """Convert the data of a file to bare base64."""
    return {**part, "data": part["data"]["data"]}


def _named_setting(part: Json) -> Json:
    """Add the name of the setting under version 2's key to warnings."""
    warnings = [
        {**warning, "setting": warning["feature"]} if warning["type"] == "unsupported" else warning
        for warning in part["warnings"]
    ]
    return {**part, "warnings": warnings}


def _flat_end(part: Json) -> Json:
    """Convert the finish reason to a word and usage to one level of numbers."""
    usage = part["usage"]
    read = usage["inputTokens"]
    made = usage["outputTokens"]
    flat = {
        "inputTokens": read["total"],
        "outputTokens": made["total"],
        "totalTokens": read["total"] + made["total"],
        "reasoningTokens": made["reasoning"],
        "cachedInputTokens": read["cacheRead"],
    }
    return {**part, "finishReason": part["finishReason"]["unified"], "usage": flat}


TO_3: Step = {"file": _bare_file}
TO_2: Step = {
    "tool-result": lambda part: {**part, "providerExecuted": True},
    "stream-start": _named_setting,
    "finish": _flat_end,
    BODY: lambda body: _named_setting(_flat_end(body)),
}
