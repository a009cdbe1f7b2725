"""`/keys/api`: API keys, as the public client creates, lists, limits, rolls and deletes them."""

from functools import partial
from typing import Any, Literal

from gateway.accounts import keys
from gateway.accounts.keys import Change, Draft, Expiry, KeyInfo
from gateway.accounts.projects import list_projects
from gateway.accounts.rule_values import RuleInfo
from gateway.accounts.rules import list_rules
from gateway.surfaces.http import Inbound, Operation
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed, require_some
from gateway.surfaces.management.limit_routes import FIELDS, LimitChange, read_limits
from gateway.surfaces.management.presenters import PLAN, show_key
from gateway.surfaces.validation_schemas import Body, Moment, OneOf, TextField, Usd, WholeNumber, read_body, read_query
from gateway.surfaces.visitor import MANAGERS, Visitor

TAG = "API keys"
STATES: dict[str, Literal["", "activate", "deactivate"]] = {"active": "activate", "inactive": "deactivate"}


class NewKey(Body):
    description = TextField(1, 1000, required=True)
    projectId = TextField(1, 80, required=True)
    kind = OneOf(("user", "customer"), load_default="user")
    expiresAt = Moment(allow_none=True)
    usageLimit = Usd(allow_none=True)
    periodUsageLimit = Usd(allow_none=True)
    periodUsageDurationValue = WholeNumber(1, 8760, allow_none=True)
    periodUsageDurationUnit = OneOf(("hour", "day", "week", "month"), allow_none=True)


class KeyChange(Body):
    status = OneOf(tuple(STATES))
    expiresAt = Moment(allow_none=True)
    description = TextField(1, 1000)


class KeyQuery(Body):
    projectId = TextField(1, 80)
    filter = OneOf(("mine", "all"))


def create(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Create a key of your own; its token is shown only in this response."""
    given = read_body(NewKey, inbound)
    project = visitor.project(given["projectId"])
    member = visitor.member(project.organization_id)
    draft = Draft(project.id, member.id, given["description"], given["kind"], given.get("expiresAt"))
    limits = read_limits({name: given[name] for name in FIELDS if name in given})
    made = visitor.services.management.create_key(draft, limits, actor=visitor.user_id)
    return {"apiKey": {**_show(visitor, made.info), "token": made.token}}


def list_keys(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The keys of the chosen project, or of every accessible one: all keys for owners and admins, otherwise your
    own."""
    given = read_query(KeyQuery, inbound)
    if "projectId" in given:
        project = visitor.project(given["projectId"])
        projects = {project.organization_id: [project.id]}
    else:
        projects = _projects(visitor)
    found: list[KeyInfo] = []
    for organization_id, project_ids in projects.items():
        mine = visitor.member(organization_id)
        everyone = mine.role in MANAGERS and given.get("filter") != "mine"
        member_id = "" if everyone else mine.id
        found += keys.list_keys(visitor.services.store.database, project_ids=project_ids, member_id=member_id)
    shown = {"apiKeys": _show_all(visitor, found), "userRole": _role(visitor, projects)}
    return shown | _plan_limits(visitor, list(projects))


def find(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """A key with its limits, its usage of them, and its access rules."""
    return {"apiKey": _show(visitor, visitor.key(inbound.params["key_id"]))}


def update(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """An expired key can get a new expiry; a revoked one stays revoked. In force everywhere when this returns."""
    given = require_some(read_body(KeyChange, inbound))
    key = visitor.key(inbound.params["key_id"])
    change = Change(
        STATES.get(given.get("status", ""), ""),
        given.get("description"),
        Expiry(given["expiresAt"]) if "expiresAt" in given else None,
    )
    changed = visitor.services.management.update_key(key, change, actor=visitor.user_id)
    return {"message": "API key updated.", "apiKey": _show(visitor, changed)}


def set_limits(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Change the given limits; another period resets the period's usage."""
    given = require_some(read_body(LimitChange, inbound))
    key = visitor.key(inbound.params["key_id"])
    management = visitor.services.management
    management.set_key_limits(key, partial(read_limits, given), actor=visitor.user_id)
    return {"message": "API key limits updated.", "apiKey": _show(visitor, key)}


def roll(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """A new token; the old one is refused everywhere when this returns."""
    key = visitor.key(inbound.params["key_id"])
    made = visitor.services.management.roll_key(key.id, actor=visitor.user_id)
    return {"message": "API key rolled.", "apiKey": {**_show(visitor, made.info), "token": made.token}}


def delete(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Delete a key permanently; its history is kept."""
    key = visitor.key(inbound.params["key_id"])
    services = visitor.services
    keys.delete(services.store.database, services.store.control, key.id, actor=visitor.user_id)
    return {"message": "API key deleted."}


def _show(visitor: Visitor, key: KeyInfo) -> dict[str, Any]:
    return _show_all(visitor, [key])[0]


def _show_all(visitor: Visitor, found: list[KeyInfo]) -> list[dict[str, Any]]:
    """Keys with counters and rules, each read at once for all of an organization."""
    statuses = visitor.services.management.budgets.statuses([key.id for key in found])
    placed: dict[str, list[RuleInfo]] = {key.id: [] for key in found}
    for organization_id in {key.organization_id for key in found}:
        if len(found) == 1:
            scope_id = found[0].id
        else:
            scope_id = ""
        for rule in list_rules(visitor.services.store.database, organization_id, "key", scope_id):
            placed.get(rule.scope_id, []).append(rule)
    return [show_key(key, statuses[key.id], placed[key.id]) for key in found]


def _projects(visitor: Visitor) -> dict[str, list[str]]:
    """Organization → its projects, for every organization of the visitor."""
    found: dict[str, list[str]] = {organization_id: [] for organization_id in visitor.memberships}
    for project in list_projects(visitor.services.store.database, list(found)):
        found[project.organization_id].append(project.id)
    return found


def _plan_limits(visitor: Visitor, organization_ids: list[str]) -> dict[str, Any]:
    """`planLimits` of a list that is of one organization, under the cap that the visitor's next key meets first."""
    if len(organization_ids) != 1:
        return {}
    member = visitor.member(organization_ids[0])
    usage = visitor.services.management.find_key_cap_usage(member.organization_id, member.id)
    if not usage.most:
        return {}
    return {"planLimits": {"currentCount": usage.count, "maxKeys": usage.most, "plan": PLAN}}


def _role(visitor: Visitor, organization_ids: object) -> str:
    """The strongest role among the organizations in question; developer without any."""
    roles = {visitor.memberships[one].role for one in visitor.memberships if one in organization_ids}  # type: ignore[operator]
    return next((role for role in MANAGERS if role in roles), "developer")


LISTED = shapes.shape(apiKeys=[shapes.KEY], userRole="string")
LISTED["properties"]["planLimits"] = shapes.PLAN_LIMITS
ANSWER = shapes.shape(message="string", apiKey=shapes.KEY)
WITH_TOKEN = {"allOf": [shapes.KEY, shapes.shape(token="string")]}

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/keys/api", list_keys, "List API keys", tag=TAG, query=KeyQuery,
            answer=LISTED),
    managed("POST", "/keys/api", create, "Make an API key", tag=TAG, request=NewKey,
            answer=shapes.shape(apiKey=WITH_TOKEN)),
    managed("GET", "/keys/api/<key_id>", find, "Show an API key", tag=TAG, answer=shapes.shape(apiKey=shapes.KEY)),
    managed("PATCH", "/keys/api/<key_id>", update, "Activate, deactivate, rename or re-date an API key", tag=TAG,
            request=KeyChange, answer=ANSWER),
    managed("PATCH", "/keys/api/limit/<key_id>", set_limits, "Set an API key's spending limits", tag=TAG,
            request=LimitChange, answer=ANSWER),
    managed("POST", "/keys/api/<key_id>/roll", roll, "Give an API key a new token", tag=TAG,
            answer=shapes.shape(message="string", apiKey=WITH_TOKEN)),
    managed("DELETE", "/keys/api/<key_id>", delete, "Delete an API key", tag=TAG, answer=shapes.DONE),
)  # fmt: skip
