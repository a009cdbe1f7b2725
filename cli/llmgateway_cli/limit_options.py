"""Options for spending limits, which keys and budgets share, and the presentation of a key's spending."""

import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click

from llmgateway_cli.account_lists import key_id_of
from llmgateway_cli.context import ClientContext
from llmgateway_cli.errors import CliError, HttpError
from llmgateway_cli.shapes import object_of
from llmgateway_cli.values import DEFAULT_PERIOD, NO_VALUE, Period, read_limit, read_period, show_period, show_usd

Decorated = Callable[..., Any]
PERIOD_MEMBERS = ("periodUsageLimit", "periodUsageDurationValue", "periodUsageDurationUnit")
LIMITS = ("usageLimit", *PERIOD_MEMBERS)
RESERVATIONS = ("likely", "exact")
RESERVED = {"likely": "the likely cost of each request", "exact": "the highest cost of each request"}
BAD_REQUEST = 400
SPENDING = ("id", "description", "usage", *LIMITS, "currentPeriodUsage")


def key_path(key_id: str, action: str = "") -> str:
    """Return the path of a key. Text that is no id stays one segment."""
    return f"/keys/api/{quote(key_id, safe='')}{action}"


def limit_options(command: Decorated) -> Decorated:
    """Add `--limit`, `--period-limit`, `--period` and `--reservation` to a command."""
    options = (
        click.option("-l", "--limit", metavar="USD", help="Total spending limit, such as 100 or 49.99, or none."),
        click.option("--period-limit", metavar="USD", help="Spending limit of a rolling period, or none."),
        click.option(
            "--period", metavar="DURATION", help="Length of the period: 12h, 1d, 2w, 1mo (a new one: 1mo by default)."
        ),
        click.option(
            "--reservation",
            type=click.Choice(RESERVATIONS),
            help="What requests reserve of the limits: their likely cost, or exactly the highest possible one.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def limit_change_options(command: Decorated) -> Decorated:
    """Add the options for limits and `--clear` to a command, which gets the members of its request as `changes`."""

    @functools.wraps(command)
    def run(
        *args: Any,
        limit: str | None,
        period_limit: str | None,
        period: str | None,
        reservation: str | None,
        clear: bool,
        **others: Any,
    ) -> Any:
        return command(*args, changes=read_changes(limit, period_limit, period, reservation, clear), **others)

    return limit_options(click.option("--clear", is_flag=True, help="Remove every limit.")(run))


def read_limits(
    limit: str | None, period_limit: str | None, period: str | None, reservation: str | None = None
) -> dict[str, Any]:
    """Return the members of a request that sets these limits: only what was given. A limit that is removed is null."""
    members: dict[str, Any] = {}
    if limit is not None:
        members["usageLimit"] = read_limit(limit, "--limit")
    if period_limit is not None:
        amount = read_limit(period_limit, "--period-limit")
        if amount is None and period is not None:
            raise CliError("--period has no effect without a limit.", "Leave out --period.")
        if amount is None:
            members |= dict.fromkeys(PERIOD_MEMBERS)
        else:
            members["periodUsageLimit"] = amount
    if period is not None:
        members |= _length_members(read_period(period))
    if reservation is not None:
        members["reservation"] = reservation
    return members


def new_limits(
    limit: str | None, period_limit: str | None, period: str | None, reservation: str | None = None
) -> dict[str, Any]:
    """Return the members of a request that creates a key with these limits. Raises CliError for a period without its
    limit."""
    if period is not None and period_limit is None:
        raise CliError("--period has no effect without --period-limit.", "Give both, or none of them.")
    members = read_limits(limit, period_limit, period, reservation)
    if members.get("periodUsageLimit") is not None and period is None:
        members |= _length_members(DEFAULT_PERIOD)
    return {name: value for name, value in members.items() if value is not None}


def _length_members(length: Period) -> dict[str, Any]:
    return {"periodUsageDurationValue": length.value, "periodUsageDurationUnit": length.unit}


def set_limits(context: ClientContext, named: str, members: dict[str, Any]) -> None:
    """Set or remove the limits of a key, given by id or description, and print its spending."""
    key_id = key_id_of(context, named)
    key = change_limits(context, f"/keys/api/limit/{quote(key_id, safe='')}", "apiKey", key_id, members)
    context.output.success(f"The limits of {key.get('description')!r} were set.")
    show_spending(context, key)


def read_changes(
    limit: str | None, period_limit: str | None, period: str | None, reservation: str | None, clear: bool
) -> dict[str, Any]:
    """Return the members of a request that changes limits, or with `clear` removes all. Raises CliError without any."""
    members = read_limits(limit, period_limit, period, reservation)
    if clear and members:
        raise CliError("--clear removes every limit; it cannot set one.", "Give --clear, or limits.")
    if clear:
        return dict.fromkeys(LIMITS)
    if not members:
        raise CliError(
            "There is nothing to set.", "Give --limit, --period-limit (with --period), --reservation, or --clear."
        )
    return members


def change_limits(context: ClientContext, path: str, kind: str, named: str, members: dict[str, Any]) -> dict[str, Any]:
    """Return what has new limits: the part `kind` of the answer. A period that was not given stays as it is, and is a
    month for a key, member or team that has none."""
    try:
        return object_of(context.client.management("PATCH", path, body=members), kind)
    except HttpError as error:
        has_amount = members.get("periodUsageLimit") is not None
        has_length = "periodUsageDurationUnit" in members
        if error.status == BAD_REQUEST and has_length and "periodUsageLimit" not in members:
            raise CliError(
                f"{named} has no limit of a period whose length could be changed: {error.message}",
                "Give --period-limit too.",
                error.request_id,
            ) from None
        if error.status != BAD_REQUEST or has_length or not has_amount:
            raise
    members = members | _length_members(DEFAULT_PERIOD)
    return object_of(context.client.management("PATCH", path, body=members), kind)


def show_spending(context: ClientContext, key: dict[str, Any]) -> None:
    """Print what a key spent, and its limits."""
    if context.output.as_json:
        context.output.document({name: key.get(name) for name in SPENDING})
        return
    context.output.fields(
        (
            ("Key", f"{key.get('description')} ({key.get('id')})"),
            ("Total spend", total_spending(key)),
            ("Reservation", RESERVED.get(str(key.get("reservation")), NO_VALUE)),
            ("Period spend", "limit not set" if key.get("periodUsageLimit") is None else period_spending(key)),
        )
    )


def total_spending(limited: dict[str, Any]) -> str:
    """Return the spending and the total limit of a key or member, such as `$2.50 / $10.00`."""
    return _spending(limited.get("usage"), limited.get("usageLimit"))


def _spending(used: Any, limit: Any) -> str:
    if limit is None:
        return f"{show_usd(used)} (limit not set)"
    return f"{show_usd(used)} / {show_usd(limit)}"


def period_spending(key: dict[str, Any]) -> str:
    """Return a key's spending and limit of a period, such as `$2.50 / $10.00 per day`."""
    if key.get("periodUsageLimit") is None:
        return NO_VALUE
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
