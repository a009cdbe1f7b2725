"""`/console/outcomes`: the results of coding agents with their cost, and the savings and waste of a period."""

from typing import Any, NamedTuple

from gateway.accounts.projects import list_projects
from gateway.callers.permissions import Permission
from gateway.errors import Forbidden
from gateway.money import parse_usd, round_usd
from gateway.reports.outcomes import GROUPS, PERSONAL
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageCall, page_operations
from gateway.surfaces.console.plots import build_plot
from gateway.surfaces.console.shown_figures import round_count
from gateway.surfaces.management.outcome_routes import NOT_COMPARED
from gateway.surfaces.web.http import Operation, Outbound

PATH = "/console/outcomes"
TITLE = "Outcomes"
OUTCOMES = ManagementCall("GET /activity/outcomes")
SAVINGS = ManagementCall("GET /activity/savings")
SETTINGS = ManagementCall("GET /orgs/<organization_id>/outcome-settings")
CHANGE = ManagementCall("PUT /orgs/<organization_id>/outcome-settings")
WRITE: Permission = "outcomes:write"
PERIODS = {"24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days", "365d": "Last year"}
USUAL_PERIOD = "30d"
GROUP_NAMES = {
    "team": "Team",
    "project": "Project",
    "model": "Model",
    "person": "Person",
    "key": "API key",
    "session": "Session",
}
WITHOUT = {"team": "Without a team", "model": "No model named", "session": "Other sessions, and no session"}


class PlottedOutcome(NamedTuple):
    """A plot: the members of the answer, each with the name of its series."""

    label: str
    series: dict[str, str]
    is_cost: bool = False


PLOTS = {
    "edits": PlottedOutcome("Edits", {"Accepted": "editsAccepted", "Rejected": "editsRejected"}),
    "lines": PlottedOutcome("Lines", {"Added": "linesAdded", "Removed": "linesRemoved"}),
    "commits": PlottedOutcome("Commits", {"Commits": "commits"}),
    "pullRequests": PlottedOutcome("Pull requests", {"Pull requests": "pullRequests"}),
    "sessions": PlottedOutcome("Sessions", {"Sessions": "sessions"}),
    "active": PlottedOutcome("Active minutes", {"Minutes": "activeSeconds"}),
    "agentCost": PlottedOutcome("Spend of agents", {"Spend": "agentCost"}, is_cost=True),
    "cost": PlottedOutcome("All spend", {"Spend": "cost"}, is_cost=True),
}
KINDS = {
    "prompt_cache": "Prompt caches",
    "response_cache": "Response cache",
    "routes": "Routes",
    "discounts": "Discounts",
    "failed": "Failed attempts",
    "retried": "Failed attempts before another one",
    "cache_lost": "Lost prompt cache",
    "cache_unread": "Unread prompt cache",
}


def show(call: PageCall) -> Outbound:
    """Show outcomes over time and by a group, what was saved and wasted, and the settings of the organization."""
    arguments = call.arguments
    chosen = arguments.get("timeRange", "")
    period = chosen if chosen in PERIODS else USUAL_PERIOD
    plotted = arguments.get("show", "")
    plotted = plotted if plotted in PLOTS else "edits"
    group = arguments.get("groupBy", "")
    group = group if group in GROUPS else "team"
    mine = bool(arguments.get("mine"))
    asked: dict[str, Any] = {"timeRange": period}
    if arguments.get("projectId"):
        asked["projectId"] = arguments["projectId"]
    more = {"mine": "true"} if mine else {}
    answer, compared = _read(call, {**asked, **more, "groupBy": group})
    savings = call.run(SAVINGS, asked)
    return call.page(
        "outcomes/outcomes.html",
        TITLE,
        path=PATH,
        total=answer["total"],
        groups=answer["groups"],
        group=group,
        group_name=GROUP_NAMES[group],
        group_names=GROUP_NAMES,
        without=WITHOUT.get(group, "Without a name"),
        compared=compared,
        personal=group in PERSONAL,
        plot=_draw(answer["steps"], PLOTS[plotted]),
        plotted=plotted,
        plots_by_name={name: one.label for name, one in PLOTS.items()},
        period=period,
        periods=PERIODS,
        mine=mine,
        project=arguments.get("projectId", ""),
        projects=[(one.id, one.name) for one in list_projects(call.services.store.database, list(_memberships(call)))],
        saved=savings["saved"],
        wasted=savings["wasted"],
        kinds=KINDS,
        address=call.inbound.base_url.rstrip("/"),
        settings=_settings(call),
    )


def _memberships(call: PageCall) -> list[str]:
    return list(call.visitor.memberships)


def _read(call: PageCall, asked: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the answer, and whether its groups may be shown: those that lead to people are left out where the owner
    does not compare them."""
    try:
        return call.run(OUTCOMES, asked), True
    except Forbidden as error:
        if error.code != NOT_COMPARED:
            raise
    return call.run(OUTCOMES, {name: value for name, value in asked.items() if name != "groupBy"}), False


def _draw(steps: list[dict[str, Any]], plotted: PlottedOutcome) -> Any:
    series = {name: [_value(step[member], member) for step in steps] for name, member in plotted.series.items()}
    return build_plot([step["date"] for step in steps], series, round_usd if plotted.is_cost else round_count)


def _value(value: str | float, member: str) -> int:
    if isinstance(value, str):
        return parse_usd(value)
    return round(value / 60 if member == "activeSeconds" else value)


def _settings(call: PageCall) -> dict[str, Any] | None:
    """Return the settings of the organization that the visitor may change; None for everybody else."""
    if not call.visitor.may(WRITE):
        return None
    choice = choose_organization(call, WRITE)
    return {**call.run(SETTINGS, organization_id=choice.id), "id": choice.id, "name": choice.chosen.name}


def save_settings(call: PageCall) -> str:
    """Set whether people are compared and unusual keys held."""
    fields = {name: name in call.form for name in ("comparePeople", "holdUnusual")}
    call.run(CHANGE, fields, organization_id=call.form.get("organization", ""))
    return "The settings are saved."


OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show, {"save_settings": save_settings})
