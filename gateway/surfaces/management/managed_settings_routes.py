"""`/orgs/…/managed-settings` and `/orgs/…/teams/…/managed-settings`: the settings that Claude Code gets."""

from typing import Any

from marshmallow import fields

from gateway.accounts import managed_settings
from gateway.accounts.managed_settings import StoredSettings
from gateway.accounts.teams import TeamInfo
from gateway.surfaces.management.access_groups import in_organization, of_team
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import StrictBody, describe_field
from gateway.surfaces.web.answer_structs import Answer, JsonObject, Time
from gateway.surfaces.web.http import Operation

TAG = "Managed settings"


class SettingsChange(StrictBody):
    settings = fields.Dict(
        keys=fields.String(),
        required=True,
        metadata=describe_field(
            "The settings of Claude Code as a JSON object, with the keys of managed-settings.json."
        ),
    )


class ManagedSettingsAnswer(Answer):
    """The settings of an organization or a team; null: none."""

    columns = ("id", "updated_at")
    id: str
    settings: JsonObject | None = None
    updated_at: Time | None = None


def find(call: ManagedCall[str]) -> ManagedSettingsAnswer:
    """The settings that Claude Code gets after its sign-in to this gateway."""
    return _show(managed_settings.find_settings(call.database, call.subject))


def replace(call: ManagedCall[str]) -> ManagedSettingsAnswer:
    """Set the settings of all members who sign in with Claude Code; it fetches them at its start and every hour."""
    return _set(call, call.subject, call.subject)


def remove(call: ManagedCall[str]) -> None:
    """Claude Code keeps no settings of the organization after its next fetch."""
    managed_settings.remove_settings(*call.stores, call.subject, call.subject, actor=call.actor)


def find_of_team(call: ManagedCall[TeamInfo]) -> ManagedSettingsAnswer:
    """The settings for members who choose this team at the sign-in."""
    return _show(managed_settings.find_settings(call.database, call.subject.id))


def replace_of_team(call: ManagedCall[TeamInfo]) -> ManagedSettingsAnswer:
    """Set what is added to the settings of the organization: objects are merged, lists joined, other values
    replaced."""
    return _set(call, call.subject.organization_id, call.subject.id)


def remove_of_team(call: ManagedCall[TeamInfo]) -> None:
    """The team's members get the settings of the organization only."""
    team = call.subject
    managed_settings.remove_settings(*call.stores, team.organization_id, team.id, actor=call.actor)


def _set(call: ManagedCall[Any], organization_id: str, scope_id: str) -> ManagedSettingsAnswer:
    settings = call.fields["settings"]
    return _show(managed_settings.set_settings(*call.stores, organization_id, scope_id, settings, actor=call.actor))


def _show(stored: StoredSettings) -> ManagedSettingsAnswer:
    return ManagedSettingsAnswer.of(stored)


ORGANIZATION = "/orgs/<organization_id>/managed-settings"
TEAM = "/orgs/<organization_id>/teams/<team_id>/managed-settings"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", ORGANIZATION, find, "Show the managed settings of Claude Code", tag=TAG,
            who=in_organization("organization:write"),
            inside="managedSettings",
            commands=("managed-settings show <organization_id> -> settings",)),
    managed("PUT", ORGANIZATION, replace, "Set the managed settings of Claude Code", tag=TAG,
            who=in_organization("organization:write"),
            request=SettingsChange, inside="managedSettings",
            audit="managed_settings.update", commands=("managed-settings set <organization_id> <settings>",)),
    managed("DELETE", ORGANIZATION, remove, "Remove the managed settings of Claude Code", tag=TAG,
            who=in_organization("organization:write"),
            message="The managed settings were removed.", audit="managed_settings.delete",
            commands=("managed-settings remove <organization_id>",)),
    managed("GET", TEAM, find_of_team, "Show the managed settings of a team", tag=TAG, who=of_team("teams:write"),
            inside="managedSettings",
            commands=("managed-settings show <team_id> -> settings",)),
    managed("PUT", TEAM, replace_of_team, "Set the managed settings of a team", tag=TAG, who=of_team("teams:write"),
            request=SettingsChange, inside="managedSettings",
            audit="managed_settings.update", commands=("managed-settings set <team_id> <settings>",)),
    managed("DELETE", TEAM, remove_of_team, "Remove the managed settings of a team", tag=TAG,
            who=of_team("teams:write"),
            message="The managed settings were removed.", audit="managed_settings.delete",
            commands=("managed-settings remove <team_id>",)),
)  # fmt: skip
