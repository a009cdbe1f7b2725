"""`/orgs/…/limits`: limits of any subject, what is used of them, and raises for a time."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from marshmallow import ValidationError, fields, validate
from msgspec import Meta
from msgspec.structs import replace

from gateway.accounts.known_names import MODELS, PROVIDERS
from gateway.accounts.limit_drafts import MAX_ACTIONS, LimitDraft
from gateway.accounts.spending_limits import LimitInfo, RaiseRequest, SpendingLimits
from gateway.admin.held_limits import LimitHolding, OrganizationLimitHold
from gateway.admin.owned_limit_changes import OwnedLimitHold
from gateway.errors import Forbidden
from gateway.limits.limit_rules import (
    CREDENTIAL,
    MAX_SUBJECTS,
    MAX_VALUE_LENGTH,
    MODEL,
    PROVIDER,
    REQUEST,
    SESSION,
    LimitRule,
    Subject,
    read_action,
    read_subject,
)
from gateway.limits.limit_states import MemberState
from gateway.limits.models import EXACT, LIKELY
from gateway.limits.owned_rows import MARK, parse_owned
from gateway.limits.periods import join_period, read_period
from gateway.metering.session_ids import shorten
from gateway.store.database import WHOLE, ListSlice
from gateway.surfaces.management.access_groups import AccessGroup, Values, describe, in_part
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.management.owned_limit_access import (
    changed_with,
    check_change,
    check_read,
    check_simulate,
    hold_owned,
    list_seen_kinds,
    manages_owned,
    may_change_owned,
    owned_limits,
)
from gateway.surfaces.visitors.validation_schemas import (
    IsoTime,
    OneOf,
    QueryFlag,
    StrictBody,
    TextField,
    describe_field,
)
from gateway.surfaces.visitors.validation_schemas import Usd as Amount
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer, Time, Usd
from gateway.surfaces.web.http import Operation

TAG = "Limits"
PATH = "/orgs/<organization_id>/limits"
ONE = f"{PATH}/<limit_id>"
SUBJECTS = (
    "One or two subjects: organization, project=ID, team=ID, member=ID, key=ID, customer=KEY, application=NAME, "
    "tag:NAME=VALUE, user=NAME, session=ID, run=ID, model=PATTERN, provider=ID, provider_key=ID; 'each user' for each "
    "of them, 'no user' for requests without one. The limit key_…:total has the subject key=key_…, and key_…:session "
    "also 'each session'."
)
ACTIONS = (
    "What happens at shares of the amount: alert@80, warn@80 (an alert and a header of answers), refuse@100, or "
    "model@90= and the id of a model or route to use."
)
PERIOD = "Length of the period: 12h, 1d, 2w, 1mo, or day, week, month of a calendar with timezone; none: in total."


MAX_OTHERS = 1_000


class LimitListQuery(ListPageQuery):
    all = QueryFlag(about="true: also the limits of keys, members, teams, provider keys, sessions and runs.")


def _readable_by(read: Callable[[str], object]) -> Callable[[str], None]:
    """Return the check that `read` accepts a text."""

    def check(text: str) -> None:
        try:
            read(text)
        except ValueError as error:
            raise ValidationError(str(error)) from None

    return check


class LimitBody(StrictBody):
    """A limit. Absent members have their defaults, also in a limit that exists."""

    subjects = fields.List(
        TextField(1, 2 * MAX_VALUE_LENGTH, checks=(_readable_by(read_subject),)),
        required=True,
        validate=validate.Length(1, MAX_SUBJECTS),
        metadata=describe_field(SUBJECTS, examples=[["each user", "model=deepseek-*"]]),
    )
    amount = Amount(required=True, about="US dollars, in total or per period.")
    period = TextField(1, 20, allow_none=True, load_default=None, about=PERIOD, example="1mo")
    timezone = TextField(1, 50, allow_none=True, load_default=None, about="Time zone of a calendar period.")
    actions = fields.List(
        TextField(1, 300, checks=(_readable_by(read_action),)),
        load_default=lambda: ["refuse@100"],
        validate=validate.Length(1, MAX_ACTIONS),
        metadata=describe_field(ACTIONS, examples=[["warn@80", "refuse@100"]]),
    )
    reservation = OneOf(
        (LIKELY, EXACT),
        load_default=LIKELY,
        about="Whether requests reserve their likely cost or the highest possible one.",
        example=EXACT,
    )
    values = OneOf(
        (REQUEST, CREDENTIAL),
        load_default=REQUEST,
        about="Whether tags and end users are those that a request names, or the claims of its credential alone.",
        example=REQUEST,
    )


class RaiseBody(StrictBody):
    """More of a limit for a time."""

    amount = Amount(required=True, about="US dollars more; 0 ends a raise.")
    until = IsoTime(required=True, about="When the raise ends.")


class AskingBody(StrictBody):
    """A request of a person for more of a limit."""

    amount = Amount(required=True, about="US dollars more.")
    until = IsoTime(required=True, about="When the raise would end.")
    note = TextField(0, 255, load_default="", about="Why.")


class LimitMemberAnswer(Answer):
    """The amounts of one budget: that of a limit, or of one member of a limit for each. `reserved` includes the amounts
    that workers hold for the next requests. `member` "" stands for the requests without a value."""

    member: str
    limit: Usd | None
    usage: Usd
    reserved: Usd
    remaining: Usd
    started_at: Time | None
    renews_at: Time | None


class OrganizationLimitAnswer(Answer):
    """A limit with its state: for a limit for each, that of the member that used most. `amount` is the one that
    was set; `limit` is the one in force, with a raise. `raiseGrantedBy` is a user's id or operator. `deletable`: you
    may delete, raise and weaken it, since no higher role set it. `changedWith` is the operation that also changes a
    limit which belongs to a key, member, team, provider key or project called `name`; null for others."""

    columns = ("id", "subjects", "limit", "period", "usage", "reserved", "remaining", "renews_at", "actions")
    id: str
    subjects: Annotated[list[str], Meta(examples=[["each user", "model=deepseek-*"]])]
    amount: Usd
    period: str | None
    timezone: str | None
    actions: Annotated[list[str], Meta(examples=[["warn@80", "refuse@100"]])]
    reservation: str
    values: str
    limit: Usd
    usage: Usd
    reserved: Usd
    remaining: Usd
    started_at: Time | None
    renews_at: Time | None
    forecast_at: Time | None
    raised_by: Usd | None
    raised_until: Time | None
    raise_granted_by: Annotated[str | None, Meta(examples=["operator"])]
    deletable: bool
    member_count: int
    members: list[LimitMemberAnswer]
    name: str | None = None
    changed_with: Annotated[str | None, Meta(examples=["PATCH /keys/api/limit/key_0199"])] = None


class RaiseRequestAnswer(Answer):
    """A pending request for a higher amount of a limit."""

    columns = ("id", "limit_id", "user_id", "amount", "until", "note")
    id: str
    limit_id: str
    user_id: str
    amount: Usd
    until: Time
    note: str
    created_at: Time


def _limits(call: ManagedCall[Any]) -> SpendingLimits:
    owned = parse_owned(call.params.get("limit_id", ""))
    hold = OrganizationLimitHold(call.database)
    if owned is not None:
        hold = hold_owned(call, owned, call.params["organization_id"])
    return SpendingLimits(*call.stores, hold)


def _find(call: ManagedCall[Any]) -> tuple[str, str]:
    return call.params["organization_id"], call.params["limit_id"]


def list_all(call: ManagedCall[str]) -> list[OrganizationLimitAnswer]:
    """The limits of the organization with what is used of them, by id. Leads of teams see those of their teams.
    `all=true` adds those that belong to keys, members, teams and provider keys, and those of each session and run; at
    most 1,000 without `limit`."""
    reach = call.visitor.reach(call.subject, "limits:read")
    with_others = reach.whole and call.fields.get("all") == "true"

    def read(part: ListSlice) -> list[OrganizationLimitAnswer]:
        begins = MARK not in part.after  # the others follow the limits, and only their ids have the mark
        limits = _limits(call)
        infos = limits.list_limits(call.subject, part) if begins else []
        infos = [info for info in infos if reach.whole or is_of_teams(info.rule, reach.teams)]
        room = part.limit - len(infos) if part.limit else MAX_OTHERS
        if with_others and room > 0:
            kinds = list_seen_kinds(call.visitor, call.subject)
            infos += limits.list_owned(call.subject, kinds, "" if begins else part.after, room)
        return _show_all(call, infos)

    return call.page.read(read) if reach.whole else call.page.cut(read(WHOLE))


def show(call: ManagedCall[str]) -> OrganizationLimitAnswer:
    """A limit with what is used of it; of a limit for each, the hundred members that used most."""
    return _show(call, _limits(call).find(*_find(call)))


def put(call: ManagedCall[str]) -> OrganizationLimitAnswer:
    """Set the limit of this id, which you choose. What is used stays, unless its subjects, its period or where its
    values come from are others. In force for requests that arrive after this returns. `key_…:total`, `team_…:window`,
    `proj_…:session` and so on are those of a key, member, team, provider key, session or run; who may change them
    there may change them here, and another amount ends their raise."""
    organization_id, limit_id = _find(call)
    owned = parse_owned(limit_id)
    if owned is not None:
        limits = owned_limits(call, owned, organization_id)
        return _show(call, limits.put(organization_id, owned, read_draft(call), actor=call.actor))
    return _show(call, _limits(call).put(organization_id, limit_id, read_draft(call), actor=call.actor))


def read_draft(call: ManagedCall[str]) -> LimitDraft:
    """Return the limit of a body. InvalidRequest for unknown names of models and providers."""
    given = call.fields
    subjects = tuple(map(_read_subject, given["subjects"]))
    organization_id = call.params["organization_id"]
    known = call.visitor.names_known_to(organization_id)
    routes = call.services.routing.routes
    for kind, names in ((MODEL, MODELS), (PROVIDER, PROVIDERS)):
        known.check_names(names, [one.value for one in subjects if one.kind == kind], "subjects")
    actions = tuple(map(read_action, given["actions"]))
    for action in actions:
        if action.model and routes.find(organization_id, "", action.model) is None:
            known.check_requested_model(action.model, "actions")
    return LimitDraft(
        subjects,
        given["amount"],
        join_period(given["period"], given["timezone"]),
        actions,
        given["reservation"],
        given["values"],
    )


def delete(call: ManagedCall[str]) -> None:
    """Remove a limit. Requests in progress end as they were admitted."""
    organization_id, limit_id = _find(call)
    owned = parse_owned(limit_id)
    if owned is not None:
        owned_limits(call, owned, organization_id).delete(organization_id, owned, actor=call.actor)
    else:
        _limits(call).delete(organization_id, limit_id, actor=call.actor)


def grant_raise(call: ManagedCall[str]) -> OrganizationLimitAnswer:
    """Raise a limit by an amount until a time. Another raise replaces it."""
    info = _limits(call).grant_raise(*_find(call), call.fields["amount"], call.fields["until"], actor=call.actor)
    return _show(call, info)


def ask(call: ManagedCall[str]) -> RaiseRequestAnswer:
    """Ask for more of a limit until a time. Owners, admins and billing grant it, and leads for limits of their team."""
    fields = call.fields
    asked = _limits(call).ask(*_find(call), fields["amount"], fields["until"], fields["note"], actor=call.actor)
    return _show_request(asked)


def list_requests(call: ManagedCall[str]) -> list[RaiseRequestAnswer]:
    """The requests for more of a limit that wait for an answer."""
    return [_show_request(asked) for asked in _limits(call).requests(*_find(call))]


def grant(call: ManagedCall[str]) -> OrganizationLimitAnswer:
    """Grant a request. The raise replaces the one before."""
    info = _limits(call).grant(*_find(call), call.params["request_id"], actor=call.actor)
    return _show(call, info)


def decline(call: ManagedCall[str]) -> None:
    """Remove a request for more."""
    _limits(call).decline(*_find(call), call.params["request_id"], actor=call.actor)


def _read_subject(text: str) -> Subject:
    """Return a subject; a session as it is stored, which may be a digest."""
    subject = read_subject(text)
    if subject.kind == SESSION:
        return Subject(SESSION, shorten(subject.value), each=subject.each)
    return subject


def is_of_teams(rule: LimitRule, teams: frozenset[str]) -> bool:
    """Return whether a limit is one of these teams alone, whatever its other subject."""
    return any(subject.kind == "team" and subject.value in teams for subject in rule.subjects if subject.value)


def _may_raise(visitor: Visitor, values: Values) -> str:
    organization_id: str = values["organization_id"]
    owned = parse_owned(values["limit_id"])
    if owned is not None:
        check_change(visitor, organization_id, owned)
        return organization_id
    reach = visitor.reach(organization_id, "limits:raise")
    covered = reach.whole
    if not covered and reach.teams:
        store = visitor.services.store
        info = SpendingLimits(store.database, store.control).find(organization_id, values["limit_id"])
        covered = is_of_teams(info.rule, reach.teams)
    visitor.check(organization_id, "limits:raise", covered)
    return organization_id


def _may_read(visitor: Visitor, values: Values) -> str:
    organization_id: str = values["organization_id"]
    owned = parse_owned(values["limit_id"])
    if owned is not None:
        check_read(visitor, organization_id, owned)
        return organization_id
    reach = visitor.reach(organization_id, "limits:read")
    visitor.check(organization_id, "limits:read", bool(reach))
    if not reach.whole:
        store = visitor.services.store
        info = SpendingLimits(store.database, store.control).find(organization_id, values["limit_id"])
        if not is_of_teams(info.rule, reach.teams):
            raise Forbidden("Leads of teams see the limits of their teams.")
    return organization_id


def _may_write(visitor: Visitor, values: Values) -> str:
    organization_id: str = values["organization_id"]
    owned = parse_owned(values["limit_id"])
    if owned is not None:
        check_change(visitor, organization_id, owned)
    else:
        visitor.permitted(organization_id, "limits:write")
    return organization_id


def _may_ask(visitor: Visitor, values: Values) -> str:
    organization_id: str = values["organization_id"]
    visitor.permitted(organization_id, "organization:read")
    owned = parse_owned(values["limit_id"])
    if owned is not None:
        check_read(visitor, organization_id, owned)
    return organization_id


def _may_simulate(visitor: Visitor, values: Values) -> str:
    organization_id: str = values["organization_id"]
    owned = parse_owned(values["limit_id"])
    if owned is None:
        return _may_read(visitor, values)
    check_simulate(visitor, organization_id, owned)
    return organization_id


RAISER = AccessGroup("limits:raise", describe("limits:raise"), _may_raise)
READER = AccessGroup("limits:read", describe("limits:read"), _may_read)
SIMULATOR = AccessGroup("limits:read", describe("limits:read"), _may_simulate)
WRITER = AccessGroup("limits:write", describe("limits:write"), _may_write)
ASKER = AccessGroup("organization:read", describe("organization:read"), _may_ask)


def _show(call: ManagedCall[Any], info: LimitInfo) -> OrganizationLimitAnswer:
    return _show_all(call, [info])[0]


def _show_all(call: ManagedCall[Any], infos: list[LimitInfo]) -> list[OrganizationLimitAnswer]:
    """Return the answers for limits of one organization."""
    if not infos:
        return []
    now = call.database.now_us()
    organization_id = infos[0].organization_id
    held = call.database.read(partial(_read_held, call, infos, organization_id))
    manages = call.visitor.manages("limits:write", organization_id)
    may_change = may_change_owned if len(infos) == 1 else manages_owned
    answers = []
    for info in infos:
        owned = info.owned
        if owned is None:
            answers.append(show_limit(info, now, held[info.rule.id], manages))
            continue
        allowed = may_change(call.visitor, organization_id, owned)
        answer = show_limit(info, now, held[info.rule.id], allowed)
        path = changed_with(owned, organization_id)
        answers.append(replace(answer, name=info.owner_name or None, changed_with=f"PATCH {path}"))
    return answers


def _read_held(call: ManagedCall[Any], infos: list[LimitInfo], organization_id: str) -> dict[str, LimitHolding]:
    rows = [(info.rule.id, info.rule.name) for info in infos if info.owned is None]
    held = OrganizationLimitHold(call.database).held_for(rows, organization_id, call.actor)
    for is_manager in (False, True):
        owned = [
            (info.rule.id, info.rule.name)
            for info in infos
            if info.owned and manages_owned(call.visitor, organization_id, info.owned) is is_manager
        ]
        held |= OwnedLimitHold(call.database, is_manager).held_for(owned, organization_id, call.actor)
    return held


def show_limit(info: LimitInfo, now: int, holding: LimitHolding, manages: bool) -> OrganizationLimitAnswer:
    """Return the answer for a person. `manages`: the person may manage limits; those of a higher role are excepted."""
    rule = info.rule
    period = read_period(rule.period) if rule.period else None
    state = info.state
    zone = period.zone if period else ""
    shown_period = str(period) if period else None
    if period and zone:
        shown_period = period.unit
    return OrganizationLimitAnswer.of(
        id=rule.name,
        subjects=list(map(str, rule.subjects)),
        amount=rule.amount_nusd - info.raise_nusd,
        period=shown_period,
        timezone=zone or None,
        actions=list(map(str, rule.actions)),
        reservation=rule.reservation,
        values=rule.values_of,
        limit=rule.amount_nusd,
        usage=state.used_nusd,
        reserved=state.held_nusd,
        remaining=state.left_nusd(rule.amount_nusd),
        started_at=state.started_us or None,
        renews_at=state.renews_us or None,
        forecast_at=info.forecast_us(now),
        raised_by=info.raise_nusd or None,
        raised_until=info.raise_until_us,
        raise_granted_by=(holding.raised_by or None) if info.raise_nusd else None,
        deletable=manages and holding.is_theirs,
        member_count=info.member_count,
        members=[_show_member(one, rule.amount_nusd) for one in info.members] if rule.each else [],
    )


def _show_member(state: MemberState, amount_nusd: int) -> LimitMemberAnswer:
    return LimitMemberAnswer.of(
        member=state.member,
        limit=state.limit_nusd,
        usage=state.used_nusd,
        reserved=state.held_nusd,
        remaining=state.left_nusd(amount_nusd),
        started_at=state.started_us or None,
        renews_at=state.renews_us or None,
    )


def _show_request(asked: RaiseRequest) -> RaiseRequestAnswer:
    return RaiseRequestAnswer.of(asked, limit_id=asked.name)


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", PATH, list_all, "List the limits of an organization", tag=TAG, who=in_part("limits:read"),
            scope="limits:read", query=LimitListQuery, inside="limits", commands=("limits list --all=all",)),
    managed("GET", ONE, show, "Show a limit", tag=TAG, who=READER, scope="limits:read", inside="limit",
            commands=("limits get <limit_id>",)),
    managed("PUT", ONE, put, "Set a limit", tag=TAG, who=WRITER, scope="limits:write",
            request=LimitBody, inside="limit", audit="limit.set",
            commands=("limits put <limit_id> <amount> --subject=subjects! --action=actions ... -> id",)),
    managed("DELETE", ONE, delete, "Delete a limit", tag=TAG, who=WRITER,
            scope="limits:write", message="Limit deleted.", audit="limit.delete",
            commands=("limits delete <limit_id>",)),
    managed("PUT", f"{ONE}/raise", grant_raise, "Raise a limit for a time", tag=TAG, who=RAISER, scope="limits:write",
            request=RaiseBody, inside="limit", audit="limit.raise",
            commands=("limits raise <limit_id> <amount> --until=until!",)),
    managed("GET", f"{ONE}/requests", list_requests, "List requests for more of a limit", tag=TAG, who=RAISER,
            scope="limits:read", inside="requests", commands=("limits requests <limit_id>",)),
    managed("POST", f"{ONE}/requests", ask, "Ask for more of a limit", tag=TAG,
            who=ASKER, request=AskingBody, inside="request", success=201,
            audit="limit.ask"),
    managed("PUT", f"{ONE}/requests/<request_id>", grant, "Grant a request for more of a limit", tag=TAG, who=RAISER,
            scope="limits:write", inside="limit", audit="limit.raise",
            commands=("limits grant <limit_id> <request_id>",)),
    managed("DELETE", f"{ONE}/requests/<request_id>", decline, "Decline a request for more of a limit", tag=TAG,
            who=RAISER, scope="limits:write", message="Request declined.", audit="limit.decline",
            commands=("limits decline <limit_id> <request_id>",)),
)  # fmt: skip
