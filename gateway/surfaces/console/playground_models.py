"""The models that a visitor's key can call now, as the picker of the playground lists them; routes, `smart` and `auto`
are among them. The answer is JSON."""

from typing import NamedTuple

from gateway.callers.authentication import Caller
from gateway.neutral.request import AUTO, SMART
from gateway.runtime.plurals import many
from gateway.surfaces.console.model_rows import CAPABILITIES, ModelRow, list_rows, write_price
from gateway.worker.services import Services

# The page shows what a person chooses a model by; the rest is on the page of the model.
ABILITIES = ("vision", "audio", "documents", "tools", "reasoning", "json_output_schema", "web_search", "images")
MAX_PRICES = 2  # of those besides text
PSEUDO = {
    AUTO: ("Auto", "The gateway chooses the cheapest model that meets the requirements of the request."),
    SMART: ("Smart", "A route that chooses a small, medium or large model by how difficult the request is."),
}


class Mode(NamedTuple):
    """A mode of the page: its label, and the operation of its models."""

    label: str
    operation: str


MODES = {
    "chat": Mode("Chat", "chat"),
    "image": Mode("Images", "images"),
    "speech": Mode("Speech", "speech"),
    "transcription": Mode("Transcription", "transcriptions"),
    "video": Mode("Video", "videos"),
}


def name_models(rows: list[ModelRow], operation: str) -> list[str]:
    """Return the ids of the usable models for an operation."""
    return [row.id for row in rows if row.usable and _serves(row, operation)]


def list_choices(services: Services, caller: Caller) -> dict[str, list[dict[str, object]]]:
    """Return the models that the caller can use now, by mode; for chat with the routes of its project."""
    rows = [row for row in list_rows(services, caller) if row.usable]
    choices = {name: [_write_row(row) for row in rows if _serves(row, mode.operation)] for name, mode in MODES.items()}
    if choices["chat"]:
        choices["chat"] = [*_list_names(services, caller), *choices["chat"]]
    return choices


def _list_names(services: Services, caller: Caller) -> list[dict[str, object]]:
    """Return the names that choose a model for each request."""
    known = services.routing.routes.names_of(caller.organization_id, caller.project_id)
    own = {name: f"A route of the organization: {many(len(route.models), 'model')}." for name, route in known}
    named = {name: (label, own.get(name, about)) for name, (label, about) in PSEUDO.items()}
    named |= {name: (name, about) for name, about in own.items() if name not in named}
    return [{"id": name, "name": label, "about": about, "does": []} for name, (label, about) in named.items()]


def _write_row(row: ModelRow) -> dict[str, object]:
    prices = [f"{price} / {unit}" for price, unit in row.other_prices]
    texts = {"in": row.input_price, "out": row.output_price}
    shown: dict[str, object] = {name: write_price(price) for name, price in texts.items() if price is not None}
    if not shown and prices:
        shown["other"] = ", ".join(prices[:MAX_PRICES])
    return {
        "id": row.id,
        "name": row.name,
        "by": ", ".join(row.providers.values()),
        "context": row.entry.context_length or 0,
        "free": row.entry.free,
        "does": [CAPABILITIES[name] for name in row.capabilities if name in ABILITIES],
        **shown,
    }


def _serves(row: ModelRow, operation: str) -> bool:
    return any(operation in mapping.operations for mapping in row.model.mappings)
