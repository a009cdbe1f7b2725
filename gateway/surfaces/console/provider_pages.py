"""`/console/providers`: the list of providers, and the page of one with its health over the last hour."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.callers.stored_keys import ProviderKeyInfo
from gateway.clock import DAY_US, HOUR_US, MINUTE_US, to_datetime
from gateway.errors import NotFound
from gateway.reports.latency_percentiles import NEWEST, read_latency
from gateway.routing.cooldowns import POLICIES, provider_of
from gateway.routing.provider_health import read_history
from gateway.routing.sliding_window import MINUTES, Counts
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import ManagementCall, PageCall, page_operations
from gateway.surfaces.console.plots import build_plot, choose_colours, plot_outcomes
from gateway.surfaces.console.shown_figures import round_count, round_duration
from gateway.surfaces.console.subject_figures import UsageSubject, read_figures
from gateway.surfaces.visitors.report_windows import read_window
from gateway.surfaces.visitors.usage_report import owners_of, usage_of
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound

# The health of providers as the visitor may see it: figures of the last hour, and cooldowns with their reasons.

PLATFORM_KEY = "a key of the gateway"


class ProviderFigures(NamedTuple):
    """Figures of the last hour. None: no requests, or none that tell."""

    requests: int
    uptime: float | None
    latency_ms: float | None
    throughput: float | None


class ShownCooldown(NamedTuple):
    """A cooldown: the part of a provider that requests try last, the reason, and the seconds that are left."""

    part: str
    reason: str
    left_s: int


class ShownIdentity(NamedTuple):
    """A workload identity of the installation: the source of its token, "" before the first one, the expiry in
    microseconds, 0 without a valid token, and the failure of the last attempt, "" for none."""

    source: str
    expires_us: int
    failure: str


def sum_figures(history: Iterable[Counts]) -> ProviderFigures:
    """Return the figures of the minutes of a provider."""
    total = Counts()
    for counts in history:
        total.add(counts)
    requests = total.succeeded + total.failed
    return ProviderFigures(
        requests,
        100 * total.succeeded / requests if requests else None,
        total.wait_ms / total.waits if total.waits else None,
        1000 * total.tokens / total.token_ms if total.token_ms else None,
    )


def list_own_keys(visitor: Visitor) -> list[ProviderKeyInfo]:
    """Return the provider keys of the organizations that the visitor manages."""
    keys = visitor.services.management.provider_keys
    managed = [name for name in visitor.memberships if visitor.manages("providers:read", name)]
    return [key for name in managed for key in keys.list_keys(name)]


def list_cooldowns(visitor: Visitor, own: Iterable[ProviderKeyInfo]) -> dict[str, list[ShownCooldown]]:
    """Return the cooldowns by provider. Those of other organizations' keys are left out."""
    services = visitor.services
    cooldowns = services.routing.health.cooldowns
    now = services.clock.monotonic()
    names = {key.id: f"your key {key.label or key.mask}" for key in own}
    for credentials in services.routing.credentials.platform().values():
        names |= {credential.ident: PLATFORM_KEY for credential in credentials if credential.ident}
    shown: dict[str, list[ShownCooldown]] = {}
    for key, kind in cooldowns.active().items():
        place, _, organization = key.partition("@")
        mapping, _, ident = place.partition("#")
        foreign = organization and organization not in visitor.memberships
        if foreign or (ident and ident not in names):
            continue
        provider = provider_of(key)
        model = mapping.removeprefix(provider).strip("/:")
        part = " with ".join(text for text in (model, names.get(ident, "")) if text) or "all models"
        left_s = round(cooldowns.until(key, now) - now)
        reason = POLICIES[kind].text
        shown.setdefault(provider, []).append(ShownCooldown(part, reason, max(0, left_s)))
    return shown


def list_identities(visitor: Visitor) -> dict[str, list[ShownIdentity]]:
    """Return the workload identities by provider, for operators only. They are those of the process that answers."""
    shown: dict[str, list[ShownIdentity]] = {}
    if visitor.is_operator():
        for provider, source, expires_us, failure in visitor.services.routing.credentials.identities():
            shown.setdefault(provider, []).append(ShownIdentity(source, expires_us, failure))
    return shown


LATENCY = ManagementCall("GET /activity/latency")
TITLE = "Providers"
PATH = "/console/providers"
COLUMNS = (
    Column("Provider", "name"),
    Column("State", "ailing"),
    Column("Keys", "keyless"),
    Column("Models", "models", numeric=True, extra=True),
    Column("Requests, 1 h", "requests", numeric=True),
    Column("Uptime, 1 h", "uptime", numeric=True),
    Column("First token", "latency", numeric=True),
    Column("Tokens / s", "throughput", numeric=True, extra=True),
)
# Value of the field → its label; the first is the default, of the live figures of all requests.
LIVE = "1h"
TIMES = {"1h": "1 hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days"}
STATES = (("", "All providers"), ("keys", "With keys"), ("cooldown", "In cooldown"))


def show_list(call: PageCall) -> Outbound:
    """Show the providers, those with keys first."""
    rows = _list_rows(call)
    state = call.arguments.get("state", "")
    if state == "keys":
        rows = [row for row in rows if not row["keyless"]]
    if state == "cooldown":
        rows = [row for row in rows if row["cooldowns"]]
    return call.page(
        "providers/providers.html",
        TITLE,
        path=PATH,
        manages=call.visitor.manages("providers:write"),
        state=state,
        states=STATES,
        providers=arrange(rows, COLUMNS, call.arguments, searched=("name", "id"), sort="keyless"),
    )


def show_provider(call: PageCall) -> Outbound:
    """Show a provider: health and latency minute by minute, cooldowns, requests by day, and its models."""
    row = next((row for row in _list_rows(call) if row["id"] == call.params["provider"]), None)
    if row is None:
        raise NotFound("There is no provider with this name.")
    provider = call.services.routing.catalogue.current().providers[row["id"]]
    chosen = call.arguments.get("timeRange", "")
    if chosen not in TIMES:
        chosen = LIVE
    by_minute = chosen == LIVE and call.visitor.is_operator()
    plots = _draw_hour(call, row["id"]) if by_minute else _draw_calls(call, row["id"], chosen)
    latencies = call.run(LATENCY, {"timeRange": chosen})
    return call.page(
        "providers/provider.html",
        row["name"],
        path=PATH,
        row=row,
        provider=provider,
        policy=_list_policy(provider),
        manages=call.visitor.manages("providers:write"),
        times=TIMES.items(),
        chosen=chosen,
        live=chosen == LIVE,
        by_minute=by_minute,
        period=TIMES[chosen],
        plots=plots,
        latencies=[one for one in latencies if one["provider"] == row["id"]],
        newest=NEWEST,
        days=_draw_days(call, row["id"]),
        figures=read_figures(call, UsageSubject("model", {"provider": row["id"]})),
    )


def _list_rows(call: PageCall) -> list[dict[str, Any]]:
    routing = call.services.routing
    catalogue = routing.catalogue.current()
    own = list_own_keys(call.visitor)
    cooldowns = list_cooldowns(call.visitor, own)
    identities = list_identities(call.visitor)
    counted = Counter(key.provider for key in own if key.status == "active")
    models = Counter(
        provider for model in catalogue.models.values() for provider in {mapping.provider for mapping in model.mappings}
    )
    history = read_history(routing.health)
    # The figures are those of everybody's requests.
    is_operator = call.visitor.is_operator()
    rows = []
    for provider in catalogue.providers.values():
        figures = sum_figures(history.get(provider.id, ()))
        platform = routing.credentials.has_platform(provider.id)
        rows.append(
            {
                "id": provider.id,
                "name": provider.name,
                "platform": platform,
                "own": counted[provider.id],
                "keyless": not platform and not counted[provider.id],
                "models": models[provider.id],
                "requests": (figures.requests or None) if is_operator else None,
                "uptime": figures.uptime,
                "latency": figures.latency_ms if is_operator else None,
                "throughput": figures.throughput if is_operator else None,
                "identities": identities.get(provider.id, []),
                "cooldowns": cooldowns.get(provider.id, []),
                "ailing": provider.id not in cooldowns,
                "off": provider.priority <= 0,
            }
        )
    return sorted(rows, key=lambda row: row["name"].lower())


def _draw_hour(call: PageCall, provider_id: str) -> list[dict[str, Any]]:
    """Return the plots of the last hour: outcomes and latency by minute. Empty without requests."""
    history = read_history(call.services.routing.health).get(provider_id)
    if not history:
        return []
    now = call.services.clock.now_us()
    steps = [f"{to_datetime(now - back * MINUTE_US):%Y-%m-%d %H:%M}" for back in range(MINUTES - 1, -1, -1)]
    outcomes = plot_outcomes(steps, [minute.succeeded for minute in history], [minute.failed for minute in history])
    latency = {"First token": [round(minute.wait_ms / minute.waits) if minute.waits else 0 for minute in history]}
    return [
        {"title": "Requests by minute", "plot": outcomes},
        {"title": "Time to the first token by minute", "plot": build_plot(steps, latency, round_duration)},
    ]


def _draw_calls(call: PageCall, provider_id: str, time_range: str) -> list[dict[str, Any]]:
    """Return the plots of the visitor's upstream calls by hour or day: outcomes, and times of answers. Empty without
    calls."""
    window = read_window({"timeRange": time_range}, call.services.clock.now_us())
    if window.span.step == "day":
        size, unit = DAY_US, "day"
    else:
        size, unit = HOUR_US, "hour"
    owners = owners_of(call.visitor, None)
    rows = read_latency(call.services.store.database, owners, provider_id, window.span, size)
    if not rows:
        return []
    found = {window.label(row.step): row for row in rows}
    steps = [found.get(label) for label in window.padding]
    answered = [row.answered if row else 0 for row in steps]
    failed = [row.failed if row else 0 for row in steps]
    waits = {"First token": [round(row.wait_ms or 0) if row else 0 for row in steps]}
    durations = {"Whole answer": [round(row.duration_ms or 0) if row else 0 for row in steps]}
    return [
        {"title": f"Your upstream calls by {unit}", "plot": plot_outcomes(window.padding, answered, failed)},
        {"title": f"Time to the first token by {unit}", "plot": build_plot(window.padding, waits, round_duration)},
        {
            "title": f"Time to the end of the answer by {unit}",
            "plot": build_plot(window.padding, durations, round_duration),
        },
    ]


def _draw_days(call: PageCall, provider_id: str) -> dict[str, Any] | None:
    """Return the plot of the visitor's requests by day and model; None without any."""
    steps = usage_of(call.visitor, {"timeRange": "30d"})["activity"]
    series: dict[str, list[int]] = {}
    for index, step in enumerate(steps):
        for part in step["modelBreakdown"]:
            if part["provider"] == provider_id:
                series.setdefault(part["id"], [0] * len(steps))[index] += part["requestCount"]
    if not series:
        return None
    chosen = choose_colours(f"{provider_id}/{model}" for model in series)  # those of the same models in Explore
    colours = {model: chosen[f"{provider_id}/{model}"] for model in series}
    plot = build_plot([step["date"] for step in steps], series, round_count, colours)
    return {"title": "Your requests by day", "plot": plot}


def _list_policy(provider: Any) -> list[tuple[str, str]]:
    """Return what the provider publishes about data."""
    policy = provider.data_policy
    known = {True: "yes", False: "no"}
    facts = [
        ("Headquarters", provider.headquarters),
        ("Trains on API data", known.get(policy.api_training, "")),
        ("Logs prompts", known.get(policy.prompt_logging, "")),
        ("Keeps data for", policy.retention),
        ("GDPR", known.get(policy.gdpr, "")),
        ("ISO 27001", known.get(policy.iso27001, "")),
        ("SOC 2", f"type {policy.soc2}" if policy.soc2 else ""),
    ]
    return [(name, value) for name, value in facts if value]


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list),
    *page_operations(f"{PATH}/<provider>", show_provider),
)
