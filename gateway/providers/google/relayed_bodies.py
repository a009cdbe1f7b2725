"""Bodies of callers who speak this format themselves: which of them a model accepts as they are."""

from typing import Any

from gateway.dialects.google import OWN_FIELDS
from gateway.neutral.chat import ChatRequest
from gateway.providers.google.traits import Traits
from gateway.providers.protocol import Target

Body = dict[str, Any]


def can_relay(body: Body, target: Target, traits: Traits) -> bool:
    """Return whether the model accepts the thinking, the tools and the history of a native body. Others are rebuilt."""
    config = body.get("generationConfig") or {}
    thinking = config.get("thinkingConfig")
    if thinking and (not target.mapping.reasoning or not _thinks(thinking, traits)):
        return False
    kinds = {name for tool in body.get("tools") or () for name in tool}
    if "googleSearch" in kinds and not target.mapping.web_search:
        return False
    if not traits.mixed_tools and kinds and (len(kinds) > 1 or config.get("responseMimeType") == "application/json"):
        return False
    if not traits.json_schema and ("responseJsonSchema" in config or _has_json_schemas(body)):
        return False
    return not (traits.signed and _lacks_signature(body))


def _thinks(thinking: Body, traits: Traits) -> bool:
    """Return whether the thinking is set as the model's generation expects it."""
    if thinking.get("thinkingLevel"):
        return traits.levels and thinking.get("thinkingBudget") is None
    return True


def _has_json_schemas(body: Body) -> bool:
    tools = body.get("tools") or ()
    declarations = (declaration for tool in tools for declaration in tool.get("functionDeclarations") or ())
    return any("parametersJsonSchema" in declaration for declaration in declarations)


def _lacks_signature(body: Body) -> bool:
    """Return whether the first call of a content has no signature, as those of other vendors' models have none."""
    for content in body["contents"]:
        calls = [part for part in content.get("parts") or () if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            return True
    return False


def capped(body: Body, cap: int | None) -> Body:
    """Return a copy of the body with at most `cap` output tokens."""
    body = dict(body)
    if cap is not None:
        config = dict(body.get("generationConfig") or {})
        limit = config.get("maxOutputTokens")
        if not isinstance(limit, int) or limit > cap:
            body["generationConfig"] = config | {"maxOutputTokens": cap}
    return body


def add_own_fields(body: Body, request: ChatRequest) -> None:
    """Add the members of the caller's body that only this format has, to one that was rebuilt."""
    own = request.options.extra.get(OWN_FIELDS)
    if not own:
        return
    for name, value in own.items():
        if name == "generationConfig":
            body[name] = {**body.get(name, {}), **value}
        else:
            body[name] = value
