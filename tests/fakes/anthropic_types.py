"""The types that the `anthropic` package publishes for a request and its answer."""

from typing import Any, get_args, get_type_hints

import anthropic.types as package
from anthropic.types import (
    AnthropicBetaParam,
    AssistantMessageParam,
    BrowserToolset20260801Param,
    Message,
    RawMessageStreamEvent,
    SystemMessageParam,
    ToolBash20250124Param,
    ToolParam,
    ToolSearchToolRegex20251119Param,
    UserMessageParam,
    WebSearchTool20250305Param,
)
from anthropic.types.beta import (
    BetaCompactionBlockParam,
    BetaContextManagementConfigParam,
    BetaMCPToolsetParam,
    BetaMCPToolUseBlockParam,
    BetaRequestMCPServerURLDefinitionParam,
    BetaRequestMCPToolResultBlockParam,
)
from anthropic.types.content_block_param import ContentBlockParam
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as NonStreaming
from anthropic.types.message_create_params import MessageCreateParamsStreaming as Streaming
from fakes.published_types import PublishedUnion

__all__ = [
    "BLOCKS",
    "EVENT",
    "KNOWN_BETAS",
    "OPT_INS",
    "ROLES",
    "TOOLS",
    "Message",
    "NonStreaming",
    "Streaming",
    "package",
]

# Names that the service takes, though the types of its SDK do not list them: of the documentation ("Beta headers",
# "Fine-grained tool streaming", "Code execution", "Web fetch"), and those that Claude Code 2.1 sends.
FURTHER_BETAS = {
    *("fine-grained-tool-streaming-2025-05-14", "code-execution-2025-08-25", "web-fetch-2025-09-10"),
    *("advanced-tool-use-2025-11-20", "effort-2025-11-24", "per-turn-control-2026-07-01", "claude-code-20250219"),
    "prompt-caching-scope-2026-01-05",
}
KNOWN_BETAS = {beta for args in get_args(AnthropicBetaParam) for beta in get_args(args)} | FURTHER_BETAS
# Fields that require an opt-in header.
OPT_INS = {
    "context_management": ("context-management-2025-06-27", BetaContextManagementConfigParam),
    "mcp_servers": ("mcp-client-2025-11-20", list[BetaRequestMCPServerURLDefinitionParam]),
}
# The type of a block in an answer and its type in a request.
OPT_IN_BLOCKS = {
    "compaction": BetaCompactionBlockParam,
    "mcp_tool_use": BetaMCPToolUseBlockParam,
    "mcp_tool_result": BetaRequestMCPToolResultBlockParam,
}
ROLES = {"user": UserMessageParam, "assistant": AssistantMessageParam, "system": SystemMessageParam}
TOOLS = {
    None: ToolParam,
    "custom": ToolParam,
    "bash_20250124": ToolBash20250124Param,
    "browser_toolset_20260801": BrowserToolset20260801Param,
    "mcp_toolset": BetaMCPToolsetParam,
    "web_search_20250305": WebSearchTool20250305Param,
    "tool_search_tool_regex_20251119": ToolSearchToolRegex20251119Param,
}
# The types of request blocks, by `type`.
BLOCKS: dict[str, Any] = {get_args(get_type_hints(shape)["type"])[0]: shape for shape in get_args(ContentBlockParam)}
BLOCKS.update(OPT_IN_BLOCKS)
# The events of a streamed answer.
EVENT = PublishedUnion(RawMessageStreamEvent)
