"""Options for spending limits, which keys and budgets share, and the presentation of a key's spending."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click

from llmgateway_cli.context import ClientContext
from llmgateway_cli.errors import CliError
from llmgateway_cli.shapes import object_of
from llmgateway_cli.values import DEFAULT_PERIOD, NO_VALUE, read_limit, read_period, show_period, show_usd

Decorated = Callable[..., Any]
LIMITS = ("usageLimit", "periodUsageLimit", "periodUsageDurationValue", "periodUsageDurationUnit")
SPENDING = ("id", "description", "usage", *LIMITS, "currentPeriodUsage")


def key_path(key_id: str, action: str = "") -> str:
    """Return the path of a key. Text that is no id stays one segment."""
    return f"/keys/api/{quote(key_id, safe='')}{action}"


def limit_options(command: Decorated) -> Decorated:
    """Add `--limit`, `--period-limit` and `--period` to a command."""
    options = (
        click.option("-l", "--limit", metavar="USD", help="Total spending limit, such as 100 or 49.99."),
        click.option("--period-limit", metavar="USD", help="Spending limit of a rolling period."),
        click.option("--period", metavar="DURATION", help="Length of the period: 12h, 1d, 2w, 1mo (default: 1mo)."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def read_limits(limit: str | None, period_limit: str | None, period: str | None) -> dict[str, Any]:
    """Return the members of a request that set these limits. Raises CliError for a period without its limit."""
    members: dict[str, Any] = {}
    if period is not None and period_limit is None:
        raise CliError("--period has no effect without --period-limit.", "Give both, or none of them.")
    if limit is not None:
        members["usageLimit"] = read_limit(limit, "--limit")
    if period_limit is not None:
        members["periodUsageLimit"] = read_limit(period_limit, "--period-limit")
        length = DEFAULT_PERIOD
        if period is not None:
            length = read_period(period)
        members["periodUsageDurationValue"] = length.value
        members["periodUsageDurationUnit"] = length.unit
    return members


def set_limits(
    context: ClientContext, key_id: str, limit: str | None, period_limit: str | None, period: str | None, clear: bool
) -> None:
    """Set or remove the limits of a key, and print its spending."""
    members = read_limits(limit, period_limit, period)
    if clear and members:
        raise CliError("--clear removes every limit; it cannot set one.", "Give --clear, or limits.")
    if clear:
        members = dict.fromkeys(LIMITS)
    if not members:
        raise CliError("There is nothing to set.", "Give --limit, --period-limit (with --period), or --clear.")
    key = object_of(
        context.client.management("PATCH", f"/keys/api/limit/{quote(key_id, safe='')}", body=members), "apiKey"
    )
    context.output.success(f"The limits of {key.get('description')!r} were set.")
    show_spending(context, key)


def show_spending(context: ClientContext, key: dict[str, Any]) -> None:
    """Print what a key spent, and its limits."""
    if context.output.as_json:
        context.output.document({name: key.get(name) for name in SPENDING})
        return
    context.output.fields(
        (
            ("Key", f"{key.get('description')} ({key.get('id')})"),
            ("Total spend", _spending(key.get("usage"), key.get("usageLimit"))),
            ("Period spend", _period_spending(key)),
        )
    )


def _spending(used: Any, limit: Any) -> str:
    if limit is None:
        return f"{show_usd(used)} (limit not set)"
    return f"{show_usd(used)} / {show_usd(limit)}"


def _period_spending(key: dict[str, Any]) -> str:
    if key.get("periodUsageLimit") is None:
        return "limit not set"
    used = _spending(key.get("currentPeriodUsage"), key["periodUsageLimit"])
    return f"{used} per {show_period(key.get('periodUsageDurationValue'), key.get('periodUsageDurationUnit'))}"


def period_limit_of(key: dict[str, Any]) -> str:
    """Return a key's limit of a period, such as `$10.00 per day`."""
    limit = key.get("periodUsageLimit")
    if limit is None:
        return NO_VALUE
    return (
        f"{show_usd(limit)} per {show_period(key.get('periodUsageDurationValue'), key.get('periodUsageDurationUnit'))}"
    )
