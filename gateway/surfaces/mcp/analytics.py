"""The tools that report on the account: free, and available even when a limit is reached."""

from gateway.reports.scope import ReportScope, scope_of_caller
from gateway.surfaces.mcp import tool_schemas
from gateway.surfaces.mcp.tool_results import Json, ToolContext, structured


def _scope(ctx: ToolContext) -> ReportScope:
    """Return the caller's scope. It is read for each call, since permissions can change."""
    return scope_of_caller(ctx.caller)


def get_account(ctx: ToolContext, arguments: tool_schemas.NoArguments) -> Json:
    reports = ctx.services.billing.reports
    return structured(reports.get_account(_scope(ctx)))


def get_usage(ctx: ToolContext, arguments: tool_schemas.UsageArguments) -> Json:
    reports = ctx.services.billing.reports
    given = arguments.from_date, arguments.to_date, arguments.granularity
    return structured(reports.get_usage(_scope(ctx), *given))


def get_usage_breakdown(ctx: ToolContext, arguments: tool_schemas.BreakdownArguments) -> Json:
    reports = ctx.services.billing.reports
    given = arguments.group_by, arguments.sort_by, arguments.from_date, arguments.to_date
    return structured(reports.get_usage_breakdown(_scope(ctx), *given, arguments.limit, arguments.offset))
