"""The command `shares`: links by which members show a request or a session to colleagues."""

import click

from llmgateway_cli.account_lists import Record, find_project, organization_option, organization_path
from llmgateway_cli.command_lines import ClientGroup
from llmgateway_cli.context import ClientContext, json_option, pass_context
from llmgateway_cli.errors import CliError
from llmgateway_cli.shapes import list_of, object_of, text_of
from llmgateway_cli.tables import Column
from llmgateway_cli.values import show_time

SHARES = "shares"


@click.group(cls=ClientGroup)
def shares() -> None:
    """Show a request or a session to colleagues by a link."""


@shares.command("list")
@organization_option
@json_option
@pass_context
def list_shares(context: ClientContext, org: str | None) -> None:
    """List your links; for owners and admins, those of all members."""
    listed = list_of(context.client.management("GET", organization_path(context, org, SHARES)), "shares")
    columns = (Column("ID"), Column("KIND", rank=1), Column("SUBJECT", shorten=True), Column("EXPIRES"), Column("LINK"))
    rows = [
        (*(text_of(one, name) for name in ("id", "kind", "subject")), show_time(one.get("expiresAt")), _link(one))
        for one in listed
    ]
    context.output.listing(listed, columns, rows, "There are no links.")


@shares.command("create")
@click.argument("request", required=False)
@click.option("--session", metavar="NAME", help="Share the requests of this session that you see, instead.")
@click.option("-p", "--project", metavar="ID", help="The project of the session (its id or name).")
@organization_option
@json_option
@pass_context
def create_share(
    context: ClientContext, request: str | None, session: str | None, project: str | None, org: str | None
) -> None:
    """Make a link to a REQUEST (its id) or a session. It works for 30 days; a repetition keeps it for another 30."""
    if (request is None) == (session is None) or (session is None) != (project is None):
        raise CliError(
            "Name either a request or a session.", "Give the id of a request, or `--session` with `--project`."
        )
    body = {"requestId": request}
    if session is not None and project is not None:
        owner, found = find_project(context, project)
        org, body = org or text_of(owner, "id"), {"session": session, "projectId": text_of(found, "id")}
    made = object_of(context.client.management("POST", organization_path(context, org, SHARES), body=body), "share")
    if context.output.as_json:
        context.output.document(made)
        return
    context.output.data(_link(made))
    context.output.success(f"Members of the organization can open the link until {show_time(made.get('expiresAt'))}.")


@shares.command("revoke")
@click.argument("share")
@organization_option
@pass_context
def revoke(context: ClientContext, share: str, org: str | None) -> None:
    """End a link; SHARE is its id."""
    context.client.management("DELETE", organization_path(context, org, SHARES, share))
    context.output.success("The link has ended.")


def _link(share: Record) -> str:
    return text_of(share, "url")
