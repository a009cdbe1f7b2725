"""The tools that vendors offer beside functions: who runs them, what they are billed by, and how much one answer uses.

One table for all vendors. A tool that a vendor publishes and that has no row has no known price: see
routing/hosted_rules.py, which decides who may use it. Prices are in the catalogue, by the units of the rows.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from gateway.dialects import anthropic, google
from gateway.dialects import responses_vocabulary as responses
from gateway.neutral.hosted_uses import TOOL_MODEL_COUNTS, HostedUse, Payment, is_stored
from gateway.neutral.units import PROVIDER_TOOLS

Json = dict[str, Any]
Kind = Literal["caller", "tokens", "units", "unknown"]
IMAGE_COUNTS = ("image_tool_text", "image_tool_image", "image_tool_output")
MODEL_COUNTS = tuple(TOOL_MODEL_COUNTS.values())
MAX_ADVICE_TOKENS = 32_000
OBJECT: Payment = "object"
# Prefixes of media in a part of an unknown type, and the member with base64.
MEDIA = ("https://", "http://", "data:")
DATA = "data"
RESULT = "_result"  # in the types of what tools of earlier turns returned


class HostedTool(NamedTuple):
    """A kind of tool. `type` is its name in a request; the types of a name that ends with _ begin with it.

    `payment`: "caller" for a tool that the caller runs; "tokens": what it reads and writes is in the answer's tokens;
    "units": it is billed by `units` in addition; "unknown": by something that the gateway does not know. `uses` is the
    most uses in one answer if neither the caller (in the tool's member `limit`) nor the vendor limits them, and
    `reported` the count in which the readers of answers report them, as described in `counted`. `models` are members
    that name another model, `default` the model without one. `objects` are members that name objects of the
    provider's account.
    """

    vendor: str
    type: str
    payment: Kind
    units: tuple[str, ...] = ()
    uses: int = 0
    counted: str = ""
    reported: str = ""
    limit: str = ""
    models: tuple[str, ...] = ()
    default: str = ""
    objects: tuple[str, ...] = ()
    timed: bool = False


# fmt: off
# Sources: https://platform.claude.com/docs/en/about-claude/pricing and docs/en/agents-and-tools/tool-use,
# https://developers.openai.com/api/docs/pricing, https://docs.x.ai/developers/models,
# https://ai.google.dev/gemini-api/docs/pricing, https://cloud.google.com/vertex-ai/generative-ai/pricing
CLAUDE, OPENAI, GEMINI = anthropic.NAME, responses.NAME, google.NAME
CALLERS = {
    CLAUDE: (
        "custom", "bash_", "text_editor_", "computer_", "memory_", "computer_toolset_", "browser_toolset_",
    ),
    OPENAI: (
        "function", "custom", "namespace", "local_shell", "apply_patch", "computer", "computer_use",
        "computer_use_preview",
    ),
    GEMINI: ("functionDeclarations", "computerUse"),
}
HOSTED_TOOLS: tuple[HostedTool, ...] = (
    *(HostedTool(vendor, kind, "caller") for vendor, kinds in CALLERS.items() for kind in kinds),
    HostedTool(CLAUDE, "web_search_", "units", ("searches",), 5, "usage.server_tool_use.web_search_requests, otherwise "
               "its results without an error", "searches", "max_uses"),
    HostedTool(CLAUDE, "web_fetch_", "tokens"),
    HostedTool(CLAUDE, "tool_search_tool_", "tokens"),
    HostedTool(CLAUDE, "mcp_toolset", "tokens"),
    HostedTool(CLAUDE, "code_execution_", "units", ("code_sessions",), 12, "five minutes that the answer takes, if it "
               "names a container or has results of code", "code_sessions", timed=True),
    HostedTool(CLAUDE, "advisor_", "units", MODEL_COUNTS, 3, "tokens of usage.iterations of the type advisor_message, "
               "otherwise its results", limit="max_uses", models=("model",)),
    HostedTool(OPENAI, "web_search", "units", ("searches",), 5, "tool_usage.web_search, otherwise web_search_call "
               "items that search", "searches"),
    HostedTool(OPENAI, "web_search_preview", "units", ("preview_searches",), 5, "as web_search", "searches"),
    HostedTool(OPENAI, "file_search", "units", ("file_searches",), 5, "file_search_call items", "file_searches",
               objects=("vector_store_ids",)),
    HostedTool(OPENAI, "code_interpreter", "units", ("code_sessions",), 1, "containers of code_interpreter_call items, "
               "by gigabytes of memory", "code_sessions"),
    HostedTool(OPENAI, "shell", "units", ("code_sessions",), 1, "containers of shell_call items, by gigabytes of "
               "memory", "code_sessions"),
    HostedTool(OPENAI, "image_generation", "units", IMAGE_COUNTS, 1, "tokens of tool_usage.image_gen",
               models=("model",), default="gpt-image-2"),
    HostedTool(OPENAI, "x_search", "units", ("tool_calls",), 5, "x_search_call items", "tool_calls"),
    HostedTool(OPENAI, "mcp", "tokens", objects=("tunnel_id",)),
    HostedTool(OPENAI, "tool_search", "tokens"),
    HostedTool(GEMINI, "googleSearch", "units", ("searches",), 5, "webSearchQueries; before Gemini 3: answers that "
               "have some", "searches"),
    HostedTool(GEMINI, "googleSearchRetrieval", "units", ("searches",), 5, "as googleSearch", "searches"),
    HostedTool(GEMINI, "enterpriseWebSearch", "units", ("enterprise_searches",), 5, "as googleSearch", "searches"),
    HostedTool(GEMINI, "googleMaps", "units", ("map_searches",), 1, "answers with places", "map_searches"),
    HostedTool(GEMINI, "retrieval", "units", ("retrievals",), 1, "answers with retrieved contexts", "retrievals",
               objects=("vertexAiSearch", "vertexRagStore", "externalApi")),
    HostedTool(GEMINI, "fileSearch", "tokens", objects=("fileSearchStoreNames",)),
    HostedTool(GEMINI, "codeExecution", "tokens"),
    HostedTool(GEMINI, "urlContext", "tokens"),
    HostedTool(GEMINI, "mcpServers", "tokens"),
)
# fmt: on
# A tool that has a unit of its own and no row is billed by its calls.
BY_CALL = tuple(
    HostedTool(OPENAI, tool.type, "units", (unit.count,), unit.maximum, f"{tool.item} items", unit.count)
    for tool, unit in PROVIDER_TOOLS.items()
)
WHOLE = {(row.vendor, row.type): row for row in (*BY_CALL, *HOSTED_TOOLS) if not row.type.endswith("_")}
DATED = tuple(row for row in HOSTED_TOOLS if row.type.endswith("_"))
# Without a name of their own in the types: dated versions of the OpenAI tools.
VERSIONS = {"web_search_2025_08_26": "web_search", "web_search_preview_2025_03_11": "web_search_preview"}
# With these versions of its web tools the vendor runs code without charging for it (pricing page, "Code execution").
FREE_CODE = ("web_search_2026", "web_fetch_2026")
SKILLS = (CLAUDE, "inline")  # types of skills that are the vendor's own, or written in the request
GIGABYTES = {"1g": 1, "4g": 4, "16g": 16, "64g": 64}
SEARCH = HostedUse("", "web_search", "units", ("searches",), "searches", most=5)


def find_tool(vendor: str, kind: str) -> HostedTool | None:
    """Return the row of a type of tool; None for a type that is not known."""
    row = WHOLE.get((vendor, VERSIONS.get(kind, kind)))
    if row is not None:
        return row
    return next((row for row in DATED if row.vendor == vendor and kind.startswith(row.type)), None)


def tool_uses(vendor: str, kind: str, tool: Mapping[str, Any], others: Iterable[str] = ()) -> list[HostedUse]:
    """Return what a tool of a request uses; `others` are the types of all tools of the request."""
    row = find_tool(vendor, kind)
    if row is None:
        return [HostedUse(vendor, kind, "unknown")]
    if row.payment == "caller" or (kind == "shell" and not _is_hosted_shell(tool)):
        return []
    found = [HostedUse(vendor, f"{kind}.{name}", OBJECT) for name in row.objects if tool.get(name)]
    container = tool.get("container") if kind == "code_interpreter" else tool.get("environment")
    found += _objects_of(vendor, kind, container)
    if row.payment == "tokens":
        return [*found, HostedUse(vendor, kind, "tokens")]
    if kind == "image_generation" and (tool.get("svg") or tool.get("output_format") == "svg"):
        return [*found, HostedUse(vendor, "image_generation with svg", "unknown")]
    return [*found, _in_units(row, kind, tool, container, others)]


def _in_units(row: HostedTool, kind: str, tool: Mapping[str, Any], container: Any, others: Iterable[str]) -> HostedUse:
    times = 1
    if row.reported == "code_sessions":
        if row.timed and any(other.startswith(FREE_CODE) for other in others):
            return HostedUse(row.vendor, kind, "units", (), row.reported, 0)
        if not row.timed:
            times = _gigabytes(container)
    limit = tool.get(row.limit)
    most = limit if type(limit) is int and 0 < limit <= 1000 else row.uses
    models = tuple(name for member in row.models if isinstance(name := tool.get(member), str) and name)
    if row.default and not models:
        models = (row.default,)
    output = 0
    if row.units is MODEL_COUNTS:
        asked = tool.get("max_tokens")
        output = asked if type(asked) is int and 0 < asked < MAX_ADVICE_TOKENS else MAX_ADVICE_TOKENS
    # Every vendor with a web search carries that of another.
    vendor = "" if row.units == SEARCH.billed else row.vendor
    return HostedUse(vendor, kind, "units", row.units, row.reported, times, row.timed, most, models, output)


def _gigabytes(container: Any) -> int:
    """Return the memory of a container in gigabytes; one that only the vendor knows counts as the largest."""
    if isinstance(container, dict) and str(container.get("type", "")).endswith("auto"):
        return GIGABYTES.get(container.get("memory_limit") or "1g", max(GIGABYTES.values()))
    if container is None:
        return 1
    return max(GIGABYTES.values())


def _is_hosted_shell(tool: Mapping[str, Any]) -> bool:
    environment = tool.get("environment")
    return isinstance(environment, dict) and environment.get("type") != "local"


def _objects_of(vendor: str, kind: str, container: Any) -> list[HostedUse]:
    """Return the objects of the provider's account that a container is, or has in it."""
    named = container.get("container_id") if isinstance(container, dict) else container
    if named:
        return [HostedUse(vendor, f"{kind}.container", OBJECT, ident=named if isinstance(named, str) else "")]
    if isinstance(container, dict):
        skills = container.get("skills")
        own = [skill for skill in skills if _is_own_skill(skill)] if isinstance(skills, list) else []
        members = [name for name in ("file_ids",) if container.get(name)] + ["skills"] * bool(own)
        return [HostedUse(vendor, f"{kind}.{name}", OBJECT) for name in members]
    return []


def _is_own_skill(skill: Any) -> bool:
    """Return whether a skill is stored in the account, and neither the vendor's nor written in the request."""
    return not isinstance(skill, dict) or skill.get("type") not in SKILLS


def container_uses(vendor: str, container: Any) -> list[HostedUse]:
    """Return what the member `container` of a body uses."""
    if isinstance(container, dict) and container.get("id"):
        named = container["id"]
        found = [HostedUse(vendor, "container", OBJECT, ident=named if isinstance(named, str) else "")]
        return found + _objects_of(vendor, "container", {"skills": container.get("skills")})
    return _objects_of(vendor, "container", container)


def named_models(vendor: str, name: str, models: Iterable[Any], output: int = 0) -> list[HostedUse]:
    """Return the use of further models that a member of a body names: they answer in place of its model, or beside
    it."""
    known = tuple(model for model in models if isinstance(model, str) and model)
    return [HostedUse(vendor, name, "units", MODEL_COUNTS, models=(model,), output=output) for model in known]


def part_uses(vendor: str, kind: str, body: Any) -> list[HostedUse]:
    """Return the uses of a part of an unknown type: the tools that it defines, the models and stored files that it
    names, and its media, which have an unknown size, anywhere in it."""
    found: list[HostedUse] = []
    left = [body]
    while left:
        value = left.pop()
        if isinstance(value, str):
            found += _media_uses(vendor, kind, value)
        if isinstance(value, list):
            left += value
        if not isinstance(value, dict):
            continue
        left += value.values()
        inner = value.get("type")
        if "definition" in value and isinstance(value["definition"], dict):
            tool = value["definition"]
            found += tool_uses(vendor, str(tool.get("type") or "custom"), tool)
        elif value is not body and isinstance(inner, str) and RESULT not in inner and find_tool(vendor, inner):
            found += tool_uses(vendor, inner, value)
        if isinstance(value.get("model"), str):
            found.append(HostedUse(vendor, f"{kind}.model", "unknown", models=(value["model"],)))
        if isinstance(value.get(DATA), str):
            found.append(HostedUse(vendor, kind, "tokens"))
        if isinstance(value.get("file_id"), str):
            found.append(HostedUse(vendor, f"{kind}.file_id", OBJECT))
    return list(dict.fromkeys(found))


def _media_uses(vendor: str, kind: str, text: str) -> list[HostedUse]:
    """Return the use of a text of such a part that is the address or the content of media."""
    if is_stored(text):
        return [HostedUse(vendor, f"{kind}.file_id", OBJECT)]
    return [HostedUse(vendor, kind, "tokens")] if text.startswith(MEDIA) else []
