"""`/console/models/custom`: an organization's own providers, their models and the prices of those."""

from collections.abc import Mapping
from typing import Any

from gateway.errors import InvalidRequest
from gateway.money import read_decimal
from gateway.surfaces.console.lists import Column, ShownList, arrange
from gateway.surfaces.console.model_rows import MILLION, read_price, show_price
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Custom models"
PATH = "/console/models/custom"
LIST = ManagementCall("GET /orgs/<organization_id>/custom-providers")
ADD = ManagementCall("POST /orgs/<organization_id>/custom-providers")
UPDATE = ManagementCall("PATCH /orgs/<organization_id>/custom-providers/<name>")
REMOVE = ManagementCall("DELETE /orgs/<organization_id>/custom-providers/<name>")
ADD_KEY = ManagementCall("POST /keys/provider")
# Price of the catalogue → its column, with the name of its field in the form.
PRICES = {
    "prompt": Column("Input, $ / M", "input_price", numeric=True),
    "input_cache_read": Column("Cached, $ / M", "cached_price", numeric=True),
    "completion": Column("Output, $ / M", "output_price", numeric=True),
}
SIZES = (Column("Context", "context_length", numeric=True), Column("Max output", "max_output", numeric=True))
FIGURES = (*PRICES.values(), *SIZES)
COLUMNS = (Column("Model", "id"), *FIGURES, Column("Action"))


def show(call: PageCall) -> Outbound:
    """Show the custom providers of each organization that the visitor manages, each with a page of its models. A search
    finds models, and providers by their names."""
    organizations = []
    lists = []
    for organization in call.visitor.organizations():
        if call.visitor.manages("providers:read", organization.id):
            providers = call.run(LIST, organization_id=organization.id)
            shown = [{**provider, "models": _list_models(call, organization.id, provider)} for provider in providers]
            lists += [provider["models"] for provider in shown]
            if call.arguments.get("q"):
                shown = [provider for provider in shown if provider["models"].total]
            organizations.append({"id": organization.id, "name": organization.name, "providers": shown})
    searched = next(iter(lists), None)
    return call.page(
        "models/custom.html", TITLE, path=PATH, organizations=organizations, searched=searched, price=show_price
    )


def _list_models(call: PageCall, organization_id: str, provider: dict[str, Any]) -> ShownList:
    """Return a page of the provider's models. Without models it is one row while its name matches the search."""
    name = provider["name"]
    rows = [{**_show_model(model), "provider": name} for model in provider["models"]]
    if not rows and call.arguments.get("q"):
        figures = dict.fromkeys(column.key for column in FIGURES)
        rows = [{"id": "", "provider": name, **figures, "dated": False}]
    page_name = f"page-{organization_id}-{name}"
    return arrange(rows, COLUMNS, call.arguments, searched=("id", "provider"), sort="id", page_name=page_name)


def _add_provider(call: PageCall) -> str:
    organization_id = call.form.get("organization", "")
    fields = {"name": call.form.get("name", ""), "baseUrl": call.form.get("base_url", "")}
    made = call.run(ADD, fields, organization_id=organization_id)
    if not call.form.get("token"):
        return f"The provider {made['name']} was added. Add its key on the page Providers."
    key = {"organizationId": organization_id, "provider": made["providerId"], "token": call.form["token"]}
    return f"The provider {made['name']} was added. {call.run(ADD_KEY, key)['message']}"


def _change_address(call: PageCall) -> str:
    _update(call, {"baseUrl": call.form.get("base_url", "")})
    return "The base URL was changed."


def _remove_provider(call: PageCall) -> str:
    call.run(REMOVE, organization_id=call.form.get("organization", ""), name=call.form.get("provider", ""))
    return f"The provider {call.form.get('provider', '')} and its keys were removed."


def _save_model(call: PageCall) -> str:
    ident = call.form.get("id", "").strip()
    model: dict[str, Any] = {"id": ident}
    prices = {name: price for name, column in PRICES.items() if (price := _read_usd(call.form, column.key))}
    if prices:
        model["prices"] = {"prompt": "0", "completion": "0", **prices}
    model |= {size.key: _read_size(call.form, size.key) for size in SIZES if call.form.get(size.key, "").strip()}
    others = [model for model in _models(call) if model["id"] != ident]
    _update(call, {"models": [*others, model]})
    return f"The model {call.form.get('provider', '')}/{ident} was saved."


def _remove_model(call: PageCall) -> str:
    ident = call.form.get("id", "")
    kept = [model for model in _models(call) if model["id"] != ident]
    _update(call, {"models": kept})
    return f"The model {call.form.get('provider', '')}/{ident} was removed."


def _update(call: PageCall, fields: dict[str, Any]) -> None:
    names = {"organization_id": call.form.get("organization", ""), "name": call.form.get("provider", "")}
    call.run(UPDATE, fields, **names)


def _models(call: PageCall) -> list[dict[str, Any]]:
    providers = call.run(LIST, organization_id=call.form.get("organization", ""))
    return next((provider["models"] for provider in providers if provider["name"] == call.form.get("provider")), [])


def _read_usd(form: Mapping[str, str], field: str) -> str:
    """Return the price of one token from the price of a million; "" without one. Raises InvalidRequest."""
    text = form.get(field, "").strip().removeprefix("$")
    if not text:
        return ""
    try:
        price = read_decimal(text)
    except ValueError:
        raise InvalidRequest("Give prices in US dollars, such as 2.50.", param=field) from None
    if price < 0:
        raise InvalidRequest("Give prices in US dollars, such as 2.50.", param=field)
    return f"{(price / MILLION).normalize():f}"


def _read_size(form: Mapping[str, str], field: str) -> int:
    text = form[field].strip().replace(",", "")
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest("Give the context and the max output as numbers of tokens.", param=field)
    return int(text)


def _show_model(model: dict[str, Any]) -> dict[str, Any]:
    pricing = model.get("prices") or {}
    if not isinstance(pricing, dict):  # prices that change by date, set through the API
        pricing = {}
    prices = {column.key: read_price(pricing, name) for name, column in PRICES.items()}
    sizes = {size.key: model.get(size.key) for size in SIZES}
    return {"id": model["id"], "dated": bool(model.get("prices")) and not pricing, **prices, **sizes}


ACTIONS: dict[str, PageAction] = {
    "add": _add_provider,
    "address": _change_address,
    "remove": _remove_provider,
    "save": _save_model,
    "drop": _remove_model,
}
OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show, ACTIONS)
