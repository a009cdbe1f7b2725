"""Sign-in of coding agents (Claude Code) as devices: the person chooses a project and a team, and a grant is made.

The grant belongs to an API key that the gateway creates for the person and the project. Its token exists nowhere, so no
key is handed out; the key carries limits, rules and usage, and ends all its tokens when it is deactivated.
"""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct

from gateway import ids
from gateway.accounts import keys
from gateway.accounts.device_codes import DeviceRequest, Devices, Status
from gateway.accounts.key_caps import KeyCaps
from gateway.callers import scopes as scopes_module
from gateway.callers import tokens as tokens_module
from gateway.callers.models import ApiKey, Member, Organization, Project, Team, TeamMember
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.oauth.grant_values import Consent, IssuedTokens
from gateway.oauth.grants import Grants
from gateway.store.database import Database
from gateway.store.installation_identity import Secrets

CLIENT = "claude-code"
CLIENT_NAME = "Claude Code"
KEY_NAME = "Claude Code (sign-in)"
MAX_CHOICES = 200  # projects and teams on the page


class ProjectChoice(Struct, frozen=True):
    """A project that a person may use."""

    id: str
    name: str
    organization_id: str
    organization_name: str


class TeamChoice(Struct, frozen=True):
    """A team that a person belongs to."""

    id: str
    name: str
    organization_id: str
    organization_name: str


class Workspace(Struct, frozen=True):
    """The ids of the project ("": the only one) and the team ("": none) that a person chose. `organization_ids` are the
    organizations that their session reaches, `audience` is the address of this gateway."""

    project_id: str
    team_id: str
    organization_ids: frozenset[str]
    audience: str


class Choices(Struct, frozen=True):
    """The projects and teams between which a person chooses, by organization and name."""

    projects: tuple[ProjectChoice, ...]
    teams: tuple[TeamChoice, ...]


class AgentSignIn:
    """Approves devices of coding agents, and gives their tokens."""

    def __init__(self, database: Database, secrets: Secrets, devices: Devices, grants: Grants, caps: KeyCaps) -> None:
        self._database = database
        self._hash_keys = secrets.hash_keys
        self._devices = devices
        self._grants = grants
        self._caps = caps

    def choices(self, user_id: str, organization_ids: Collection[str]) -> Choices:
        """Return the active projects and the teams of a person in these organizations."""
        reached = list(organization_ids)

        def read() -> Choices:
            projects: Any = (
                Project.select(Project, Organization.name.alias("owner_name"))
                .join(Organization)
                .join(Member, on=Member.organization == Organization.id)
                .where(
                    Member.user == user_id,
                    Member.status == "active",
                    Organization.status == "active",
                    Project.status == "active",
                    Organization.id.in_(reached),
                )
                .order_by(Organization.name, Project.name, Project.id)
                .limit(MAX_CHOICES)
                .objects()
            )
            teams: Any = (
                Team.select(Team, Organization.name.alias("owner_name"))
                .join(Organization)
                .switch(Team)
                .join(TeamMember)
                .join(Member)
                .where(
                    Member.user == user_id,
                    Member.status == "active",
                    Organization.status == "active",
                    Organization.id.in_(reached),
                )
                .order_by(Organization.name, Team.name)
                .limit(MAX_CHOICES)
                .objects()
            )
            return Choices(
                tuple(ProjectChoice(row.id, row.name, row.organization_id, row.owner_name) for row in projects),
                tuple(TeamChoice(row.id, row.name, row.organization_id, row.owner_name) for row in teams),
            )

        return self._database.read(read)

    def approve(self, user_code: str, user_id: str, workspace: Workspace) -> DeviceRequest:
        """Approve a device with a project and a team. NotFound, Forbidden, Conflict (already decided), InvalidRequest
        (no project, or too many keys), RateLimited."""
        choices = self.choices(user_id, workspace.organization_ids)
        project = _choose(choices, workspace.project_id)
        team_id = workspace.team_id
        if team_id and not any(
            team.id == team_id and team.organization_id == project.organization_id for team in choices.teams
        ):
            raise Forbidden("You are not a member of this team of the project's organization.")
        self._grants.count_change(user_id)
        new_ids = (ids.new("key"), ids.new("grant"))
        token = tokens_module.make("user")

        def make_grant(now: int) -> str:
            key_id = self._ensure_key(project, user_id, new_ids[0], token, now)
            consent = Consent(
                client=CLIENT,
                client_name=CLIENT_NAME,
                redirect_uri="",
                redirect_host="",
                challenge="",
                scope=scopes_module.AGENT,
                audience=workspace.audience,
                key_id=key_id,
                user_id=user_id,
                team_id=team_id,
            )
            self._grants.insert(new_ids[1], consent, now)
            return new_ids[1]

        request = self._devices.decide(user_code, user_id, True, make_grant=make_grant)
        self._grants.revoke_excess(user_id)
        return request

    def collect(self, device_code: str) -> tuple[Status, IssuedTokens | None, str]:
        """Return the status of a request; an approved one gives tokens, once, and the person's e-mail address. Raises
        Conflict if the grant ended."""
        status, grant_id = self._devices.collect_grant(device_code, CLIENT)
        if status != "approved":
            return status, None, ""
        return status, self._grants.issue(grant_id, scopes_module.AGENT), self._grants.email_of(grant_id)

    def _ensure_key(self, project: ProjectChoice, user_id: str, key_id: str, token: str, now: int) -> str:
        """Return the id of the person's key for agents in a project; it is created if there is none."""
        member = Member.get_or_none(
            Member.organization == project.organization_id, Member.user == user_id, Member.status == "active"
        )
        if member is None:
            raise NotFound("You are no longer a member of this organization.")
        key = (
            ApiKey.select(ApiKey.id)
            .where(
                ApiKey.project == project.id,
                ApiKey.member == member.id,
                ApiKey.kind == "user",
                ApiKey.description == KEY_NAME,
                ApiKey.status == "active",
                ApiKey.expires_at.is_null(),
            )
            .order_by(ApiKey.id)
            .first()
        )
        if key is not None:
            return str(key.id)
        draft = keys.Draft(project.id, member.id, KEY_NAME)
        keys.insert(
            self._hash_keys, draft, key_id, token, description=KEY_NAME, actor=user_id, now=now, caps=self._caps
        )
        return key_id


def _choose(choices: Choices, project_id: str) -> ProjectChoice:
    projects: Sequence[ProjectChoice] = choices.projects
    if not projects:
        raise InvalidRequest("You are not a member of an organization with an active project.", param="projectId")
    if not project_id and len(projects) == 1:
        return projects[0]
    if not project_id:
        raise InvalidRequest("Choose the project that the requests are charged to.", param="projectId")
    for project in projects:
        if project.id == project_id:
            return project
    raise Forbidden("You are not a member of this project's organization, or the project is archived.")
