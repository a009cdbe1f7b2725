"""The command `views`: saved views of the console, and where they are sent each week."""

from typing import Any

import click

from llmgateway_cli.account_lists import Record, find_named, organization_option, organization_path
from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, IntegerOption, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE

PAGES = ("explore", "logs")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
VIEWS, SUBSCRIPTIONS = "views", "view-subscriptions"

page_option = click.option("--page", type=click.Choice(PAGES), default=PAGES[0], help="The page of the view.")
weekday_option = click.option("--weekday", type=click.Choice(WEEKDAYS), help="The day (default: monday).")
hour_option = click.option("--hour", type=IntegerOption(), metavar="0-23", help="The hour of the day (default: 8).")
zone_option = click.option("--timezone", metavar="ZONE", help="The time zone, such as Europe/Berlin (default: UTC).")


@click.group(cls=ClientGroup)
def views() -> None:
    """Save views of Explore and of the list of requests, and let them be sent each week."""


@views.command("list")
@page_option
@organization_option
@json_option
@pass_context
def list_views(context: ClientContext, page: str, org: str | None) -> None:
    """List your views, and those that others shared."""
    listed = _list(context, org, page)
    columns = (Column("ID"), Column("NAME", shorten=True), Column("SHARED"), Column("QUERY", rank=1, shorten=True))
    rows = [
        (text_of(one, "id"), text_of(one, "name"), "yes" if one.get("shared") else "no", text_of(one, "query"))
        for one in listed
    ]
    context.output.listing(listed, columns, rows, "There are no saved views of this page.")


@views.command("create")
@click.argument("name")
@click.option("--query", default="", metavar="QUERY", help="The query of the page, such as 'groupBy=user'.")
@page_option
@click.option("--shared", is_flag=True, help="Show it to all members; each sees only what they may see.")
@organization_option
@json_option
@pass_context
def create_view(context: ClientContext, name: str, query: str, page: str, shared: bool, org: str | None) -> None:
    """Save a view with a NAME."""
    body = {"name": name, "query": query, "page": page, "shared": shared}
    view = object_of(context.client.management("POST", organization_path(context, org, VIEWS), body=body), "view")
    _answer(context, view, f"The view {name!r} was saved.")


@views.command("update")
@click.argument("view")
@click.option("--name", metavar="NAME", help="Another name.")
@click.option("--query", metavar="QUERY", help="Another query of the page.")
@click.option("--shared/--own", default=None, help="Show it to all members, or to yourself alone.")
@page_option
@organization_option
@json_option
@pass_context
def update_view(context: ClientContext, /, view: str, page: str, org: str | None, **changes: Any) -> None:
    """Change name, query or readers of a VIEW (its name or id)."""
    body = {name: value for name, value in changes.items() if value is not None}
    if not body:
        raise CliError("Nothing is changed.", "Give an option such as `--name`.")
    path = organization_path(context, org, VIEWS, _view_id(context, org, page, view))
    _answer(context, object_of(context.client.management("PATCH", path, body=body), "view"), "The view was changed.")


@views.command("delete")
@click.argument("view")
@page_option
@organization_option
@pass_context
def delete_view(context: ClientContext, view: str, page: str, org: str | None) -> None:
    """Delete a VIEW (its name or id). Its weekly messages end."""
    context.client.management("DELETE", organization_path(context, org, VIEWS, _view_id(context, org, page, view)))
    context.output.success("The view was deleted.")


@views.command("subscriptions")
@organization_option
@json_option
@pass_context
def list_subscriptions(context: ClientContext, org: str | None) -> None:
    """List where views are sent each week, with the problem of the last time."""
    listed = list_of(context.client.management("GET", organization_path(context, org, SUBSCRIPTIONS)), "subscriptions")
    columns = (
        Column("ID"),
        Column("VIEW"),
        Column("TO"),
        Column("WHEN", rank=1),
        Column("LAST SENT", rank=2),
        Column("PROBLEM", shorten=True),
    )
    rows = [
        (
            text_of(one, "id"),
            text_of(one, "viewId"),
            str(one.get("hookId") or "e-mail"),
            f"{one.get('weekday')} {one.get('hour')}:00 {one.get('timezone')}",
            str(one.get("sentAt") or NO_VALUE),
            str(one.get("problem") or NO_VALUE),
        )
        for one in listed
    ]
    context.output.listing(listed, columns, rows, "No views are sent.")


@views.command("subscribe")
@click.argument("view")
@click.option("--to", metavar="ADDRESS", help="The id of an address for alerts (default: e-mail to yourself).")
@weekday_option
@hour_option
@zone_option
@organization_option
@json_option
@pass_context
def subscribe(context: ClientContext, /, view: str, to: str | None, org: str | None, **schedule: Any) -> None:
    """Let a VIEW of Explore (its name or id) be sent each week."""
    body = {"viewId": _view_id(context, org, PAGES[0], view), **({"hookId": to} if to else {})}
    body |= {name: value for name, value in schedule.items() if value is not None}
    made = context.client.management("POST", organization_path(context, org, SUBSCRIPTIONS), body=body)
    _answer(context, object_of(made, "subscription"), "The view is sent each week.")


@views.command("reschedule")
@click.argument("subscription")
@weekday_option
@hour_option
@zone_option
@organization_option
@json_option
@pass_context
def reschedule(context: ClientContext, /, subscription: str, org: str | None, **schedule: Any) -> None:
    """Change the day, the hour or the time zone of a SUBSCRIPTION."""
    body = {name: value for name, value in schedule.items() if value is not None}
    if not body:
        raise CliError("Nothing is changed.", "Give an option such as `--hour`.")
    path = organization_path(context, org, SUBSCRIPTIONS, subscription)
    made = object_of(context.client.management("PATCH", path, body=body), "subscription")
    _answer(context, made, "The subscription was changed.")


@views.command("send")
@click.argument("subscription")
@organization_option
@pass_context
def send(context: ClientContext, subscription: str, org: str | None) -> None:
    """Send the view of a SUBSCRIPTION within a minute."""
    context.client.management("POST", organization_path(context, org, SUBSCRIPTIONS, subscription, "send"))
    context.output.success("The view is sent within a minute.")


@views.command("unsubscribe")
@click.argument("subscription")
@organization_option
@pass_context
def unsubscribe(context: ClientContext, subscription: str, org: str | None) -> None:
    """End a SUBSCRIPTION."""
    context.client.management("DELETE", organization_path(context, org, SUBSCRIPTIONS, subscription))
    context.output.success("The subscription has ended.")


def _list(context: ClientContext, org: str | None, page: str) -> list[Record]:
    path = organization_path(context, org, VIEWS)
    return list_of(context.client.management("GET", path, query={"page": page}), "views")


def _view_id(context: ClientContext, org: str | None, page: str, named: str) -> str:
    return text_of(find_named(_list(context, org, page), named, "view"), "id")


def _answer(context: ClientContext, made: Record, message: str) -> None:
    if context.output.as_json:
        context.output.document(made)
        return
    context.output.data(text_of(made, "id"))
    context.output.success(message)
