"""The tools that report on the account: free, and answered whatever limit is reached."""

from gateway.reports.scope import ReportScope, scope_of_caller
from gateway.surfaces.mcp import schemas
from gateway.surfaces.mcp.answers import Asked, Json, structured


def _scope(asked: Asked) -> ReportScope:
    """Asked at each call: who may see what is looked up in what the worker knows now."""
    return scope_of_caller(asked.caller)


def get_account(asked: Asked, arguments: schemas.NoArguments) -> Json:
    reports = asked.services.billing.reports
    return structured(reports.get_account(_scope(asked)))


def get_usage(asked: Asked, arguments: schemas.UsageArguments) -> Json:
    reports = asked.services.billing.reports
    given = arguments.from_date, arguments.to_date, arguments.granularity
    return structured(reports.get_usage(_scope(asked), *given))


def get_usage_breakdown(asked: Asked, arguments: schemas.BreakdownArguments) -> Json:
    reports = asked.services.billing.reports
    given = arguments.group_by, arguments.sort_by, arguments.from_date, arguments.to_date
    return structured(reports.get_usage_breakdown(_scope(asked), *given, arguments.limit, arguments.offset))
