"""The plot above the list of requests: answered and failed requests over time, by the filters that statistics have."""

from collections.abc import Mapping
from typing import Any

from gateway.errors import Forbidden, NotFound
from gateway.surfaces.console.explore_pages import link_bars
from gateway.surfaces.console.explore_questions import ask, read_choices
from gateway.surfaces.console.grouping import GROUPS, GroupingScope, find_tag, read_filters
from gateway.surfaces.console.page_calls import PageCall
from gateway.surfaces.console.plots import FAILED, FAILED_CLASS, build_plot
from gateway.surfaces.console.shown_figures import round_count
from gateway.surfaces.console.usage_reader import NO_ACTIVITY, read_totals
from gateway.surfaces.visitors.usage_report import scope_of

PLACES = ("projectId", "apiKeyId")
# Filters that statistics have too. With others, the plot would show other requests than the list.
COUNTED = ("userId", "model", "provider", "source", "session", "operation", "metadata")
DEFAULT_RANGE = "24h"


def plot_requests(call: PageCall, chosen: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the plot of the requests that the filters find, with the name of its period; None with a filter that
    statistics lack or cannot combine, and without any request."""
    if not chosen.keys() <= {*PLACES, *COUNTED, "timeRange"} or chosen.get("model", "/").count("/") != 1:
        return None
    # Grouped by what a filter is about, which the statistics answer at once.
    group = next((one.group for one in read_filters(chosen) if GROUPS[one.group].family), "model")
    wanted = {"measure": "requests", "compare": "none", "timeRange": DEFAULT_RANGE, "groupBy": group, **chosen}
    choices = read_choices(call.visitor, wanted)
    if len(choices.filters) < sum(name in chosen for name in COUNTED):
        return None
    try:
        scope = scope_of(call.visitor, chosen.get("projectId"), chosen.get("apiKeyId", ""))
    except (Forbidden, NotFound):  # the list of an invisible key is empty
        return None
    tag = find_tag(choices.group, "", choices.filters, "")
    question = ask(call.visitor, choices, scope, GroupingScope(call.visitor, scope.keys, tag))
    if question.crossed is not None:  # it would be summed from single requests, each time that the list is opened
        return None
    steps = read_totals(call.services.store.database, question)
    sums = [steps.get(label, NO_ACTIVITY) for label in question.bars.padding]
    total = sum(one.requests for one in sums)
    if not total:
        return None
    series = {"Answered": [one.requests - one.errors for one in sums], FAILED: [one.errors for one in sums]}
    colours = {"Answered": "s0", FAILED: FAILED_CLASS}
    plot = build_plot(question.bars.padding, series, round_count, colours, link_bars(question, choices))
    return {"plot": plot, "label": choices.period.label, "total": total}
