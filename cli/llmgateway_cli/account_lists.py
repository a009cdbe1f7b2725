"""Organizations and projects of the account, and the choice of one of them."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click

from llmgateway_cli.context import ClientContext
from llmgateway_cli.errors import CliError, HttpError
from llmgateway_cli.shapes import list_of, text_of

Record = dict[str, Any]
PROJECT_ID = re.compile(r"proj[a-z]*_[\w-]+|[\w-]{20,}")
KEY_ID = re.compile(r"key_\w+")
organization_option = click.option("-o", "--org", metavar="ID", help="An organization's id or name.")
MEMBER_ID = re.compile(r"member_\w+")


def organizations(context: ClientContext) -> list[Record]:
    """Return the organizations of the account."""
    return list_of(context.client.management("GET", "/orgs"), "organizations")


def projects_of(context: ClientContext, organization: Record) -> list[Record]:
    """Return the projects of an organization."""
    path = f"/orgs/{text_of(organization, 'id')}/projects"
    return list_of(context.client.management("GET", path), "projects")


def find_organization(listed: list[Record], named: str) -> Record:
    """Return the organization of that id or unambiguous name. Raises CliError without one."""
    for organization in listed:
        if organization.get("id") == named:
            return organization
    matching = [organization for organization in listed if str(organization.get("name", "")).lower() == named.lower()]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise CliError(f"Several organizations are called {named!r}.", "Give the id; `llmgateway orgs list` shows it.")
    raise CliError(f"You have no organization {named!r}.", "`llmgateway orgs list` shows your organizations.")


def find_project(context: ClientContext, named: str, organization_id: str = "") -> tuple[Record, Record]:
    """Return the project of that id or unambiguous name, with its organization. A name may mean a project of the
    organization `organization_id` alone. Raises CliError without one."""
    matching: list[tuple[Record, Record]] = []
    for organization in organizations(context):
        if organization_id not in ("", organization.get("id")):
            continue
        for project in projects_of(context, organization):
            if project.get("id") == named:
                return organization, project
            if str(project.get("name", "")).lower() == named.lower():
                matching.append((organization, project))
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise CliError(f"Several projects are called {named!r}.", "Give the id; `llmgateway projects list` shows it.")
    raise CliError(f"None of your organizations has a project {named!r}.", "`llmgateway projects list` shows them.")


def project_id_of(context: ClientContext, named: str) -> str:
    """Return the id of a project that was given by id or name. What has the form of an id is not looked up: the service
    checks it, and a service account may use it without a scope for projects."""
    if PROJECT_ID.fullmatch(named):
        return named
    return text_of(find_project(context, named)[1], "id")


def project_names(context: ClientContext) -> dict[str, str]:
    """Return the names of the account's projects by id; none where a service account may not list them."""
    try:
        return {
            text_of(project, "id"): str(project.get("name", ""))
            for organization in organizations(context)
            for project in projects_of(context, organization)
        }
    except HttpError:
        return {}


def selected_organizations(context: ClientContext, named: str | None) -> list[Record]:
    """Return the named organization alone, or all of the account."""
    listed = organizations(context)
    if named is None:
        return listed
    return [find_organization(listed, named)]


def choose_organization(context: ClientContext, named: str | None) -> Record:
    """Return the organization of a command: the named one, the default one, the only one, or the one that the user
    picks."""
    listed = organizations(context)
    chosen = named or context.settings.default_organization
    if chosen:
        return find_organization(listed, chosen)
    if not listed:
        raise CliError("You have no organization.", "Ask an owner for an invitation.")
    if len(listed) == 1:
        return listed[0]
    choices = [(f"{organization.get('name')} ({organization.get('id')})", organization) for organization in listed]
    return context.output.choose("Which organization?", choices, "-o ORG, or `llmgateway orgs use ORG` once")


def organization_path(context: ClientContext, named: str | None, *segments: str) -> str:
    """Return the path of something that belongs to the organization of a command (choose_organization)."""
    parts = (text_of(choose_organization(context, named), "id"), *segments)
    return "/orgs/" + "/".join(quote(part, safe="") for part in parts)


def list_members(context: ClientContext, organization: Record) -> list[Record]:
    """Return the members of an organization."""
    path = f"/orgs/{text_of(organization, 'id')}/members"
    return [member for answer in context.client.pages(path, {}) for member in list_of(answer, "members")]


def list_teams(context: ClientContext, organization: Record) -> list[Record]:
    """Return the teams of an organization."""
    path = f"/orgs/{text_of(organization, 'id')}/teams"
    return [team for answer in context.client.pages(path, {}) for team in list_of(answer, "teams")]


def find_named(listed: Sequence[Record], named: str, kind: str, names: Sequence[str] = ("name",)) -> Record:
    """Return the member or team of that id or of an unambiguous name. Raises CliError without one."""
    for one in listed:
        if one.get("id") == named:
            return one
    for name in names:
        matching = [one for one in listed if str(one.get(name, "")).lower() == named.strip().lower()]
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise CliError(
                f"Several {kind}s are called {named!r}.", f"Give the id; `llmgateway {kind}s list` shows it."
            )
    raise CliError(f"The organization has no {kind} {named!r}.", f"`llmgateway {kind}s list` shows them.")


def choose_project(context: ClientContext, named: str | None) -> str:
    """Return the id of the project of a command: the named one, the default one, the only one of the default
    organization or of the only organization, or the one that the user picks."""
    if named:
        return project_id_of(context, named)
    if context.settings.default_project:
        return context.settings.default_project
    listed = selected_organizations(context, context.settings.default_organization or None)
    projects = [(organization, project) for organization in listed for project in projects_of(context, organization)]
    if not projects:
        raise CliError("You have no project.", "Create one in the web pages, or ask an owner for access.")
    if len(listed) == 1 and len(projects) == 1:
        return text_of(projects[0][1], "id")
    choices = [
        (f"{project.get('name')} in {organization.get('name')} ({project.get('id')})", text_of(project, "id"))
        for organization, project in projects
    ]
    return context.output.choose("Which project?", choices, "-p PROJECT, or `llmgateway projects use PROJECT` once")


def member_id_of(context: ClientContext, project_id: str, named: str) -> str:
    """Return the id of a member of the project's organization who was given by id, e-mail address or name. What has
    the form of an id is not looked up."""
    if MEMBER_ID.fullmatch(named):
        return named
    members = list_members(context, find_project(context, project_id)[0])
    for name in ("email", "name"):
        matching = [member for member in members if str(member.get(name, "")).lower() == named.strip().lower()]
        if len(matching) == 1:
            return text_of(matching[0], "id")
        if matching:
            raise CliError(f"Several members are called {named!r}.", "Give the e-mail address.")
    hint = "The person must have accepted an invitation, which the page People of the console creates."
    raise CliError(f"The organization has no member {named!r}.", hint)


def list_keys(context: ClientContext, query: dict[str, Any]) -> list[Record]:
    """Return the API keys of the account that match a query."""
    return [key for answer in context.client.pages("/keys/api", query) for key in list_of(answer, "apiKeys")]


def find_key(listed: list[Record], named: str) -> Record:
    """Return the API key of that id or unambiguous description. Raises CliError without one."""
    for key in listed:
        if key.get("id") == named:
            return key
    matching = [
        key
        for key in listed
        if str(key.get("description", "")).lower() == named.strip().lower() and key.get("status") != "deleted"
    ]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise CliError(f"Several API keys are called {named!r}.", "Give the id; `llmgateway keys list` shows it.")
    raise CliError(f"There is no API key {named!r}.", "`llmgateway keys list` shows ids and descriptions.")


def key_id_of(context: ClientContext, named: str) -> str:
    """Return the id of an API key that was given by id or description. What has the form of an id is not looked up."""
    if KEY_ID.fullmatch(named):
        return named
    return text_of(find_key(list_keys(context, {}), named), "id")
