"""`/console/outcomes`: the results of coding agents with their cost, and the savings and waste of a period."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from gateway.callers.permissions import Permission
from gateway.errors import Forbidden
from gateway.money import parse_usd, round_usd
from gateway.reports.outcomes import FEW_PEOPLE, GROUPS, MAX_REPOSITORY_SESSIONS, MIN_PEOPLE, PERSONAL
from gateway.surfaces.console.choice_bar import build_bar, choose_period, choose_project
from gateway.surfaces.console.client_settings import show_telemetry
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageCall, page_operations
from gateway.surfaces.console.plots import BarLink, build_plot
from gateway.surfaces.console.shown_figures import round_count
from gateway.surfaces.management.outcome_routes import NOT_COMPARED, compares_people
from gateway.surfaces.visitors.usage_report import scope_of
from gateway.surfaces.web.http import Operation, Outbound

PATH = "/console/outcomes"
LOGS = "/console/logs"
TURNS = "/console/sessions/turns"
EXPORT = "/activity/outcomes/export"
DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
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
    "repository": "Repository",
    "model": "Model",
    "person": "Person",
    "key": "API key",
    "session": "Session",
}
# The filters of the request log by which a group finds its requests.
LOG_FILTERS = {"project": "projectId", "model": "model", "key": "apiKeyId"}
WITHOUT = {
    "team": "Without a team",
    "repository": "No repository named",
    "model": "No model named",
    "session": "Other sessions, and no session",
}


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
    day = arguments.get("day", "")
    day = day if DAY.fullmatch(day) else ""
    asked: dict[str, Any] = {"from": day, "to": day} if day else {"timeRange": period}
    project = {"projectId": arguments["projectId"]} if arguments.get("projectId") else {}
    asked |= project
    more = {"mine": "true"} if mine else {}
    answer, compared = _read(call, {**asked, **more, "groupBy": group})
    is_of_few = answer is None
    if answer is None:
        mine, compared, more = True, True, {"mine": "true"}
        answer = call.run(OUTCOMES, {**asked, **more, "groupBy": group})
    times = _log_times(day) if day else {"timeRange": period}
    # A day links to its sessions where the visitor may see them, else to its requests.
    by_session = mine or compares_people(call.visitor, scope_of(call.visitor, project.get("projectId")))
    narrowed = {**project, "show": plotted, "timeRange": period, **({"mine": "1"} if mine else {})}
    narrowed["groupBy"] = "session" if by_session else group
    labels = [step["date"] for step in answer["steps"]]
    links = [_link_bar(label, narrowed, project, bool(day)) for label in labels]
    by_hour = bool(day) or any("T" in label for label in labels)
    exported = {**asked, **more, **({"groupBy": group} if compared else {})}
    savings = call.run(SAVINGS, asked)
    return call.page(
        "outcomes/outcomes.html",
        TITLE,
        path=PATH,
        total=answer["total"],
        groups=[{**row, "link": _link_row(group, row["id"], project, times)} for row in answer["groups"]],
        repositories=MAX_REPOSITORY_SESSIONS,
        group=group,
        group_name=GROUP_NAMES[group],
        group_names=GROUP_NAMES,
        without=WITHOUT.get(group, "Without a name"),
        compared=compared,
        is_of_few=is_of_few,
        few=MIN_PEOPLE,
        personal=group in PERSONAL,
        plot=_draw(answer["steps"], PLOTS[plotted], links),
        bars=LOGS if by_hour else PATH,
        day=day,
        by_session=by_session,
        shown=day or PERIODS[period].lower(),
        whole=urlencode({**narrowed, "groupBy": group}),
        export=f"{EXPORT}?{urlencode(exported)}",
        plotted=plotted,
        plots_by_name={name: one.label for name, one in PLOTS.items()},
        period=period,
        periods=PERIODS,
        mine=mine,
        project=arguments.get("projectId", ""),
        bar=build_bar(
            call.inbound,
            choose_project(call.visitor, arguments.get("projectId", "")),
            choose_period(period, PERIODS.items()),
        ),
        saved=savings["saved"],
        wasted=savings["wasted"],
        kinds=KINDS,
        agents=show_telemetry(call.inbound.base_url.rstrip("/"), "<API key>"),
        settings=_settings(call),
    )


def _memberships(call: PageCall) -> list[str]:
    return list(call.visitor.memberships)


def _read(call: PageCall, asked: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """Return the answer, and whether its groups may be shown: those that lead to people are left out where the owner
    does not compare them. The answer is None where all of it is of few people."""
    for given in (asked, {name: value for name, value in asked.items() if name != "groupBy"}):
        try:
            return call.run(OUTCOMES, given), given is asked
        except Forbidden as error:
            if error.code != NOT_COMPARED:
                raise
    return None, False


def _draw(steps: list[dict[str, Any]], plotted: PlottedOutcome, links: list[BarLink]) -> Any:
    series = {name: [_value(step[member], member) for step in steps] for name, member in plotted.series.items()}
    write = round_usd if plotted.is_cost else round_count
    return build_plot([step["date"] for step in steps], series, write, links=links)


def _link_bar(label: str, narrowed: Mapping[str, str], project: Mapping[str, str], is_narrowed: bool) -> BarLink:
    """Return the link of a bar: that of a day to this page for that day, that of an hour or of the only day to the
    requests."""
    if not is_narrowed and "T" not in label:
        return BarLink(label, label, urlencode({**narrowed, "day": label}))
    return BarLink(label, label, urlencode({**project, **_log_times(label)}))


def _log_times(label: str) -> dict[str, str]:
    """Return the times of a day or hour (UTC) as filters of the request log."""
    begin = datetime.fromisoformat(label)
    end = begin + (timedelta(hours=1) if "T" in label else timedelta(days=1))
    return {"from": f"{begin.isoformat()}Z", "to": f"{end.isoformat()}Z"}


def _link_row(group: str, ident: str, project: Mapping[str, str], times: Mapping[str, str]) -> str:
    """Return the path of what is behind a row: the turns of a session, or the requests of a project, model or key; ""
    for other groups."""
    if ident in ("", FEW_PEOPLE):
        return ""
    if group == "session":
        return f"{TURNS}?{urlencode({**project, 'session': ident})}"
    if group not in LOG_FILTERS:
        return ""
    return f"{LOGS}?{urlencode({**project, **times, LOG_FILTERS[group]: ident})}"


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
