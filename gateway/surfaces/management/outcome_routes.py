"""`/activity/outcomes`: what coding agents brought beside what they cost; `/orgs/…/outcome-settings`: whether people
are compared by it."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, to_builtins

from gateway.accounts.members import list_members
from gateway.accounts.outcome_settings import OutcomeSettings, change_settings, find_settings
from gateway.accounts.projects import list_projects
from gateway.catalogue.prices import rates_at
from gateway.errors import Forbidden
from gateway.metering.activity import Owners
from gateway.reports.outcomes import (
    FEW_PEOPLE,
    GROUPS,
    MIN_PEOPLE,
    PERSONAL,
    OutcomeQuestion,
    OutcomeSum,
    read_report,
)
from gateway.reports.savings import (
    CACHE_LOST,
    CACHE_UNREAD,
    DISCOUNTS,
    FAILED,
    PROMPT_CACHE,
    RESPONSE_CACHE,
    RETRIED,
    ROUTES,
    SavingsQuestion,
    read_savings,
)
from gateway.surfaces.management.access_groups import anywhere, in_organization
from gateway.surfaces.management.activity_routes import names_of
from gateway.surfaces.management.answers import OutcomeCounts
from gateway.surfaces.management.exports import download
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors import tabular as tabular_module
from gateway.surfaces.visitors.report_windows import RANGES, ReportRange, read_window
from gateway.surfaces.visitors.usage_report import MAX_DATE_LENGTH, UsageScope, scope_of
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, QueryFlag, StrictBody, StrictBoolean, TextField
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer, Usd
from gateway.surfaces.web.http import Operation, Outbound
from gateway.telemetry.cache_watch import PREFIX, REMEDIES

TAG = "Outcomes"
NOT_COMPARED = "people_not_compared"
SAVED = {
    PROMPT_CACHE: "input that was read from providers' prompt caches, less what writing to them cost",
    RESPONSE_CACHE: "answers from the gateway's response cache, at the average cost of a request to their model",
    ROUTES: "requests that routes sent to another model than their reference",
    DISCOUNTS: "discounts on list prices",
}
WASTED = {
    FAILED: "attempts that failed after they were billed",
    RETRIED: "attempts that failed after they were billed, before another one answered",
    CACHE_LOST: "turns of sessions that lost their prompt cache",
    CACHE_UNREAD: "input that was written to prompt caches and hardly read again",
}
PREFIX_REMEDY = REMEDIES[PREFIX]
UNREAD_REMEDY = (
    "Let the gateway choose the cache marks of the project, or mark only what later requests begin with; see caching."
)
RETRY_REMEDY = "See with explain which provider failed; prefer another one in a route, or limit what one answer may be."
FAILURE_REMEDY = "See the requests with this error; explain tells which provider failed and when."
FAILURE_REMEDIES = {
    "request_cancelled": "Callers left before the answer was complete: raise their time limits, or stream answers.",
    "content_policy_violation": "The provider refused billed content: check the prompts, or use guardrails.",
    "client_error": "The provider refused the requests after billing: see their errors, and mend the caller.",
}
HINT = (
    "This organization does not compare people: group by team, project or model, ask for your own figures with "
    "mine=true, or let an owner turn comparePeople on."
)

FEW_HINT = (
    f"These figures are of fewer than {MIN_PEOPLE} other people, and this organization does not compare people: ask "
    "for more projects, for your own figures with mine=true, or let an owner turn comparePeople on."
)
FEW_NAME = f"Groups of fewer than {MIN_PEOPLE} people"


class OutcomesQuery(Body):
    projectId = TextField(1, 80, about="Only usage of this project; default: all that you may see.")
    groupBy = OneOf(GROUPS, about="How the outcomes are split: person, key and session need comparePeople, or mine.")
    mine = QueryFlag(about="Only what your own keys did.")
    timeRange = OneOf(tuple(RANGES), about="A time until now, instead of from and to.")
    first = TextField(1, MAX_DATE_LENGTH, data_key="from", about="The first day, like 2026-01-31.")
    last = TextField(1, MAX_DATE_LENGTH, data_key="to", about="The last day; default: today.")
    timezone = TextField(1, 64, load_default="UTC", about="The zone of the days; default: UTC.")


class OutcomesExportQuery(OutcomesQuery):
    format = OneOf(tabular_module.FORMATS, load_default=tabular_module.CSV)


class SavedAndWastedQuery(Body):
    projectId = TextField(1, 80, about="Only usage of this project; default: all that you may see.")
    timeRange = OneOf(tuple(RANGES), about="A time until now, instead of from and to.")
    first = TextField(1, MAX_DATE_LENGTH, data_key="from", about="The first day, like 2026-01-31.")
    last = TextField(1, MAX_DATE_LENGTH, data_key="to", about="The last day; default: today.")
    timezone = TextField(1, 64, load_default="UTC", about="The zone of the days; default: UTC.")


class SavedAnswer(Answer):
    """`count` is tokens of `prompt_cache`, requests of `response_cache` and `routes`. `estimated`: the amount is not
    exact."""

    columns = ("kind", "amount", "count", "means")
    kind: Annotated[str, Meta(examples=["prompt_cache"])]
    means: Annotated[str, Meta(examples=["Prompts read from providers' caches."])]
    amount: Usd
    count: int
    estimated: bool


class WastedAnswer(Answer):
    """`cause` is an error code, or why a prompt cache was lost; `remedy` is what can be done."""

    columns = ("kind", "cause", "amount", "count", "remedy")
    kind: Annotated[str, Meta(examples=["lost_cache"])]
    cause: Annotated[str, Meta(examples=["The conversation was shortened."])]
    means: Annotated[str, Meta(examples=["Prompts read from providers' caches."])]
    remedy: Annotated[str, Meta(examples=["Compact less often."])]
    amount: Usd
    count: int


class SavingsAnswer(Answer):
    saved: list[SavedAnswer]
    wasted: list[WastedAnswer]


class OutcomeSettingsChange(StrictBody):
    """Absent members stay unchanged."""

    comparePeople = StrictBoolean("Whether outcomes are shown by person, key and session to those who see all usage.")
    holdUnusual = StrictBoolean("Whether a key that spends unusually much on a day is held at its usual amount.")


class OutcomeSettingsAnswer(Answer):
    compare_people: bool
    hold_unusual: bool


class OutcomeAnswer(OutcomeCounts):
    """`cost` is all spending. `agentCost` is that of the keys from which agents reported something, and prices each
    outcome; null without any."""

    request_count: int
    cost: Usd
    agent_cost: Usd
    cost_per_accepted_edit: Usd | None
    cost_per_commit: Usd | None
    cost_per_pull_request: Usd | None


class OutcomeStepAnswer(OutcomeAnswer):
    date: Annotated[str, Meta(examples=["2026-01-31"])]


class OutcomeGroupAnswer(OutcomeAnswer):
    """An empty `id` is what has no value."""

    columns = (
        *("name", "cost", "edits_accepted", "cost_per_accepted_edit", "commits", "cost_per_commit"),
        *("pull_requests", "cost_per_pull_request", "lines_added", "lines_removed"),
    )
    id: str
    name: str


class OutcomesAnswer(Answer):
    """The outcomes of a period: in all, by day (by hour for periods of hours), and by the group. Where people are not
    compared, groups of fewer than three other people are one group, `(few people)`."""

    total: OutcomeAnswer
    steps: list[OutcomeStepAnswer]
    groups: list[OutcomeGroupAnswer]


def show_outcomes(call: ManagedCall[None]) -> OutcomesAnswer:
    """Commits, pull requests, lines, edits and active time that coding agents reported, beside the spending of the same
    period. A developer sees what their own keys did, a lead what the team's did."""
    return read_outcomes(call.visitor, call.fields)


def read_outcomes(visitor: Visitor, given: Mapping[str, Any]) -> OutcomesAnswer:
    """Return the answer to an OutcomesQuery, as the visitor may see it. Forbidden (people_not_compared)."""
    group = given.get("groupBy") or ""
    window = read_window(given, visitor.services.clock.now_us())
    scope = scope_of(visitor, given.get("projectId"))
    mine = _own_keys(visitor, scope)
    hidden: frozenset[str] = frozenset()
    if given.get("mine") == "true":
        scope = UsageScope(Owners(key_ids=tuple(mine)), {ident: scope.keys[ident] for ident in mine})
    elif not compares_people(visitor, scope):
        if group in PERSONAL:
            raise Forbidden(HINT, code=NOT_COMPARED)
        hidden = _other_people(visitor)
    names, teams = names_of(visitor)
    names |= {ident: key.description for ident, key in scope.keys.items()} | {FEW_PEOPLE: FEW_NAME}
    database = visitor.services.store.database
    names |= {project.id: project.name for project in list_projects(database, list(visitor.memberships), archived=True)}
    report = read_report(database, OutcomeQuestion(scope.owners, window.span, group, scope.keys, teams, hidden))
    if report.is_of_few:
        raise Forbidden(FEW_HINT, code=NOT_COMPARED)
    return OutcomesAnswer(
        _show(OutcomeAnswer, report.total),
        _show_steps(report.steps, window),
        [_show(OutcomeGroupAnswer, one, id=one.id, name=names.get(one.id, one.id)) for one in report.groups],
    )


def export_outcomes(call: ManagedCall[None]) -> Outbound:
    """The outcomes and the spending by group, or without groupBy by day (by hour for periods of hours), as CSV or JSON
    lines. People are left out where they are not compared."""
    answer = read_outcomes(call.visitor, call.fields)
    is_grouped = bool(call.fields.get("groupBy"))
    kind = OutcomeGroupAnswer if is_grouped else OutcomeStepAnswer
    rows = [to_builtins(row) for row in (answer.groups if is_grouped else answer.steps)]
    form = call.fields["format"]
    first = ("id", "name") if is_grouped else ("date",)
    columns = (*first, *(name for name in kind.__struct_encode_fields__ if name not in first))
    pieces = tabular_module.write_rows([rows], columns, form)
    owners = sorted(call.visitor.memberships)
    return download(call.visitor, owners, f"outcomes.{form}", tabular_module.MEDIA[form], pieces)


def compares_people(visitor: Visitor, scope: UsageScope) -> bool:
    """Return whether a visitor may see these keys apart: all are the visitor's own, or the owners of their
    organizations let people be compared."""
    foreign = scope.keys.keys() - set(_own_keys(visitor, scope))
    organizations = {scope.keys[ident].organization_id for ident in foreign}
    database = visitor.services.store.database
    return all(find_settings(database, ident).compare_people for ident in organizations)


def _other_people(visitor: Visitor) -> frozenset[str]:
    """Return the people of the visitor's organizations beside the visitor."""
    own = {member.id for member in visitor.memberships.values()}
    database = visitor.services.store.database
    return frozenset(one.id for place in visitor.memberships for one in list_members(database, place)) - own


def _own_keys(visitor: Visitor, scope: UsageScope) -> list[str]:
    own = {member.id for member in visitor.memberships.values()}
    return [ident for ident, key in scope.keys.items() if key.member_id in own]


def _show_steps(steps: Mapping[int, OutcomeSum], window: ReportRange) -> list[OutcomeStepAnswer]:
    labelled: dict[str, OutcomeSum] = {label: OutcomeSum("") for label in window.padding}
    labelled |= {window.label(step): sums for step, sums in steps.items()}
    return [_show(OutcomeStepAnswer, sums, date=label) for label, sums in sorted(labelled.items())]


def _show(kind: Any, sums: OutcomeSum, **more: str) -> Any:
    return kind.of(
        sums.outcomes,
        request_count=sums.requests,
        cost=sums.cost_nusd,
        agent_cost=sums.agent_cost_nusd,
        cost_per_accepted_edit=sums.cost_per("edits_accepted"),
        cost_per_commit=sums.cost_per("commits"),
        cost_per_pull_request=sums.cost_per("pull_requests"),
        **more,
    )


def show_savings(call: ManagedCall[None]) -> SavingsAnswer:
    """The amounts that prompt caches, the response cache, routes and discounts saved in a period, and those wasted on
    failed attempts and lost prompt caches, with the remedy. A developer sees those of their own keys."""
    return read_savings_of(call.visitor, call.fields)


def read_savings_of(visitor: Visitor, given: Mapping[str, Any]) -> SavingsAnswer:
    """Return the answer to a SavedAndWastedQuery, as the visitor may see it."""
    window = read_window(given, visitor.services.clock.now_us())
    scope = scope_of(visitor, given.get("projectId"))
    projects = {ident: key.project_id for ident, key in scope.keys.items()}
    catalogue = visitor.services.routing.catalogue.current()

    def price(provider: str, model: str) -> int | None:
        found = catalogue.find(model)
        mappings = found.mappings if found is not None else ()
        mapping = next((one for one in mappings if one.provider == provider), None)
        return None if mapping is None else rates_at(mapping, window.span.end_us, 0).prompt

    question = SavingsQuestion(scope.owners, window.span, sorted(visitor.memberships), projects, price)
    report = read_savings(visitor.services.store.database, question)
    return SavingsAnswer(
        [SavedAnswer.of(one, means=SAVED[one.kind], amount=one.nusd) for one in report.saved],
        [
            WastedAnswer.of(one, means=WASTED[one.kind], remedy=remedy_of(one.kind, one.cause), amount=one.nusd)
            for one in report.wasted
        ],
    )


def remedy_of(kind: str, cause: str) -> str:
    """Return what can be done about a waste."""
    if kind == CACHE_LOST:
        return REMEDIES.get(cause, PREFIX_REMEDY).capitalize() + "."
    if kind == CACHE_UNREAD:
        return UNREAD_REMEDY
    if kind == RETRIED:
        return RETRY_REMEDY
    return FAILURE_REMEDIES.get(cause, FAILURE_REMEDY)


def show_settings(call: ManagedCall[str]) -> OutcomeSettingsAnswer:
    """Whether people are compared by outcomes, and whether unusual keys are held."""
    return OutcomeSettingsAnswer.of(find_settings(call.database, call.subject))


def set_settings(call: ManagedCall[str]) -> OutcomeSettingsAnswer:
    """Change these settings. Both are off until an owner turns them on."""
    given = call.fields
    settings: OutcomeSettings = change_settings(
        *call.stores,
        call.subject,
        actor=call.actor,
        compare_people=given.get("comparePeople"),
        hold_unusual=given.get("holdUnusual"),
    )
    return OutcomeSettingsAnswer.of(settings)


SETTINGS = "/orgs/<organization_id>/outcome-settings"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/activity/outcomes", show_outcomes, "Outcomes of coding agents, and their cost", tag=TAG,
            who=anywhere("usage:read"), scope="usage:read", query=OutcomesQuery,
            commands=("outcomes show .groups --by=groupBy! --project=projectId --range=timeRange ...",)),
    managed("GET", "/activity/outcomes/export", export_outcomes, "Export the outcomes of coding agents", tag=TAG,
            who=anywhere("usage:read"), scope="usage:read", query=OutcomesExportQuery, errors=(429,),
            media=tabular_module.MEDIA[tabular_module.CSV],
            also=(tabular_module.MEDIA[tabular_module.JSON_LINES],)),
    managed("GET", "/activity/savings", show_savings, "Money saved and wasted, with causes", tag=TAG,
            who=anywhere("usage:read"), scope="usage:read", query=SavedAndWastedQuery,
            commands=("outcomes savings .saved --project=projectId --range=timeRange ...",
                      "outcomes wastes .wasted --project=projectId --range=timeRange ...")),
    managed("GET", SETTINGS, show_settings, "Show the settings for outcomes", tag=TAG,
            who=in_organization("organization:read"), scope="settings:read",
            commands=("outcomes settings",)),
    managed("PUT", SETTINGS, set_settings, "Change the settings for outcomes", tag=TAG,
            who=in_organization("outcomes:write"), request=OutcomeSettingsChange,
            audit="organization.update_outcomes",
            commands=("outcomes set ...",)),
)  # fmt: skip
