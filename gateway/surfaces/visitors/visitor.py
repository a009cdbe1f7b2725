"""The signed-in user or service account, their permissions, and the origins from which browsers may send changes."""

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gateway.accounts import keys, members, organizations, projects
from gateway.accounts.authority import Authority, of_limits, of_part, of_service_account, of_session
from gateway.accounts.keys import KeyInfo
from gateway.accounts.known_names import KnownNames
from gateway.accounts.members import MemberInfo
from gateway.accounts.organizations import OrganizationInfo
from gateway.accounts.projects import ProjectInfo
from gateway.accounts.scoped_roles import NO_PARTS, Parts, read_parts
from gateway.accounts.service_accounts import ServiceAccountInfo, is_service_account_token
from gateway.accounts.sessions import AGENT_LENGTH, LIFETIME_S, PREFIX, SessionInfo
from gateway.accounts.sso_requirement import reachable
from gateway.accounts.teams import list_teams
from gateway.admin.agent_sign_in import Workspace
from gateway.admin.sign_in import Place
from gateway.callers.permissions import PROJECT_ADMIN, TABLE, TEAM_LEAD, Permission, reach_of
from gateway.dialects import error_details
from gateway.errors import Forbidden, NotFound, Unauthenticated
from gateway.oauth.clients import LOOPBACK
from gateway.runtime.threads import work_for
from gateway.surfaces.web.answer_structs import describe_answer
from gateway.surfaces.web.http import SAFE_METHODS, ErrorFormat, Inbound, Outbound
from gateway.worker.services import Services

T = TypeVar("T")
# The error format for signed-in visitors.
MANAGEMENT = ErrorFormat("management", error_details.error_body, describe_answer(error_details.ManagementError))
COOKIE = "llmgateway.session_token"
DEVICE = "llmgateway.device"
DEVICE_COOKIE_S = 180 * 86_400
# Browsers accept this prefix from this host over https only: no other host of the domain can set the cookie.
HOST_ONLY = "__Host-"
# Browsers accept HOST_ONLY for the path "/" alone (RFC 6265bis, 4.1.3).
SECURE_ONLY = "__Secure-"
ADDING_METHODS = {"POST", "PUT", "PATCH"}
ID_PATTERN = re.compile(r"[A-Za-z0-9._:-]{1,80}")


@dataclass(frozen=True, slots=True)
class Reach:
    """The part of an organization that a permission of a visitor covers: the `whole` organization, or otherwise the
    visitor's `own` keys and requests, and the `teams` and `projects` in which the visitor has a role."""

    whole: bool = False
    own: bool = False
    teams: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.whole or self.own or bool(self.teams) or bool(self.projects)


@dataclass(frozen=True, slots=True)
class Visitor:
    """A signed-in user with their active memberships by organization, as far as the session
    reaches them, or a service account.

    `account` and `token` are those of a service account, which is an admin of its only organization within its scopes
    and manages no owners and admins. `parts` are the teams and projects in which the visitor has a role, by member, as
    far as they were read, and `known` is what the parts of one page would otherwise read again.
    """

    services: Services
    session: SessionInfo
    memberships: Mapping[str, MemberInfo]
    # The method of a change that is still to be counted; empty for reads and deletions.
    uncounted: set[str] = field(default_factory=set)
    account: ServiceAccountInfo | None = None
    token: str = field(default="", repr=False)
    parts: dict[str, Parts] = field(default_factory=dict)
    known: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    @property
    def user_id(self) -> str:
        return self.session.user_id

    def remember(self, name: Hashable, read: Callable[[], T]) -> T:
        """Return what `read` returned for a name before in this request, or returns now."""
        if name not in self.known:
            self.known[name] = read()
        known: T = self.known[name]
        return known

    def reach(self, organization_id: str, permission: Permission) -> Reach:
        """Return what a permission of the visitor covers in an organization."""
        membership = self.memberships.get(organization_id)
        if membership is None:
            return Reach()
        in_organization = reach_of(membership.role, permission)
        if in_organization == "all":
            return Reach(whole=True, own=True)
        row = TABLE[permission]
        parts = self._parts_of(membership) if row.lead or row.project_admin else NO_PARTS
        return Reach(
            own=in_organization == "own",
            teams=parts.teams if reach_of(TEAM_LEAD, permission) else frozenset(),
            projects=parts.projects if reach_of(PROJECT_ADMIN, permission) else frozenset(),
        )

    def _parts_of(self, membership: MemberInfo) -> Parts:
        known = self.parts.get(membership.id)
        if known is None:
            known = self.parts[membership.id] = read_parts(self.services.store.database, membership.id)
        return known

    def may(self, permission: Permission, organization_id: str = "") -> bool:
        """Return whether the visitor has a permission, wholly or in part, in an organization; "": in any."""
        if organization_id:
            return bool(self.reach(organization_id, permission))
        return any(self.reach(known, permission) for known in self.memberships)

    def manages(self, permission: Permission, organization_id: str = "") -> bool:
        """Return whether the visitor has a permission for a whole organization; "": for any."""
        if organization_id:
            return self.reach(organization_id, permission).whole
        return any(self.reach(known, permission).whole for known in self.memberships)

    def member(self, organization_id: str) -> MemberInfo:
        """Return the visitor's membership; a change is counted in the first organization that is checked. Raises
        NotFound (no such organization), Forbidden, RateLimited (code too_many_changes)."""
        membership = self._find_membership(organization_id)
        self._count_change(membership)
        return membership

    def permitted(self, organization_id: str, permission: Permission) -> MemberInfo:
        """Return the visitor's membership if the permission covers the whole organization; see `member`."""
        return self.check(organization_id, permission, self.reach(organization_id, permission).whole)

    def check(self, organization_id: str, permission: Permission, is_covered: bool) -> MemberInfo:
        """Return the visitor's membership. Raises Forbidden unless the permission covers what the request names; see
        `member`."""
        membership = self._find_membership(organization_id)
        if not is_covered:
            roles = " or ".join(TABLE[permission].roles)
            raise Forbidden(f"This requires the role {roles}; your role is {membership.role}.")
        self._count_change(membership)
        return membership

    def _find_membership(self, organization_id: str) -> MemberInfo:
        membership = self.memberships.get(organization_id)
        if membership is None:
            organizations.find_organization(self.services.store.database, organization_id)
            raise Forbidden("You are not a member of this organization.")
        return membership

    def _count_change(self, membership: MemberInfo) -> None:
        if self.uncounted:
            self.uncounted.clear()
            self.services.management.count_change(membership)

    def project(self, project_id: str, permission: Permission) -> ProjectInfo:
        """Return a project for which the visitor has a permission, be it for own keys only. Raises NotFound,
        Forbidden."""
        project = projects.find_project(self.services.store.database, project_id)
        reach = self.reach(project.organization_id, permission)
        is_covered = reach.whole or reach.own or project.id in reach.projects or bool(reach.teams)
        self.check(project.organization_id, permission, is_covered)
        return project

    def key(self, key_id: str, permission: Permission = "keys:read") -> KeyInfo:
        """Return a key for which the visitor has a permission: any of their organization, any of a project, or their
        own. Nobody changes keys of people who may do more. Raises NotFound, Forbidden."""
        key = keys.find(self.services.store.database, key_id)
        membership = self.member(key.organization_id)
        reach = self.reach(key.organization_id, permission)
        is_own = reach.own and key.member_id == membership.id
        if reach.own and not (reach.whole or is_own or key.project_id in reach.projects):
            raise Forbidden("No permission for this API key: developers manage keys that they created.")
        self.check(key.organization_id, permission, reach.whole or is_own or key.project_id in reach.projects)
        if permission != "keys:read" and not self.may_change_key(key):
            raise Forbidden(f"The owner of this API key has the role {key.owner_role}, whose keys you may not change.")
        return key

    def may_change_key(self, key: KeyInfo) -> bool:
        """Return whether the owner of a key is the visitor or a person that the visitor may change."""
        is_own = key.member_id == self.member(key.organization_id).id
        return is_own or self.authority_for(key.organization_id, "keys:write").covers(key.owner_role)

    def covers_member(self, organization_id: str, member_id: str, permission: Permission) -> bool:
        """Return whether a permission of the visitor covers a member: one of the organization, or of a team. The limits
        of a member count spending in all teams, so that only a lead of all of them changes them."""
        reach = self.reach(organization_id, permission)
        if reach.whole or not reach.teams:
            return reach.whole
        teams = list_teams(self.services.store.database, organization_id, member_id=member_id)
        if permission == "members:limit":
            return bool(teams) and all(team.id in reach.teams for team in teams)
        return any(team.id in reach.teams for team in teams)

    def other_member(self, organization_id: str, member_id: str, permission: Permission) -> MemberInfo:
        """Return another member that the visitor may change: nobody changes people who may do more. Raises NotFound,
        Forbidden."""
        self.check(organization_id, permission, self.covers_member(organization_id, member_id, permission))
        member = members.find_in_organization(self.services.store.database, organization_id, member_id)
        self.authority_for(organization_id, permission).check(member.role)
        return member

    def authority_for(self, organization_id: str, permission: Permission) -> Authority:
        """Return the authority over other members with which the visitor uses a permission."""
        membership = self.member(organization_id)
        if self.account is not None:
            return of_service_account()
        if not self.reach(organization_id, permission).whole:
            return of_part(membership.role)
        if permission in ("members:limit", "teams:limit"):
            return of_limits(membership.role)
        return of_session(membership.role)

    def authority(self, membership: MemberInfo) -> Authority:
        """Return the authority of the visitor over the other members of an organization."""
        if self.account is not None:
            return of_service_account()
        return of_session(membership.role)

    def check_person(self, text: str) -> None:
        """Raise Forbidden with this text for a service account."""
        if self.account is not None:
            raise Forbidden(text)

    def names_known_to(self, organization_id: str) -> KnownNames:
        """Return the names that rules and the policy of an organization may allow."""
        own = self.services.management.custom_providers.list_providers(organization_id)
        return KnownNames(self.services.routing.catalogue.current(), tuple(own))

    def organizations(self) -> list[OrganizationInfo]:
        """Return the organizations of the visitor."""
        listed = organizations.list_organizations(self.services.store.database, self.user_id)
        return [info for info in listed if info.id in self.memberships]

    def projects(self) -> list[ProjectInfo]:
        """Return the projects of the visitor's organizations, without archived ones."""
        database = self.services.store.database
        name = ("projects", *self.memberships)
        return self.remember(name, lambda: projects.list_projects(database, list(self.memberships)))

    def workspace(self, inbound: Inbound, project_id: str, team_id: str) -> Workspace:
        """Return the workspace that the visitor chose for a coding agent."""
        return Workspace(project_id, team_id, frozenset(self.memberships), inbound.base_url.rstrip("/"))

    def is_operator(self) -> bool:
        """Return whether the visitor runs this installation: as an owner of its first organization."""
        owned = [organization_id for organization_id, own in self.memberships.items() if own.role == "owner"]
        return bool(owned) and self.services.store.database.read(organizations.first_id) in owned

    def check_account_access(self) -> None:
        """Raise Forbidden unless the session may change the account itself: an organization's identity provider signs a
        person in to that organization only."""
        if self.session.organization_id:
            raise Forbidden(
                "You are signed in for one organization by its identity provider. Sign in with your password to change "
                "your account.",
                code="sso_limited_session",
            )


def answer_visitor(
    respond: Callable[[Visitor, Inbound], Outbound], scope: str = ""
) -> Callable[[Services, Inbound], Outbound]:
    """Return a handler that checks origin, ids and session before it calls `respond`. Service accounts need `scope`;
    without one, they are refused."""

    def handle(services: Services, inbound: Inbound) -> Outbound:
        token, by_cookie = token_of(inbound)
        if by_cookie:
            check_api_origin(services, inbound, required=True)
            visitor = visit(services, token, inbound.method)
        elif is_service_account_token(token):
            visitor = visit_as_service_account(services, token, inbound, scope)
        else:
            visitor = visit(services, token, inbound.method)
        _check_ids(inbound)
        if inbound.method in SAFE_METHODS:
            with services.background.reports.turn(visitor.user_id):
                outbound = respond(visitor, inbound)
        else:
            outbound = respond(visitor, inbound)
        if by_cookie and visitor.session.refreshed:
            outbound.headers.append(write_cookie(inbound, token))
        return outbound

    return handle


def visit(services: Services, token: str, method: str = "GET") -> Visitor:
    """Return the visitor of a session token; `method` is the HTTP method. Raises Unauthenticated, Forbidden
    (deactivated account)."""
    if not token:
        raise Unauthenticated("Sign in first: this operation requires a session.", code="session_invalid")
    if not token.startswith(PREFIX):
        raise Unauthenticated("This operation requires a session, not an API key; sign in.", code="session_invalid")
    session = services.management.sessions.find(token)
    work_for(session.user_id)
    members_of_user = members.list_members(services.store.database, user_id=session.user_id)
    active = {member.organization_id: member for member in members_of_user if member.status == "active"}
    memberships = reachable(services.store.database, session, active)
    return Visitor(services, session, memberships, {method} & ADDING_METHODS)


def visit_as_service_account(services: Services, token: str, inbound: Inbound, scope: str) -> Visitor:
    """Return the visitor of a service account's token for an operation that needs `scope`.

    Raises Unauthenticated, Gone, or Forbidden (address rule; code scope_missing).
    """
    known = services.accounts.service_accounts.find(token, inbound.peer)
    account = known.info
    work_for(account.id)
    if not scope:
        raise Forbidden("Service accounts cannot use this operation: it is for people.", code="scope_missing")
    if scope not in account.scopes:
        raise Forbidden(f"This operation requires the scope {scope} of the service account.", code="scope_missing")
    memberships = {account.organization_id: known.member}
    session = SessionInfo("", account.id, known.member.email, account.name, account.created_at_us, 0)
    return Visitor(services, session, memberships, {inbound.method} & ADDING_METHODS, account, token)


def token_of(inbound: Inbound) -> tuple[str, bool]:
    """Return the session token, and whether it came in a cookie, which a browser sends automatically."""
    scheme, _, value = inbound.header("authorization").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip(), False
    token = read_cookie(inbound, COOKIE)
    return token, bool(token)


def read_cookie(inbound: Inbound, cookie: str) -> str:
    """Return the value of a cookie that `write_cookie` set on this scheme; "" without."""
    cookie = _cookie_name(inbound, cookie)
    for part in inbound.header("cookie").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie and value:
            return value.strip('"')
    return ""


def check_origin(services: Services, inbound: Inbound, required: bool = False) -> None:
    """Raise Forbidden when a change comes from a page of another origin, or, if `required`, without an origin."""
    if inbound.method in SAFE_METHODS:
        return
    origin = inbound.header("origin")
    if not origin:
        if required:
            raise Forbidden("Send an Origin header with changes that a cookie authenticates.", code="untrusted_origin")
        return
    if origin not in trusted_origins(services, inbound):
        raise Forbidden(
            f"Changes from {origin[:200]} are not allowed; list this origin in GATEWAY_SECURITY_TRUSTED_ORIGINS.",
            code="untrusted_origin",
        )


def check_api_origin(services: Services, inbound: Inbound, required: bool = False) -> None:
    """Check the origin of a change through the management API; a program at a loopback address may name any.

    Browsers send Sec-Fetch-Site to https and to loopback addresses
    (https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header), so a request without it comes from a program. The
    published command-line client names a dashboard that a local gateway does not have.
    """
    is_local = urlsplit(inbound.base_url).hostname in LOOPBACK
    if is_local and not inbound.header("sec-fetch-site"):
        return
    check_origin(services, inbound, required)


def trusted_origins(services: Services, inbound: Inbound) -> frozenset[str]:
    """Return the gateway's own origin and the configured ones."""
    own = urlsplit(inbound.base_url)
    return frozenset((f"{own.scheme}://{own.netloc}", *services.settings.security.trusted_origins))


def write_cookie(inbound: Inbound, token: str, life_s: int = LIFETIME_S, cookie: str = COOKIE) -> tuple[str, str]:
    """Return Set-Cookie for a session token, or for the cookie `cookie`; `life_s` 0 removes it."""
    name = _cookie_name(inbound, cookie)
    ending = "; Secure" if name != cookie else ""
    path = _cookie_path(inbound)
    return "Set-Cookie", f"{name}={token}; Path={path}; Max-Age={life_s}; HttpOnly; SameSite=Lax{ending}"


def _cookie_name(inbound: Inbound, cookie: str) -> str:
    if not inbound.base_url.startswith("https:"):
        return cookie
    if _cookie_path(inbound) == "/":
        return HOST_ONLY + cookie
    return SECURE_ONLY + cookie


def _cookie_path(inbound: Inbound) -> str:
    """Return the path below which the gateway is served, so that other applications of the host get no cookie of it."""
    return urlsplit(inbound.base_url).path or "/"


def place_of(inbound: Inbound) -> Place:
    """Return the place of a sign-in: address and program."""
    return Place(inbound.peer, agent_of(inbound), read_cookie(inbound, DEVICE)[:256])


def agent_of(inbound: Inbound) -> str:
    """Return the caller's User-Agent."""
    return inbound.header("user-agent")[:AGENT_LENGTH]


def device_cookie(inbound: Inbound, device: str) -> tuple[str, str]:
    """Return Set-Cookie for a device that signed in, which is recognized the next time."""
    return write_cookie(inbound, device, DEVICE_COOKIE_S, DEVICE)


def _check_ids(inbound: Inbound) -> None:
    for value in inbound.params.values():
        if not ID_PATTERN.fullmatch(value):
            raise NotFound(f"Nothing is served at {inbound.path[:200]}.")
