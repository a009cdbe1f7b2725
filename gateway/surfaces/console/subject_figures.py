"""The top of a page about one subject (a key, person, team, project, model or provider): its spend of the last 30 days
as a plot, its limits, and its latest requests. The template `subject_figures.html` draws them."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from msgspec.structs import replace

from gateway.accounts.keys import KeyInfo
from gateway.errors import GatewayError
from gateway.limits.limit_rules import read_subject
from gateway.metering.activity import Owners
from gateway.metering.figures import ActivityFigures
from gateway.metering.log.archived_requests import search_log
from gateway.metering.log.search import LogFilter, LogScope
from gateway.metering.rollups.rollup_table import SESSION
from gateway.money import round_usd
from gateway.surfaces.console.explore_pages import PATH as EXPLORE
from gateway.surfaces.console.explore_questions import ask, read_choices
from gateway.surfaces.console.grouping import GROUPS, GroupingScope, UsageValues
from gateway.surfaces.console.page_calls import ManagementCall, PageCall
from gateway.surfaces.console.plots import Plot, build_plot, choose_colours
from gateway.surfaces.console.request_pages import PATH as LOGS
from gateway.surfaces.console.request_pages import show_short
from gateway.surfaces.console.usage_reader import UsageQuestion, read_usage
from gateway.surfaces.visitors.request_log_reader import MAX_KEYS, scopes_of, visible_members
from gateway.surfaces.visitors.usage_report import UsageScope, scope_of
from gateway.surfaces.visitors.visitor import Visitor

PERIOD = "30d"
LATEST = 8  # requests
LIMITS = ManagementCall("GET /orgs/<organization_id>/limits")
FIGURES = "figures"
SETTINGS = "settings"
# Tabs of a page: the value of the parameter → the name.
TABS = {FIGURES: "Activity", SETTINGS: "Settings"}


class UsageSubject(NamedTuple):
    """The subject of a page. `filters` are the parameters of Explore and of the request log that restrict them to it.
    Keys of `members` (ids, None for all) count, and `served` is the model that answered, "" for all. The plot of the
    usage is divided by `group`; `kind` and `value` name the subject in limits of the organization, "" for a subject of
    no organization."""

    group: str
    filters: Mapping[str, str]
    organization_id: str = ""
    kind: str = ""
    value: str = ""
    members: frozenset[str] | None = None
    served: str = ""


class SubjectUsage(NamedTuple):
    """The usage of a subject. `total` is that of the period by the names of figures; `explore` is the address of the
    page that shows more, "" if it cannot be restricted to the subject."""

    plot: Plot
    total: ActivityFigures
    group: str
    explore: str


class SubjectLimit(NamedTuple):
    """A limit that counts the usage of a subject, with its amounts in US dollars as text. `each`: it counts each one of
    the kind separately, and its page has the amounts."""

    name: str
    path: str
    usage: str
    amount: str
    period: str
    renews_at: str
    each: bool


def chosen_tab(call: PageCall) -> str:
    """Return the tab that a page shows."""
    tab = call.arguments.get("tab", "")
    return tab if tab in TABS else FIGURES


def read_figures(call: PageCall, subject: UsageSubject) -> dict[str, Any]:
    """Return what the template shows of a subject: each part is None if the visitor may not see it."""
    visitor = call.visitor
    scope = _find_scope(call, subject)
    usage = _read_usage(call, subject, scope) if scope is not None and visitor.may("usage:read") else None
    latest = _list_latest(call, subject, scope) if visitor.may("logs:read") else None
    return {
        "usage": usage,
        "latest": latest,
        "logs": _link_logs(subject),
        "limits": list_limits(call, subject),
    }


def _link_logs(subject: UsageSubject) -> str:
    """Return the address of all requests of a subject; "" if the request log has no filter for it."""
    if subject.members is not None:
        return ""
    filters = {**subject.filters, "model": subject.served} if subject.served else subject.filters
    return f"{LOGS}?{urlencode(filters)}"


def _find_scope(call: PageCall, subject: UsageSubject) -> UsageScope | None:
    """Return the usage among which that of a subject is; None if the visitor may not see its usage."""
    filters = subject.filters
    try:
        return scope_of(call.visitor, filters.get("projectId"), filters.get("apiKeyId", ""))
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return None


def _ask(call: PageCall, subject: UsageSubject, scope: UsageScope) -> UsageQuestion:
    """Return the question for the usage of a subject."""
    wanted = {**subject.filters, "timeRange": PERIOD, "groupBy": subject.group, "compare": "none"}
    choices = read_choices(call.visitor, wanted)
    question = ask(call.visitor, choices, scope, GroupingScope(call.visitor, scope.keys, SESSION))
    if subject.served:
        return replace(question, filter=UsageValues("model", lambda values: values[0] == subject.served))
    if subject.members is None:
        return question
    own = Owners(key_ids=tuple(ident for ident, key in scope.keys.items() if key.member_id in subject.members))
    return replace(question, owners=own, parts=own)


def _read_usage(call: PageCall, subject: UsageSubject, scope: UsageScope) -> SubjectUsage:
    question = _ask(call, subject, scope)
    found = read_usage(call.services.store.database, question)
    total = ActivityFigures()
    for figures in found.steps.values():
        total.add(figures)
    plot = build_plot(question.bars.padding, found.series, round_usd, choose_colours(found.series))
    explore = ""
    if subject.members is None and not subject.served:
        explore = f"{EXPLORE}?{urlencode({**subject.filters, 'timeRange': PERIOD, 'groupBy': subject.group})}"
    return SubjectUsage(plot, total, GROUPS[subject.group].label.lower(), explore)


def _list_latest(call: PageCall, subject: UsageSubject, scope: UsageScope | None) -> list[dict[str, Any]]:
    """Return the newest requests of a subject that the visitor may see."""
    filters, visitor = subject.filters, call.visitor
    if subject.members is not None:
        scopes = _scopes_of_members(visitor, subject, scope.keys if scope is not None else {})
    else:
        project_id, key_id, user_id = (filters.get(name, "") for name in ("projectId", "apiKeyId", "userId"))
        scopes = scopes_of(visitor, project_id, key_id, user_id)
    wanted = LogFilter(model=subject.served, provider=filters.get("provider", ""))
    found = search_log(call.services.store.database, scopes, wanted, None, LATEST) if scopes else None
    return show_short(call, found.requests) if found else []


def _scopes_of_members(visitor: Visitor, subject: UsageSubject, keys: Mapping[str, KeyInfo]) -> list[LogScope]:
    """Return the scopes of the newest of some keys that members have, of each project as many as one query may name."""
    owned: dict[str, list[KeyInfo]] = {}
    for key in keys.values():
        if key.organization_id == subject.organization_id and key.member_id in (subject.members or ()):
            owned.setdefault(key.project_id, []).append(key)
    scopes = []
    for project_id, own in owned.items():
        seen = visible_members(visitor, subject.organization_id, project_id, "logs:read")
        visible = sorted((key.id for key in own if "" in seen or key.member_id in seen), reverse=True)
        if visible:
            scopes.append(LogScope(project_id, "", tuple(visible[:MAX_KEYS])))
    return scopes


def list_limits(call: PageCall, subject: UsageSubject) -> list[SubjectLimit]:
    """Return the limits that name the subject, or each one of its kind, as far as the visitor may see limits."""
    organization_id = subject.organization_id
    if not subject.kind or not call.visitor.manages("limits:read", organization_id):
        return []
    shown = []
    for limit in call.run(LIMITS, organization_id=organization_id):
        named = next((one for one in map(read_subject, limit["subjects"]) if one.kind == subject.kind), None)
        if named is None or not (named.each or named.value == subject.value):
            continue
        path = f"/console/budgets/{organization_id}/{quote(limit['id'])}"
        period = limit["period"] or "in total"
        each = any(read_subject(text).each for text in limit["subjects"])
        shown.append(
            SubjectLimit(limit["id"], path, limit["usage"], limit["limit"], period, limit["renewsAt"] or "", each)
        )
    return shown
