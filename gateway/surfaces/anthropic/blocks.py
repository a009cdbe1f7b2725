"""Content blocks of a messages body: their schema (Anthropic API reference, "Messages", request content blocks)."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

Name = Annotated[str, Meta(min_length=1)]


class Shape(Struct, omit_defaults=True, gc=False):
    """Unknown members are dropped; members that equal their default are left out when written again."""


class CacheControl(Shape, tag_field="type", tag="ephemeral"):
    ttl: Literal["5m", "1h"] | None = None


class Base64Source(Shape, tag_field="type", tag="base64"):
    media_type: Name
    data: Name


class UrlSource(Shape, tag_field="type", tag="url"):
    url: Name


class FileSource(Shape, tag_field="type", tag="file"):
    file_id: Name


class TextSource(Shape, tag_field="type", tag="text"):
    data: str
    media_type: str = "text/plain"


class Block(Shape, tag_field="type"):
    """A block of a message's content, distinguished by `type`."""


class TextBlock(Block, tag="text"):
    text: str
    cache_control: CacheControl | None = None
    citations: list[dict[str, Any]] | None = None


class ImageBlock(Block, tag="image"):
    source: Base64Source | UrlSource | FileSource
    cache_control: CacheControl | None = None


PDF = "application/pdf"


def is_document(block: ImageBlock) -> bool:
    """Return whether an image is a PDF, which vendors of this format take as a document only."""
    return isinstance(block.source, Base64Source) and block.source.media_type == PDF


class ContentSource(Shape, tag_field="type", tag="content"):
    content: str | list[TextBlock | ImageBlock]


class Citations(Shape):
    enabled: bool = False


class DocumentBlock(Block, tag="document"):
    source: Base64Source | TextSource | UrlSource | FileSource | ContentSource
    title: str | None = None
    context: str | None = None
    citations: Citations | None = None
    cache_control: CacheControl | None = None


class SearchResultBlock(Block, tag="search_result"):
    source: str
    title: str
    content: list[TextBlock]
    citations: Citations | None = None
    cache_control: CacheControl | None = None


class ThinkingBlock(Block, tag="thinking"):
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(Block, tag="redacted_thinking"):
    data: str


class ToolUseBlock(Block, tag="tool_use"):
    """A tool call: `input` is the JSON text of the arguments, byte for byte; `signature` the opaque token that the
    gateway added."""

    id: Name
    name: Name
    input: Raw
    cache_control: CacheControl | None = None
    caller: dict[str, Any] | None = None
    signature: str = ""


class UnknownBlock(Block, tag="unknown"):
    """A block of a type that the gateway does not know (`schema.decode` wraps it), kept unchanged for its vendor."""

    kind: Name
    body: dict[str, Any]


class ToolReferenceBlock(Block, tag="tool_reference"):
    tool_name: Name


ResultParts = list[TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock | UnknownBlock]


class ToolResultBlock(Block, tag="tool_result"):
    tool_use_id: Name
    content: str | ResultParts | None = None
    is_error: bool = False
    cache_control: CacheControl | None = None


class ServerToolUseBlock(Block, tag="server_tool_use"):
    id: Name
    name: Name
    input: Raw
    cache_control: CacheControl | None = None
    caller: dict[str, Any] | None = None


class ServerResult(Block):
    """The result of a server tool, kept unchanged for its vendor."""

    tool_use_id: Name
    content: Raw
    cache_control: CacheControl | None = None
    caller: dict[str, Any] | None = None


class WebSearchResult(ServerResult, tag="web_search_tool_result"):
    pass


class WebFetchResult(ServerResult, tag="web_fetch_tool_result"):
    pass


class CodeExecutionResult(ServerResult, tag="code_execution_tool_result"):
    pass


class BashResult(ServerResult, tag="bash_code_execution_tool_result"):
    pass


class TextEditorResult(ServerResult, tag="text_editor_code_execution_tool_result"):
    pass


class ToolSearchResult(ServerResult, tag="tool_search_tool_result"):
    pass


class AdvisorResult(ServerResult, tag="advisor_tool_result"):
    pass


class McpToolUseBlock(Block, tag="mcp_tool_use"):
    """A call that the vendor made to one of the caller's MCP servers."""

    id: Name
    name: Name
    server_name: Name
    input: Raw
    cache_control: CacheControl | None = None


class McpToolResultBlock(Block, tag="mcp_tool_result"):
    tool_use_id: Name
    content: Raw | UnsetType = UNSET
    is_error: bool = False
    cache_control: CacheControl | None = None


class McpToolListingBlock(Block, tag="mcp_tool_listing"):
    mcp_server_name: Name
    tools: Raw


class CompactionBlock(Block, tag="compaction"):
    """The summary that replaces all earlier messages; a null `content` marks a failed compaction, which is ignored."""

    content: str | None = None
    encrypted_content: str | None = None
    signature: str | None = None
    tool_changes: list[Any] | None = None
    cache_control: CacheControl | None = None


class ContainerUploadBlock(Block, tag="container_upload"):
    file_id: Name
    cache_control: CacheControl | None = None


Blocks = list[
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | ServerToolUseBlock
    | WebSearchResult
    | WebFetchResult
    | CodeExecutionResult
    | BashResult
    | TextEditorResult
    | ToolSearchResult
    | AdvisorResult
    | McpToolUseBlock
    | McpToolResultBlock
    | McpToolListingBlock
    | CompactionBlock
    | ContainerUploadBlock
    | UnknownBlock
]
