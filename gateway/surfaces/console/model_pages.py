"""`/console/models`: search, one model with its providers, and the comparison of several."""

from typing import Any
from urllib.parse import parse_qsl

from gateway.errors import NotFound
from gateway.reports.latency_percentiles import NEWEST
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.model_rows import (
    CAPABILITIES,
    KEYLESS,
    STAGES,
    USABLE,
    ModelRow,
    list_prices,
    list_rows,
    show_price,
)
from gateway.surfaces.console.organization_choice import FIELD, CallerChoices, find_caller, read_choices
from gateway.surfaces.console.page_calls import ManagementCall, PageCall, page_operations
from gateway.surfaces.console.subject_figures import UsageSubject, read_figures
from gateway.surfaces.openai.model_answers import ProviderMappingAnswer
from gateway.surfaces.visitors.report_windows import DEFAULT_DAYS
from gateway.surfaces.web.http import Operation, Outbound

LATENCY = ManagementCall("GET /activity/latency")
TITLE = "Models"
PATH = "/console/models"
MAX_COMPARED = 6
COLUMNS = (
    Column("Model", "name"),
    Column("Providers", extra=True),
    Column("Context", "context", numeric=True),
    Column("Input, $ / M", "input", numeric=True),
    Column("Output, $ / M", "output", numeric=True),
    Column("Capabilities"),
    Column("Usable now", "unusable"),
    Column("Compare"),
)
USE = (("", "All models"), ("now", "Usable now"), ("no", "Not usable"))


def show_list(call: PageCall) -> Outbound:
    """Show the models that match the filters."""
    choices, rows = _read_rows(call)
    providers = {ident: name for row in rows for ident, name in row.providers.items()}
    matching = [row.listed for row in rows if _matches(row, call.arguments)]
    matching.sort(key=lambda row: row["name"].lower())
    return call.page(
        "models/models.html",
        TITLE,
        path=PATH,
        field=FIELD,
        choices=choices,
        filters=[
            ("use", "Usable", USE, call.arguments.get("use", "")),
            (
                "capability",
                "Capability",
                [("", "All capabilities"), *CAPABILITIES.items()],
                call.arguments.get("capability", ""),
            ),
            (
                "provider",
                "Provider",
                [("", "All providers"), *sorted(providers.items(), key=lambda item: item[1].lower())],
                call.arguments.get("provider", ""),
            ),
        ],
        capabilities=CAPABILITIES,
        models=arrange(matching, COLUMNS, call.arguments, searched=("name", "text"), sort="unusable"),
        usable=sum(row.usable for row in rows),
        total=len(rows),
        price=show_price,
        manages=call.visitor.manages("providers:write"),
    )


def show_model(call: PageCall) -> Outbound:
    """Show a model with each of its providers: prices, limits, health, and whether it can be used."""
    choices, rows = _read_rows(call)
    (row,) = _find_rows(rows, [call.params["model"]])
    latencies = call.run(LATENCY)
    subject = UsageSubject("provider", {}, served=row.id)
    return call.page(
        "models/model.html",
        row.name,
        path=PATH,
        field=FIELD,
        choices=choices,
        row=row,
        capabilities=[CAPABILITIES[name] for name in row.capabilities],
        latencies=[one for one in latencies if one["model"] == row.id],
        newest=NEWEST,
        latency_days=DEFAULT_DAYS,
        places=[_show_place(call, row, entry) for entry in row.entry.providers],
        manages=call.visitor.manages("providers:write"),
        figures=read_figures(call, subject),
        keyless=row.best.stage == KEYLESS,
    )


def compare(call: PageCall) -> Outbound:
    """Show models beside each other."""
    asked = list(dict.fromkeys(value for name, value in parse_qsl(call.inbound.query) if name == "model"))
    _, rows = _read_rows(call)
    chosen = _find_rows(rows, asked[:MAX_COMPARED])
    return call.page(
        "models/compare.html",
        "Compare models",
        path=PATH,
        rows=chosen,
        capabilities={
            name: label for name, label in CAPABILITIES.items() if any(name in row.capabilities for row in chosen)
        },
        price=show_price,
        names=sorted({row.id for row in rows}),
        maximum=MAX_COMPARED,
    )


def _read_rows(call: PageCall) -> tuple[CallerChoices, list[ModelRow]]:
    choices = read_choices(call.visitor, call.arguments.get(FIELD, ""))
    return choices, list_rows(call.services, find_caller(call.visitor, choices))


def _matches(row: ModelRow, arguments: dict[str, str]) -> bool:
    capability = arguments.get("capability", "")
    provider = arguments.get("provider", "")
    use = arguments.get("use", "")
    if (capability and capability not in row.capabilities) or (provider and provider not in row.providers):
        return False
    if use == "now":
        return row.usable
    if use == "no":
        return not row.usable
    return not row.ended


def _find_rows(rows: list[ModelRow], idents: list[str]) -> list[ModelRow]:
    """Return the rows of these models. Raises NotFound for an unknown one."""
    known = {row.id: row for row in rows}
    for ident in idents:
        if ident not in known:
            raise NotFound(f"There is no model {ident[:100]}.")
    return [known[ident] for ident in idents]


def _show_place(call: PageCall, row: ModelRow, entry: ProviderMappingAnswer) -> dict[str, Any]:
    """Return a provider of a model: its entry, its health and its use."""
    place = entry.providerId, entry.region
    use = next(use for use in row.uses if (use.mapping.provider, use.mapping.region) == place)
    view = call.services.routing.health.view(use.mapping.key)
    return {
        "entry": entry,
        "name": row.providers[entry.providerId],
        "mapping": use.mapping,
        "use": use,
        "state": STAGES[use.stage],
        "usable": use.stage == USABLE,
        "prices": list_prices(entry.pricing),
        "health": view if view.events else None,
        # It is that of everybody's requests.
        "latency": view.latency_ms if view.events and call.visitor.is_operator() else None,
        "cooldown": view.cooldown,
    }


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list),
    *page_operations(f"{PATH}/compare", compare),
    *page_operations(f"{PATH}/<path:model>", show_model),
)
