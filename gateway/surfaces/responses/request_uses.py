"""The uses of a Responses request at its provider beside its model."""

from collections.abc import Iterable
from typing import Any

from gateway.dialects.hosted_tools import named_models, part_uses, tool_uses
from gateway.dialects.responses_vocabulary import LATER_TOOLS, NAME
from gateway.neutral.hosted_uses import HostedUse, collect
from gateway.surfaces.responses import items as shapes
from gateway.surfaces.responses import schema

KNOWN_ITEMS = shapes.FOREIGN_WITH_ID | shapes.FOREIGN_WITHOUT_ID


def uses_of(body: schema.ResponsesBody, items: Iterable[tuple[str, shapes.Item]]) -> tuple[HostedUse, ...]:
    """Return the tools of the provider, further models and stored objects of a request; stored media are found where
    media are counted."""
    tools = list(body.tools or ())
    unknown: list[HostedUse] = []
    for _, item in items:
        if type(item) is not schema.VendorItem:
            unknown += [use for part in shapes.unknown_parts(item) for use in part_uses(NAME, part.kind, part.body)]
            continue
        if item.kind == LATER_TOOLS and isinstance(item.body.get("tools"), list):
            tools += [tool for tool in item.body["tools"] if isinstance(tool, dict)]
        elif item.kind not in KNOWN_ITEMS:
            unknown += part_uses(NAME, item.kind, item.body)
    found = unknown + [use for tool in tools for use in tool_uses(NAME, _kind_of(tool), tool)]
    if body.moderation:
        found += [use._replace(billed=()) for use in named_models(NAME, "moderation", (body.moderation.get("model"),))]
    most = body.max_tool_calls
    if most:
        found = [use._replace(most=min(use.most, most)) for use in found]
    return collect(found)


def _kind_of(tool: dict[str, Any]) -> str:
    kind = tool.get("type")
    if isinstance(kind, str):
        return kind
    return ""
