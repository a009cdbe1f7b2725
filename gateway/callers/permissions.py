"""The roles of members, and the table of permissions: which role has which permission, and how far it reaches.

Every operation of the management API names a row, and with it each page and action of the console, each command of the
client and each command of the operator that runs the operation. A role without a mark in a row is refused.
"""

from collections.abc import Mapping
from functools import cache
from typing import Literal, get_args

from msgspec import Struct

# The roles of members: in the organization, in a team and in a project.

Role = Literal["owner", "admin", "billing", "developer", "viewer"]
ROLES: tuple[Role, ...] = get_args(Role)
# Roles that a member may have in some teams or projects, beside the role in the organization.
TEAM_LEAD = "team lead"
PROJECT_ADMIN = "project admin"
# If group rules give several roles, the highest counts.
RANKS: dict[str, int] = {"viewer": 0, "developer": 1, "billing": 2, "admin": 3, "owner": 4}
# A higher rank raises spending limits that a lower one set. Stored limits contain these numbers.
LIMIT_RANKS: dict[str, int] = {"viewer": 0, "developer": 0, "billing": 1, "admin": 1, "owner": 2}


Permission = Literal[
    "account:use",
    "installation:operate",
    "organization:read",
    "organization:write",
    "members:read",
    "members:write",
    "members:limit",
    "invitations:read",
    "invitations:write",
    "teams:read",
    "teams:write",
    "teams:members",
    "teams:limit",
    "projects:read",
    "projects:create",
    "projects:write",
    "projects:budget",
    "jobs:write",
    "project_rates:read",
    "keys:read",
    "keys:create",
    "keys:write",
    "keys:restrict",
    "keys:use",
    "key_caps:read",
    "providers:read",
    "providers:write",
    "rules:read",
    "rules:write",
    "automation:read",
    "automation:write",
    "provisioning:read",
    "provisioning:write",
    "sso:read",
    "sso:write",
    "sso:require",
    "alerts:read",
    "alerts:write",
    "usage:read",
    "usage:apps",
    "outcomes:write",
    "charges:read",
    "credits:read",
    "limits:read",
    "limits:write",
    "limits:raise",
    "logs:read",
    "audit:read",
    "audit:verify",
]
Reach = Literal["", "own", "team", "project", "all"]
COLUMNS: tuple[str, ...] = (*ROLES, TEAM_LEAD, PROJECT_ADMIN)


class PermissionRow(Struct, frozen=True):
    """A permission: what it allows, the roles that have it in the whole organization, and those that have it for their
    own keys and requests; `lead` and `project_admin`: those roles have it in their team or project. `signed_in`:
    everyone with an account has it."""

    text: str
    roles: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    lead: bool = False
    project_admin: bool = False
    signed_in: bool = False

    def reach(self, role: str) -> Reach:
        """Return how far a role reaches with this permission; "" if it has not got it."""
        if self.signed_in or role in self.roles:
            return "all"
        if role in self.own:
            return "own"
        if role == TEAM_LEAD and self.lead:
            return "team"
        if role == PROJECT_ADMIN and self.project_admin:
            return "project"
        return ""


OWNERS = ("owner",)
MANAGERS = ("owner", "admin")
FINANCE = ("owner", "admin", "billing")
READERS = ("owner", "admin", "billing", "viewer")
DEVELOPERS = ("developer",)

TABLE: Mapping[Permission, PermissionRow] = {
    "account:use": PermissionRow("use the own account, and see the own organizations and devices", signed_in=True),
    "installation:operate": PermissionRow("operate the installation: owners of its first organization only"),
    "organization:read": PermissionRow("see the organization, its policy and skills, and the own membership", ROLES),
    "organization:write": PermissionRow("change name, policy, skills and managed settings", MANAGERS),
    "members:read": PermissionRow("see members with their limits", READERS, lead=True),
    "members:write": PermissionRow("change roles; deactivate, remove, export and erase members", MANAGERS),
    "members:limit": PermissionRow("set the spending limits of members", FINANCE, lead=True),
    "invitations:read": PermissionRow("see invitations", MANAGERS),
    "invitations:write": PermissionRow("invite people", MANAGERS),
    "teams:read": PermissionRow("see teams with their members and limits", READERS, lead=True),
    "teams:write": PermissionRow("create, rename and delete teams; appoint their leads", MANAGERS),
    "teams:members": PermissionRow("remove members of teams; add them, leads if it is allowed", MANAGERS, lead=True),
    "teams:limit": PermissionRow("set the spending limits of teams", FINANCE, lead=True),
    "projects:read": PermissionRow("see projects and their settings", ROLES),
    "projects:create": PermissionRow("create, archive and restore projects", MANAGERS),
    "projects:write": PermissionRow(
        "change projects, their rate limits, callback secrets and project admins", MANAGERS, project_admin=True
    ),
    "projects:budget": PermissionRow("set the budgets of sessions of projects", FINANCE, project_admin=True),
    "jobs:write": PermissionRow(
        "store and delete files, and cancel jobs, of projects", MANAGERS, DEVELOPERS, project_admin=True
    ),
    "project_rates:read": PermissionRow("see rate limits of projects", READERS, project_admin=True),
    "keys:read": PermissionRow("see API keys", MANAGERS, DEVELOPERS, project_admin=True),
    "keys:create": PermissionRow("create API keys", MANAGERS, DEVELOPERS, project_admin=True),
    "keys:write": PermissionRow("change, limit, roll and delete API keys", MANAGERS, DEVELOPERS, project_admin=True),
    "keys:restrict": PermissionRow(
        "set access rules, rate limits, tags and budgets of sessions of API keys", MANAGERS, project_admin=True
    ),
    "keys:use": PermissionRow("call models with own API keys", (*MANAGERS, "developer")),
    "key_caps:read": PermissionRow("see caps on active API keys", MANAGERS),
    "providers:read": PermissionRow("see provider keys and custom providers", MANAGERS),
    "providers:write": PermissionRow("change provider keys and custom providers", MANAGERS),
    "rules:read": PermissionRow("see access rules of the organization, its teams and members", MANAGERS),
    "rules:write": PermissionRow("change these access rules", MANAGERS),
    "automation:read": PermissionRow("see service accounts and workload identities", MANAGERS),
    "automation:write": PermissionRow("change service accounts and workload identities", MANAGERS),
    "provisioning:read": PermissionRow("see SCIM tokens and group rules", MANAGERS),
    "provisioning:write": PermissionRow("change SCIM tokens and group rules", MANAGERS),
    "sso:read": PermissionRow("see identity providers", MANAGERS),
    "sso:write": PermissionRow("change identity providers", MANAGERS),
    "sso:require": PermissionRow("require single sign-on", OWNERS),
    "alerts:read": PermissionRow("see webhooks for alerts", MANAGERS),
    "alerts:write": PermissionRow("change and test webhooks for alerts", MANAGERS),
    "usage:read": PermissionRow(
        "see usage and costs, and export them", READERS, DEVELOPERS, lead=True, project_admin=True
    ),
    "usage:apps": PermissionRow("see the apps that used a project", READERS, project_admin=True),
    "outcomes:write": PermissionRow("let people be compared by outcomes, and unusual keys be held", OWNERS),
    "charges:read": PermissionRow("export the charges of a month (FOCUS)", FINANCE),
    "credits:read": PermissionRow("see credits, ledger and discounts", FINANCE),
    "limits:read": PermissionRow("see the limits of the organization and what is used of them", READERS, lead=True),
    "limits:write": PermissionRow("set and delete limits of the organization", FINANCE),
    "limits:raise": PermissionRow("raise limits of the organization, of its teams, for a time", FINANCE, lead=True),
    "logs:read": PermissionRow(
        "see requests and sessions; read and delete retained payloads; read files and results of jobs",
        MANAGERS,
        DEVELOPERS,
    ),
    "audit:read": PermissionRow("see the audit log", MANAGERS),
    "audit:verify": PermissionRow("verify the audit log", OWNERS),
}  # fmt: skip


def reach_of(role: str, permission: Permission) -> Reach:
    """Return how far a role reaches with a permission; "" if it has not got it."""
    return TABLE[permission].reach(role)


@cache
def roles_within(role: str) -> frozenset[str]:
    """Return the roles in the organization that have nothing beyond what `role` has: those that it may give."""
    return frozenset(other for other in ROLES if all(_covers(row, role, other) for row in TABLE.values()))


def _covers(row: PermissionRow, role: str, other: str) -> bool:
    wanted = row.reach(other)
    return not wanted or row.reach(role) in ("all", wanted)
