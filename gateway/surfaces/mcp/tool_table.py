"""The table of tools, and the execution of a tool call."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from gateway.errors import GatewayError, RateLimited, Unavailable, UpstreamTimeout
from gateway.reports.report_answers import AccountReport, BreakdownReport, UsageReport
from gateway.surfaces.answer_structs import describe_answer
from gateway.surfaces.mcp import analytics, generation, model_tools, tool_schemas
from gateway.surfaces.mcp.json_rpc import TIMED_OUT, Fault
from gateway.surfaces.mcp.tool_results import Json, ToolContext, failed

READ_ONLY = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
MAKING = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True}


class OfferedTool(Struct, frozen=True):
    """A tool: `arguments` is the struct that validates them; `output` the type of structured content, None
    without any."""

    name: str
    title: str
    description: str
    arguments: type
    run: Callable[[ToolContext, Any], Json]
    output: type | None = None
    hints: Json | None = None

    def show(self) -> Json:
        """Return its entry in the list of tools."""
        shown: Json = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": tool_schemas.schema_of(self.arguments),
        }
        if self.output is not None:
            shown["outputSchema"] = describe_answer(self.output)
        return shown | {"annotations": self.hints or READ_ONLY}


class Toolbox:
    """All tools by name: the product's, and `more`."""

    def __init__(self, more: Iterable[OfferedTool] = ()) -> None:
        self._tools = {tool.name: tool for tool in (*_tools(), *more)}
        self.shown = [tool.show() for tool in self._tools.values()]

    def find(self, name: Any) -> OfferedTool | None:
        if isinstance(name, str):
            return self._tools.get(name)
        return None


def call(tool: OfferedTool, ctx: ToolContext, given: Any) -> tuple[Json, GatewayError | None]:
    """Return the result, and the error if it reports one. RateLimited is raised, because clients read its header.
    Raises Fault for a timeout."""
    try:
        return tool.run(ctx, tool_schemas.read(tool.arguments, given)), None
    except RateLimited:
        raise
    except GatewayError as error:
        if isinstance(error, UpstreamTimeout) and ctx.services.clock.monotonic() >= ctx.deadline:
            raise _too_late(ctx, error) from None
        if isinstance(error, Unavailable) and tool.run.__module__ == analytics.__name__:
            error = Unavailable("Account data is temporarily unavailable; try again.")
        return failed(error), error


def _too_late(ctx: ToolContext, error: GatewayError) -> Fault:
    limit_s = ctx.services.settings.mcp.tool_timeout_s
    data = {"code": "tool_timeout", "timeout": round(limit_s * 1000)}
    return Fault(TIMED_OUT, f"The tool timed out after {limit_s:g} s.", data=data, error=error)


def _tools() -> list[OfferedTool]:
    return [
        OfferedTool(
            "get-account",
            "Account",
            "The owner of this API key (user, organization, project, role), its remaining limit, and credits.",
            tool_schemas.NoArguments,
            analytics.get_account,
            AccountReport,
        ),
        OfferedTool(
            "get-usage",
            "Usage",
            "Requests, tokens and costs over a period of at most 366 days (31 by the hour), in total and by day or "
            "hour, with the most used provider, model and app. Figures may lag by a minute.",
            tool_schemas.UsageArguments,
            analytics.get_usage,
            UsageReport,
        ),
        OfferedTool(
            "get-usage-breakdown",
            "Usage by provider, model, app or key",
            "Usage over a period, ranked; the next page starts at offset plus limit.",
            tool_schemas.BreakdownArguments,
            analytics.get_usage_breakdown,
            BreakdownReport,
        ),
        OfferedTool(
            "chat",
            "Chat",
            "Call a language model and return its complete response with token counts. Costs credits.",
            tool_schemas.ChatArguments,
            generation.chat,
            hints=MAKING,
        ),
        OfferedTool(
            "generate-image",
            "Generate images",
            "Generate images from a prompt. Costs credits.",
            tool_schemas.ImageArguments,
            generation.generate_image,
            hints=MAKING,
        ),
        OfferedTool(
            "generate-alt-image",
            "Generate an image by aspect ratio",
            "Generate one image from a prompt with the default image model; a server that keeps files stores it. "
            "Costs credits.",
            tool_schemas.AltImageArguments,
            generation.generate_alt_image,
            hints=MAKING,
        ),
        OfferedTool(
            "list-models",
            "Models",
            "Models that this key may call, with providers, capabilities and prices in US dollars per token.",
            tool_schemas.ListArguments,
            model_tools.list_models,
            model_tools.ModelList,
        ),
        OfferedTool(
            "list-image-models",
            "Image models",
            "Models that generate images, and the default model of generate-image.",
            tool_schemas.AnyArguments,
            model_tools.list_image_models,
            model_tools.ImageModelList,
        ),
    ]
