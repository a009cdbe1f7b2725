"""`/keys/api`: API keys with their limits, and how many active ones an organization and its members may have."""

from functools import partial
from typing import Literal

from msgspec import UNSET
from msgspec.structs import asdict

from gateway.accounts import keys
from gateway.accounts.key_caps import MAX_CAP, OwnCaps
from gateway.accounts.keys import MAX_DESCRIPTION_LENGTH, Change, Draft, Expiry, KeyInfo, KeyOwners
from gateway.accounts.members import MemberInfo, find_in_organization, load_members
from gateway.accounts.projects import ProjectInfo, list_projects
from gateway.accounts.rules import list_key_rules
from gateway.callers import tokens as tokens_module
from gateway.callers.permissions import RANKS, reach_of
from gateway.callers.rule_values import RuleInfo
from gateway.errors import Forbidden, NotFound
from gateway.limits.budgets import Status
from gateway.metering.log.search import find_last_hours
from gateway.surfaces.management.access_groups import OPERATOR, anywhere, in_organization, in_project, of_key
from gateway.surfaces.management.answers import (
    ApiKeyAnswer,
    ApiKeysAnswer,
    KeyCapsAnswer,
    NewApiKeyAnswer,
    OwnCapsAnswer,
    PlanLimitsAnswer,
    UserAnswer,
    limits_of,
)
from gateway.surfaces.management.limit_routes import (
    FIELDS,
    RESERVATION,
    LimitChange,
    LimitFields,
    ReservationField,
    hold_subject,
    limit_commands,
    read_limits,
)
from gateway.surfaces.management.managed_operation import Creating, Creation, ListPageQuery, ManagedCall, managed
from gateway.surfaces.management.rule_routes import show_rule
from gateway.surfaces.visitors.validation_schemas import Body, IsoTime, OneOf, StrictBody, TextField, WholeNumber
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation

TAG = "API keys"
STATES: dict[str, Literal["", "activate", "deactivate"]] = {"active": "activate", "inactive": "deactivate"}
# Clients know active, inactive and deleted; `state` says why a key is refused.
STATUS = {"expired": "inactive", "revoked": "inactive"}


class NewKey(Creating, LimitFields, ReservationField):
    description = TextField(1, MAX_DESCRIPTION_LENGTH, required=True, about="Name in lists.")
    projectId = TextField(1, 80, required=True, about="The key's project.")
    memberId = TextField(1, 80, about="The member who owns the key; default: yourself. For owners and admins.")
    kind = OneOf(tuple(tokens_module.PREFIXES), load_default="user", about="customer: a key that can only call models.")
    expiresAt = IsoTime(allow_none=True, about="When the key expires.")


class KeyChange(Body):
    status = OneOf(tuple(STATES))
    expiresAt = IsoTime(allow_none=True, about="The new expiry.")
    description = TextField(1, MAX_DESCRIPTION_LENGTH, about="The new name in lists.")


class KeyQuery(ListPageQuery):
    projectId = TextField(1, 80, about="Only keys of this project.")
    memberId = TextField(1, 80, about="Only keys of this member.")
    filter = OneOf(("mine", "all"), about="mine: only your own keys.")


def create(call: ManagedCall[ProjectInfo]) -> NewApiKeyAnswer:
    """Create a key of your own; its token is shown only in this response, and null if `clientId` found an existing
    key.

    Owners and admins also create keys for another member (`memberId`), whose requests and limits it then counts to;
    only an owner does for an owner. That member sees the key, and cannot raise the limits that you give it.
    """
    project = call.subject
    fields = call.fields
    member = call.visitor.member(project.organization_id)
    if fields.get("memberId", member.id) != member.id:
        member = _find_owner(call, fields["memberId"])
    if not reach_of(member.role, "keys:use"):
        raise Forbidden(f"Members with the role {member.role} have no API keys.", code="role_without_keys")
    draft = Draft(project.id, member.id, fields["description"], fields["kind"], fields.get("expiresAt"))
    limits = read_limits({name: fields[name] for name in (*FIELDS, RESERVATION) if name in fields})
    return _show_new(call.visitor, call.management.create_key(draft, limits, actor=call.actor, claim=call.claim))


def _find_owner(call: ManagedCall[ProjectInfo], member_id: str) -> MemberInfo:
    """Return the other member who gets a new key. Raises NotFound, Forbidden."""
    visitor = call.visitor
    project = call.subject
    reach = visitor.reach(project.organization_id, "keys:create")
    visitor.check(project.organization_id, "keys:create", reach.whole or project.id in reach.projects)
    member = find_in_organization(call.database, project.organization_id, member_id)
    visitor.authority_for(project.organization_id, "keys:create").check(member.role)
    return member


def _show_existing(call: ManagedCall[ProjectInfo], key_id: str) -> NewApiKeyAnswer:
    return NewApiKeyAnswer(**asdict(_show(call.visitor, call.visitor.key(key_id))), token=None)


def list_keys(call: ManagedCall[None]) -> ApiKeysAnswer:
    """The keys of the chosen project, or of every accessible one: all keys for owners and admins, otherwise your
    own."""
    visitor = call.visitor
    if "projectId" in call.fields:
        project = visitor.project(call.fields["projectId"], "keys:read")
        projects = {project.organization_id: [project.id]}
    else:
        projects = _list_projects(visitor)
    member_id = call.fields.get("memberId", "")
    if member_id:
        organization_id = _find_organization(call, member_id)
        projects = {organization_id: projects.get(organization_id, [])}
    owners = _find_owners(visitor, projects, member_id, call.fields.get("filter") == "mine")
    visible = call.page.read(partial(keys.list_owned, call.database, owners))
    if call.page.next is UNSET:  # a whole list has the keys of one organization after those of another
        order = {organization_id: number for number, organization_id in enumerate(projects)}
        visible.sort(key=lambda key: order[key.organization_id])
    answer = ApiKeysAnswer(show_keys(visitor, visible), _find_role(visitor, projects), next=call.page.next)
    if len(projects) == 1:
        member = visitor.member(next(iter(projects)))
        usage = call.management.find_key_cap_usage(member.organization_id, member.id)
        if usage.maximum:
            answer.plan_limits = PlanLimitsAnswer(usage.count, usage.maximum)
    return answer


def _find_organization(call: ManagedCall[None], member_id: str) -> str:
    """Return the organization of a member, one of the visitor's. Raises NotFound."""
    for member in call.database.read(partial(load_members, [member_id])):
        if member.organization_id in call.visitor.memberships:
            return member.organization_id
    raise NotFound(f"There is no member {member_id} in your organizations.")


def _find_owners(
    visitor: Visitor, projects: dict[str, list[str]], member_id: str = "", mine: bool = False
) -> list[KeyOwners]:
    """Return the owners of the keys that the visitor may see, by organization; only one member if given."""
    owners = []
    for organization_id, project_ids in projects.items():
        membership = visitor.member(organization_id)
        reach = visitor.reach(organization_id, "keys:read")
        whole = [ident for ident in project_ids if not mine and (reach.whole or ident in reach.projects)]
        if whole:
            owners.append(KeyOwners(whole, member_id))
        if reach.own and member_id in ("", membership.id):
            owners.append(KeyOwners([ident for ident in project_ids if ident not in whole], membership.id))
    return owners


def list_visible(visitor: Visitor) -> list[KeyInfo]:
    """Return all keys that the visitor may see, oldest first, without their counters and rules."""
    return keys.list_owned(visitor.services.store.database, _find_owners(visitor, _list_projects(visitor)))


def find(call: ManagedCall[KeyInfo]) -> ApiKeyAnswer:
    """A key with its limits, its usage of them, and its access rules."""
    return _show(call.visitor, call.subject)


def update(call: ManagedCall[KeyInfo]) -> ApiKeyAnswer:
    """An expired key can get a new expiry; a revoked one stays revoked. In force everywhere when this returns."""
    fields = call.fields
    change = Change(
        STATES.get(fields.get("status", ""), ""),
        fields.get("description"),
        Expiry(fields["expiresAt"]) if "expiresAt" in fields else None,
    )
    return _show(call.visitor, call.management.update_key(call.subject, change, actor=call.actor))


def set_limits(call: ManagedCall[KeyInfo]) -> ApiKeyAnswer:
    """Change the given limits; another period resets the period's usage."""
    call.management.set_key_limits(call.subject, partial(read_limits, call.fields), actor=call.actor)
    return _show(call.visitor, call.subject)


def roll(call: ManagedCall[KeyInfo]) -> NewApiKeyAnswer:
    """A new token; the old one is refused everywhere when this returns."""
    return _show_new(call.visitor, call.management.roll_key(call.subject.id, actor=call.actor))


def delete(call: ManagedCall[KeyInfo]) -> None:
    """Delete a key permanently; its history is kept. A key that a limit of a higher role names stays."""
    key = call.subject
    check = hold_subject(call, key.organization_id, ("key", "customer"), key.id)
    keys.delete(*call.stores, key.id, actor=call.actor, check=check)


def show_key(info: KeyInfo, status: Status, rules: list[RuleInfo], last_used_us: int | None) -> ApiKeyAnswer:
    """Return a key with the rules at the key itself."""
    return ApiKeyAnswer.of(
        info,
        status=STATUS.get(info.state, info.state) if info.owner_active else "inactive",
        masked_token=info.mask,
        created_by=info.creator_id,
        creator=UserAnswer(info.creator_id, info.creator_email, info.creator_name),
        last_used_at=last_used_us,
        iam_rules=[show_rule(rule) for rule in rules],
        **limits_of(status),
    )


def _show(visitor: Visitor, key: KeyInfo) -> ApiKeyAnswer:
    return show_keys(visitor, [key])[0]


def _show_new(visitor: Visitor, key: keys.NewKey) -> NewApiKeyAnswer:
    return NewApiKeyAnswer(**asdict(_show(visitor, key.info)), token=key.token)


def show_keys(visitor: Visitor, visible: list[KeyInfo]) -> list[ApiKeyAnswer]:
    """Return keys with counters and rules, each read for many keys at once."""
    statuses = visitor.services.management.budgets.statuses([key.id for key in visible])
    rules: dict[str, list[RuleInfo]] = {key.id: [] for key in visible}
    for rule in list_key_rules(visitor.services.store.database, list(rules)):
        rules[rule.scope_id].append(rule)
    last_used = find_last_hours(visitor.services.store.database, [key.id for key in visible])
    return [show_key(key, statuses[key.id], rules[key.id], last_used.get(key.id)) for key in visible]


def _list_projects(visitor: Visitor) -> dict[str, list[str]]:
    """Return the ids of projects by organization, for every organization of the visitor."""
    projects: dict[str, list[str]] = {organization_id: [] for organization_id in visitor.memberships}
    for project in list_projects(visitor.services.store.database, list(projects)):
        projects[project.organization_id].append(project.id)
    return projects


def _find_role(visitor: Visitor, organization_ids: dict[str, list[str]]) -> str:
    """Return the strongest role in these organizations; developer without any."""
    roles = {member.role for name, member in visitor.memberships.items() if name in organization_ids}
    return max(roles, key=RANKS.__getitem__, default="developer")


KEY = "/keys/api/<key_id>"


# `/orgs/…/key-caps`: how many active API keys an organization and each of its members may have.

CAP_WORDS = {"none": 0, "default": None}
CAP_DESCRIPTION = "a number, none, or default (the installation's)."


class CapChange(StrictBody):
    """Absent members stay unchanged; null restores the installation's value, 0 means no cap."""

    maxKeys = WholeNumber(
        0, MAX_CAP, allow_none=True, words=CAP_WORDS, about=f"Maximum of active API keys: {CAP_DESCRIPTION}"
    )
    maxKeysPerMember = WholeNumber(
        0, MAX_CAP, allow_none=True, words=CAP_WORDS, about=f"Maximum per member: {CAP_DESCRIPTION}"
    )


def find_caps(call: ManagedCall[str]) -> KeyCapsAnswer:
    """The caps in force, and how many active keys there are."""
    own, caps = call.management.find_key_caps(call.subject)
    count = call.management.find_key_cap_usage(call.subject).count
    return KeyCapsAnswer(caps.total or None, caps.member or None, count, OwnCapsAnswer(own.total, own.member))


def change_caps(call: ManagedCall[str]) -> KeyCapsAnswer:
    """Set an organization's own caps; existing keys above them are kept."""
    own, _ = call.management.find_key_caps(call.subject)
    caps = OwnCaps(call.fields.get("maxKeys", own.total), call.fields.get("maxKeysPerMember", own.member))
    call.management.set_key_caps(call.subject, caps, actor=call.actor)
    return find_caps(call)


CAPS_PATH = "/orgs/<organization_id>/key-caps"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/keys/api", list_keys, "List API keys", tag=TAG,
            who=anywhere("keys:read"), scope="keys:read", query=KeyQuery,
            commands=("keys list --project=projectId .apiKeys",)),
    managed("POST", "/keys/api", create, "Create an API key", tag=TAG,
            who=in_project("keys:create"), scope="keys:write", request=NewKey,
            inside="apiKey", audit="api_key.create", creates=Creation("key", _show_existing),
            commands=("keys create --expires=expiresAt ... -> token",)),
    managed("GET", KEY, find, "Show an API key", tag=TAG,
            who=of_key("keys:read"), scope="keys:read", inside="apiKey",
            commands=("keys show <key_id>",)),
    managed("PATCH", KEY, update, "Change an API key", tag=TAG,
            who=of_key("keys:write"), scope="keys:write",
            request=KeyChange, inside="apiKey", message="API key updated.",
            audit=("api_key.update_status", "api_key.update"),
            commands=("keys activate <key_id> status=active --expires=expiresAt",
                      "keys deactivate <key_id> status=inactive")),
    managed("PATCH", "/keys/api/limit/<key_id>", set_limits, "Set an API key's spending limits", tag=TAG,
            who=of_key("keys:write"), scope="keys:write", request=LimitChange, inside="apiKey",
            message="API key limits updated.",
            audit="api_key.update_limit", commands=limit_commands("key_id")),
    managed("POST", f"{KEY}/roll", roll, "Replace an API key's token", tag=TAG,
            who=of_key("keys:write"), scope="keys:write",
            inside="apiKey", message="API key rolled.", audit="api_key.roll",
            commands=("keys roll <key_id> -> token",)),
    managed("DELETE", KEY, delete, "Delete an API key", tag=TAG,
            who=of_key("keys:write"), scope="keys:write", message="API key deleted.",
            audit="api_key.delete", commands=("keys delete <key_id>",)),
    managed("GET", CAPS_PATH, find_caps, "Show caps on active API keys", tag=TAG,
            who=in_organization("key_caps:read"), scope="keys:read",
            inside="keyCaps", commands=("organizations key-caps <organization_id>",)),
    managed("PATCH", CAPS_PATH, change_caps, "Set an organization's caps on active API keys", tag=TAG, who=OPERATOR,
            request=CapChange, inside="keyCaps", audit="organization.update_key_caps",
            commands=("organizations key-caps <organization_id> --max=maxKeys --per-member=maxKeysPerMember",)),
)  # fmt: skip
