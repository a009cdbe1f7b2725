"""The command `routes`: model names of an organization that choose the model of each request by rules."""

import json
from pathlib import Path
from typing import Any

import click

from llmgateway_cli.account_lists import Record, organization_option, organization_path
from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, IntegerOption, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import NO_VALUE, show_usd

MAX_BYTES = 256 << 10  # of a document's file


@click.group(cls=ClientGroup)
def routes() -> None:
    """Set, publish and list routes: model names that choose the model of each request by rules."""


@routes.command("list")
@organization_option
@json_option
@pass_context
def list_routes(context: ClientContext, org: str | None) -> None:
    """List the routes of an organization, with the rules in force."""
    listed = list_of(context.client.management("GET", _path(context, org)), "routes")
    columns = (Column("ROUTE"), Column("VERSION"), Column("MODEL NAMES", shorten=True), Column("RULES", shorten=True))
    context.output.listing(listed, columns, list(map(_row, listed)), "There are no routes.")


@routes.command("show")
@click.argument("route")
@organization_option
@json_option
@pass_context
def show_route(context: ClientContext, route: str, org: str | None) -> None:
    """Show a route and its draft."""
    _show(context, context.client.management("GET", _path(context, org, route)))


@routes.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@organization_option
@json_option
@pass_context
def check_document(context: ClientContext, file: Path, org: str | None) -> None:
    """Check the document in FILE (- for standard input) without storing it."""
    body = {"document": _read(file)}
    checked = object_of(context.client.management("POST", _path(context, org, "check"), body=body), "check")
    if context.output.as_json:
        context.output.document(checked)
        return
    for sentence in checked.get("rules", ()):
        context.output.data(str(sentence))
    context.output.success("The document can be published.")


@routes.command("simulate")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--days", type=IntegerOption(1, 92), default=7, show_default=True, help="Of how many days.")
@click.option("--requested", multiple=True, metavar="MODEL", help="Only requests of this model name (default: all).")
@organization_option
@json_option
@pass_context
def simulate(context: ClientContext, file: Path, days: int, requested: tuple[str, ...], org: str | None) -> None:
    """Try the document in FILE with stored requests: the models that it would have chosen, and their cost."""
    body = {"document": _read(file), "days": days, "requested": list(requested)}
    answer = context.client.management("POST", _path(context, org, "simulation"), body=body)
    done = object_of(answer, "simulation")
    if context.output.as_json:
        context.output.document(done)
        return
    columns = (Column("RULE", shorten=True), Column("MODEL"), Column("REQUESTS"), Column("COST"), Column("NEW COST"))
    rows = [
        (
            text_of(one, "rule"),
            text_of(one, "model"),
            str(one.get("requests")),
            show_usd(one.get("cost")),
            show_usd(one.get("newCost")),
        )
        for one in list_of(done, "choices")
    ]
    context.output.table(columns, rows, "No request was decided.")
    context.output.info(
        f"{done.get('requests')} requests for {show_usd(done.get('cost'))} would cost {show_usd(done.get('newCost'))}; "
        f"{done.get('changed')} would use another model, {done.get('undecided')} are undecided."
    )


@routes.command("set")
@click.argument("route")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--alias", "aliases", multiple=True, metavar="NAME", help="A further model name that calls the route.")
@click.option("-p", "--project", metavar="ID", help="The only project that may call the route (default: all).")
@click.option("--replaces-models", is_flag=True, help="Allow aliases that are names of models.")
@organization_option
@json_option
@pass_context
def set_draft(
    context: ClientContext,
    route: str,
    file: Path,
    aliases: tuple[str, ...],
    project: str | None,
    replaces_models: bool,
    org: str | None,
) -> None:
    """Set the draft of ROUTE to the document in FILE (- for standard input). Requests use it once it is published."""
    body: dict[str, Any] = {"document": _read(file), "aliases": list(aliases)}
    if project:
        body["projectId"] = project
    if replaces_models:
        body["replacesModels"] = True
    _show(context, context.client.management("PUT", _path(context, org, route), body=body))


@routes.command("publish")
@click.argument("route")
@click.option("--version", type=IntegerOption(1), help="An earlier version to publish again (default: the draft).")
@organization_option
@json_option
@pass_context
def publish(context: ClientContext, route: str, version: int | None, org: str | None) -> None:
    """Publish the draft of a route as a new version, or an earlier version again."""
    body = {} if version is None else {"version": version}
    _show(context, context.client.management("POST", _path(context, org, route, "publish"), body=body))


@routes.command("versions")
@click.argument("route")
@organization_option
@json_option
@pass_context
def list_versions(context: ClientContext, route: str, org: str | None) -> None:
    """List the versions of a route, the newest first."""
    listed = list_of(context.client.management("GET", _path(context, org, route, "versions")), "versions")
    columns = (Column("VERSION"), Column("CREATED"), Column("BY", rank=1), Column("RULES", shorten=True))
    rows = [
        (
            str(version.get("version")),
            text_of(version, "createdAt"),
            text_of(version, "createdBy"),
            "; ".join(map(str, version.get("rules", ()))),
        )
        for version in listed
    ]
    context.output.listing(listed, columns, rows, "The route has no version yet.")


@routes.command("savings")
@click.option("--days", type=IntegerOption(1, 366), default=30, show_default=True, help="Of how many days.")
@organization_option
@json_option
@pass_context
def list_savings(context: ClientContext, days: int, org: str | None) -> None:
    """Show what routes saved against their reference models, by route, version, rule and model."""
    answer = context.client.management("GET", _path(context, org, "savings"), query={"days": str(days)})
    listed = list_of(answer, "savings")
    columns = (
        Column("ROUTE"),
        Column("VERSION", rank=1),
        Column("RULE", shorten=True),
        Column("MODEL", shorten=True),
        Column("CALLS"),
        Column("COST"),
        Column("SAVED"),
    )
    rows = [
        (
            text_of(one, "route"),
            str(one.get("version")),
            text_of(one, "rule"),
            text_of(one, "model"),
            str(one.get("requests")),
            show_usd(one.get("cost")),
            show_usd(one.get("saved")),
        )
        for one in listed
    ]
    context.output.listing(listed, columns, rows, "No route served a request.")


@routes.command("delete")
@click.argument("route")
@organization_option
@pass_context
def delete_route(context: ClientContext, route: str, org: str | None) -> None:
    """Delete a route with its versions."""
    context.client.management("DELETE", _path(context, org, route))
    context.output.success(f"The route {route!r} was deleted.")


def _path(context: ClientContext, org: str | None, *segments: str) -> str:
    return organization_path(context, org, "routes", *segments)


def _read(file: Path) -> Any:
    with click.open_file(str(file), encoding="utf-8") as source:
        text = source.read(MAX_BYTES + 1)
    try:
        if len(text) <= MAX_BYTES and isinstance(document := json.loads(text), dict):
            return document
    except (ValueError, RecursionError):
        pass
    raise CliError(f"{file} is no JSON object.", "A document has `rules` and `otherwise`.")


def _row(route: Record) -> tuple[str, ...]:
    return (
        text_of(route, "id"),
        str(route.get("publishedVersion") or NO_VALUE),
        ", ".join(map(str, route.get("names", ()))),
        "; ".join(map(str, route.get("publishedRules") or route.get("rules", ()))),
    )


def _show(context: ClientContext, answer: Any) -> None:
    route = object_of(answer, "route")
    if context.output.as_json:
        context.output.document(route)
        return
    published = route.get("publishedVersion")
    context.output.fields(
        (
            ("Route", text_of(route, "id")),
            ("Model names", ", ".join(map(str, route.get("names", ())))),
            ("Published version", str(published or NO_VALUE)),
            *((f"Draft {place}", str(rule)) for place, rule in enumerate(route.get("rules", ()), start=1)),
        )
    )
    for title, places in (("published version", route.get("publishedLeftOut")), ("draft", route.get("leftOut"))):
        if places:
            listed = ", ".join(map(str, places))
            context.output.warning(f"The gateway does not read {listed} of the {title}: a later release wrote that.")
