"""Items and tools of a request as typed values: the same validation for received and for stored ones."""

from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins

from gateway.neutral.parts import NAME_LENGTH
from gateway.neutral.units import PROVIDER_TOOLS
from gateway.surfaces.bodies.validation_errors import NUMBERS, PDF_NAME, either, explain, invalid, is_document, words_of
from gateway.surfaces.responses import schema

Item = (
    schema.Message
    | schema.FunctionCall
    | schema.CustomCall
    | schema.FunctionOutput
    | schema.CustomOutput
    | schema.Reasoning
    | schema.Compaction
    | schema.VendorItem
)
Tool = schema.FunctionTool | schema.CustomTool | schema.NamespaceTool | schema.WebSearchTool | schema.VendorItem

ITEMS: dict[str, type[Struct]] = {
    "message": schema.Message,
    "function_call": schema.FunctionCall,
    "custom_tool_call": schema.CustomCall,
    "function_call_output": schema.FunctionOutput,
    "custom_tool_call_output": schema.CustomOutput,
    "reasoning": schema.Reasoning,
    "compaction": schema.Compaction,
}
TOOLS: dict[str, type[Struct]] = {
    "function": schema.FunctionTool,
    "custom": schema.CustomTool,
    "namespace": schema.NamespaceTool,
    "web_search": schema.WebSearchTool,
    "web_search_2025_08_26": schema.WebSearchTool,
    "web_search_preview": schema.WebSearchTool,
    "web_search_preview_2025_03_11": schema.WebSearchTool,
}
# The published members of tools (function_tool_param.py, custom_tool_param.py of the OpenAI SDK).
ANY_TOOL = frozenset(("type", "name", "description", "defer_loading", "allowed_callers", "async"))
MEMBERS = {
    "function": ANY_TOOL | {"parameters", "strict", "output_schema"},
    "custom": ANY_TOOL | {"format"},
}
# Members of tools in other formats, which clients leave in them and servers of this dialect refuse.
OTHER_MEMBERS = frozenset(
    ("cache_control", "input_schema", "inputSchema", "function", "custom", "input_examples", "eager_input_streaming")
)
KNOWN_MEMBERS = MEMBERS["function"] | OTHER_MEMBERS
REFERENCE = "item_reference"
# Codex' notes on an item for OpenAI's own service: other servers of this dialect refuse them.
PASSTHROUGH = "internal_chat_message_metadata_passthrough"
# The members with content parts, by the type of the item.
CONTENT = {"message": "content", "function_call_output": "output", "custom_tool_call_output": "output"}
PARTS = frozenset(("input_text", "output_text", "refusal", "input_image", "input_file", "input_audio"))
UNKNOWN = "unknown"
# Items of server tools. The id of the first kinds only refers to the server's store: it is left out, since nothing is
# stored there. The other kinds are identified by their id.
FOREIGN_WITHOUT_ID = frozenset(
    (
        "web_search_call",
        "local_shell_call",
        "shell_call",
        "shell_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
        "tool_search_call",
        "tool_search_output",
        "additional_tools",
        "configuration_update",
        "compaction_trigger",
    )
)
FOREIGN_WITH_ID = frozenset(
    (
        "image_generation_call",
        "local_shell_call_output",
        "computer_call",
        "computer_call_output",
        *(tool.item for tool in PROVIDER_TOOLS),
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "program",
        "program_output",
    )
)
FOREIGN_TOOLS = frozenset(
    (
        *(tool.type for tool in PROVIDER_TOOLS),
        "computer",
        "computer_use",
        "computer_use_preview",
        "mcp",
        "programmatic_tool_calling",
        "image_generation",
        "local_shell",
        "shell",
        "apply_patch",
        "tool_search",
    )
)


def kind_of(item: dict[str, Any]) -> str:
    """Return the type of an item; a message and a reference may omit it (easy_input_message.py, ItemReference of the
    OpenAI SDK)."""
    kind = item.get("type")
    if kind is None:
        if "role" in item:
            return "message"
        return REFERENCE if set(item) == {"id"} else ""
    if isinstance(kind, str):
        return kind
    return ""


def read_item(item: dict[str, Any], path: str, *, newer: bool = False) -> Item:
    """Return one item of `input`, without its id. With `newer`, content parts of unknown types are kept for servers of
    this dialect. Raises InvalidRequest with the dotted path of the invalid value."""
    kind = kind_of(item)
    shape = ITEMS.get(kind)
    if shape is not None:
        if newer:
            item = _wrap_unknown(item)
        return _normalize(_convert(item, shape, path))
    if PASSTHROUGH in item:
        item = {key: value for key, value in item.items() if key != PASSTHROUGH}
    if kind in FOREIGN_WITHOUT_ID:
        return schema.VendorItem(kind, {key: value for key, value in item.items() if key != "id"})
    if kind and kind != REFERENCE:
        return schema.VendorItem(kind, item)  # also a kind that is newer than this gateway: its server reads it
    known = (*ITEMS, REFERENCE, *sorted(FOREIGN_WITHOUT_ID), *sorted(FOREIGN_WITH_ID))
    raise invalid(f"{path}.type", f"{item.get('type')!r} is not one of {either(known)}")


def read_tool(tool: dict[str, Any], path: str) -> Tool:
    """Return one entry of `tools`. Raises InvalidRequest with the dotted path of the invalid value."""
    kind = tool.get("type")
    shape = TOOLS.get(kind) if isinstance(kind, str) else None
    if shape is not None:
        made: Tool = _convert({name: value for name, value in tool.items() if name != "newer"}, shape, path)
        if type(made) is schema.FunctionTool:
            made.newer = tuple(name[:NAME_LENGTH] for name in tool if name not in KNOWN_MEMBERS)
        return made
    if isinstance(kind, str) and kind:
        return schema.VendorItem(kind, tool)  # also a kind that is newer than this gateway: its server reads it
    raise invalid(f"{path}.type", f"{kind!r} is not one of {either((*TOOLS, *sorted(FOREIGN_TOOLS)))}")


def write_item(item: Item) -> dict[str, Any]:
    """Return the item as a JSON object, as it is stored and shown."""
    if isinstance(item, schema.VendorItem):
        return item.body
    written: dict[str, Any] = to_builtins(item)
    member = CONTENT.get(written["type"])
    if member is not None and isinstance(written[member], list):
        written[member] = [part["body"] if part["type"] == UNKNOWN else part for part in written[member]]
    return written


def unknown_parts(item: Item) -> list[schema.UnknownPart]:
    """Return the content parts of unknown types."""
    content = getattr(item, CONTENT.get(str(item.__struct_config__.tag), ""), None)
    if type(content) is not list:
        return []
    return [part for part in content if isinstance(part, schema.UnknownPart)]


def _wrap_unknown(item: dict[str, Any]) -> dict[str, Any]:
    """Return the item with its content parts of unknown types as UnknownPart."""
    member = CONTENT.get(kind_of(item), "")
    content = item.get(member)
    if not isinstance(content, list):
        return item
    return {**item, member: [_wrap_part(part) for part in content]}


def _wrap_part(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or not kind or kind in PARTS:
        return part
    return {"type": UNKNOWN, "kind": kind, "body": part}


def user_text(text: str) -> dict[str, Any]:
    """Return a plain text `input` as an item."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _convert(value: dict[str, Any], shape: type[Struct], path: str) -> Any:
    try:
        return convert(value, shape)
    except ValidationError as error:
        place = NUMBERS.sub("", path)
        words = {f"{place}.{name}": words for name, words in words_of(shape).items()}
        raise explain(_with_place(str(error), path), words) from None


def _with_place(text: str, path: str) -> str:
    """Convert a validation message about an inner value to one about the whole body."""
    place = "$." + path
    if " - at `$" in text:
        return text.replace(" - at `$", f" - at `{place}", 1)
    return f"{text} - at `{place}`"


def _normalize(item: Item) -> Item:
    """Write out implied values: the service requires the detail of an image in a message. A PDF among images is a
    file."""
    content = item.content if type(item) is schema.Message else getattr(item, "output", None)
    if type(content) is list:
        for place, part in enumerate(content):
            if type(part) is not schema.ImagePart:
                continue
            if part.image_url and is_document(part.image_url):
                content[place] = schema.FilePart(file_data=part.image_url, filename=PDF_NAME)
            elif part.detail is None:
                part.detail = "auto"
    return item
