"""Removes hosted tools that a request offers without requiring them."""

from msgspec.structs import replace

from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest, Conversation, VendorTool, WebSearch
from gateway.neutral.request import Request
from gateway.providers import offload
from gateway.providers.protocol import Call, Codec, Target

SEARCH = "web_search"


def without_offers(request: Request, key: str) -> Request:
    """Return the request without its optional hosted tools, with a warning for each; unchanged when it has none. `key`
    is the key of the mapping that lacks them."""
    needs = request.requirements
    if not isinstance(request, ChatRequest) or not (needs.search_offered or needs.hosted):
        return request
    read = request.conversation
    kinds = dict.fromkeys(
        tool.kind if isinstance(tool, VendorTool) else SEARCH for tool in read().tools if _is_hosted(tool)
    )
    reported = tuple(f"tools: {kind} was left out: {key} has no such tool." for kind in kinds)
    return request.with_conversation(
        lambda: _strip(read()),
        requirements=replace(needs, web_search=False, search_offered=False, hosted=""),
        native=None,
        warnings=(*request.warnings, *reported),
    )


def write_bare(codec: Codec, request: Request, target: Target, error: NotSupported) -> Call:
    """Return the call without the optional tools. Raises `error` when there are none or when this fails too."""
    bare = without_offers(request, target.mapping.key)
    if bare is request:
        raise error from None
    try:
        call = offload.write(codec, bare, target)
    except NotSupported:
        raise error from None
    call.warnings = (*bare.warnings[len(request.warnings) :], *call.warnings)
    return call


def _is_hosted(tool: object) -> bool:
    return isinstance(tool, WebSearch) or (isinstance(tool, VendorTool) and not tool.instead)


def _strip(conversation: Conversation) -> Conversation:
    tools = tuple(tool for tool in conversation.tools if not _is_hosted(tool))
    return replace(conversation, tools=tools, tool_choice=conversation.tool_choice if tools else None)
