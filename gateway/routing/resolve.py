"""Resolution of a request's `model`: one model, one provider of it, or a choice among many."""

from collections.abc import Iterable
from typing import Literal, Protocol

from msgspec import Struct

from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.catalogue.lifecycle import has_ended
from gateway.errors import NotFound, UnknownModel
from gateway.neutral.request import AUTO, DYNAMIC, OWN_PREFIX, SMART, unmarked

Kind = Literal["canonical", "pinned", "auto", "custom"]

CUSTOM = "custom"
OWN_PROVIDER = f"{CUSTOM}:"
SPECIAL_MODELS = frozenset({AUTO, CUSTOM})
NO_ROUTE = "There is no published route {!r} here. A route is the model of a chat request, and stands in no list."
# Characters of a model name: the limit of a usage row, and the part that an error message repeats.
MAX_NAME_LENGTH = 255
ECHOED_LENGTH = 64
NEAR_MATCHES = 3
SANDBOX = "sandbox"  # protocol of the built-in provider
NOT_PASSED_ON = (
    "Models that are not listed are passed on to {} if the organization pays with its own provider key, has unlimited "
    "credits, or allows them."
)
NOT_SERVED = "model_not_served"


class CatalogueView(Protocol):
    """The catalogue's methods that routing needs. `models` holds the models by id; a change replaces the object."""

    @property
    def models(self) -> "Models": ...
    def find(self, text: str) -> Model | None: ...
    def find_spelling(self, text: str) -> Model | None: ...
    def find_version(self, text: str) -> Model | None: ...
    def provider(self, ident: str) -> Provider | None: ...
    def served_as(self, provider: str, external_id: str) -> Mapping | None: ...
    def suggest(self, text: str, n: int = NEAR_MATCHES) -> Iterable[str]: ...
    def successor(self, model: Model, day: str) -> Model | None: ...


class Models(Protocol):
    def values(self) -> Iterable[Model]: ...


class CustomModel(Struct, frozen=True):
    """A model at an organization's custom provider."""

    model: Model
    provider: Provider
    mapping: Mapping


class CustomRoutes(Protocol):
    """The custom models of one organization. All methods but `unlisted_model` answer from memory.

    `custom_model` returns the model at the custom provider `name` (None: no such provider), `unlisted_model` a model of
    a known provider that the catalogue does not list (None: such models are not passed on).
    """

    def custom_model(self, name: str, model: str) -> CustomModel | None: ...
    def unlisted_model(self, provider: str, model: str) -> CustomModel | None: ...


class Resolution(Struct, frozen=True):
    """The meaning of a model name. `model` is None for a choice among models (auto); `provider` and `region`
    are "" if not fixed.

    `candidates` are the possible mappings, `others` those of other providers for a pinned model; `custom_model`
    is set for a custom provider.
    """

    kind: Kind
    requested_model: str
    model: Model | None = None
    provider: str = ""
    region: str = ""
    candidates: tuple[Mapping, ...] = ()
    others: tuple[Mapping, ...] = ()
    custom_model: CustomModel | None = None


def resolve(requested: str, catalogue: CatalogueView, today: str, routes: CustomRoutes | None = None) -> Resolution:
    """Resolve a model name, in this order: special names, a known provider's prefix, a custom provider's prefix, a
    model's id or alias, another spelling of one, the model that a dated or "latest" name is a version of.

    `today` is "YYYY-MM-DD". Raise UnknownModel (model_not_found, with near matches; model_deactivated;
    unknown_region), or NotFound (dynamic_route_not_found) for a route, which stands in no list of models and serves
    only chat; the field at fault is "model".
    """
    if len(requested) > MAX_NAME_LENGTH or "\0" in requested:
        message = (
            f"There is no model {requested[:ECHOED_LENGTH]!r}…: a model name has at most {MAX_NAME_LENGTH} characters."
        )
        raise UnknownModel(message, param="model")
    text = requested.strip()
    special = unmarked(text).removeprefix(OWN_PREFIX).lower()
    if text.startswith(DYNAMIC) or special == SMART:
        raise NotFound(NO_ROUTE.format(text[:ECHOED_LENGTH]), param="model", code="dynamic_route_not_found")
    if special in SPECIAL_MODELS:
        return _resolve_special(special, requested, catalogue, routes)
    resolution = _resolve_prefixed(text, requested, catalogue, today, routes) if "/" in text else None
    return resolution or _resolve_model(text, requested, catalogue, today)


def is_common(requested: str, resolution: Resolution, catalogue: CatalogueView) -> bool:
    """Return whether a model name means the same for every organization, regardless of its custom definitions."""
    text = requested.strip()
    if text.startswith(DYNAMIC) or resolution.kind == "custom":
        return False
    prefix, slash, _ = text.partition("/")
    # An unknown prefix may be the custom provider of some organization.
    return not slash or resolution.kind == "auto" or catalogue.provider(prefix) is not None


def _resolve_special(name: str, requested: str, catalogue: CatalogueView, routes: CustomRoutes | None) -> Resolution:
    if name == AUTO:
        return Resolution("auto", requested)
    custom_model = routes.custom_model(CUSTOM, "") if routes else None
    if custom_model is None:
        raise _unknown(requested, catalogue, "No custom provider is configured.")
    return _custom(custom_model, requested)


def _resolve_prefixed(
    text: str, requested: str, catalogue: CatalogueView, today: str, routes: CustomRoutes | None
) -> Resolution | None:
    prefix, _, rest = text.partition("/")
    if catalogue.provider(prefix) is None and catalogue.provider(prefix.lower()) is not None:
        prefix = prefix.lower()  # model names are case-insensitive too
        text = f"{prefix}/{rest}"
    # Rows and rules use "custom:<name>" for an organization's provider; the bare "custom" is its generic one.
    name = prefix.removeprefix(OWN_PROVIDER)
    if name == prefix and prefix != CUSTOM and catalogue.provider(prefix) is not None:
        rest = unmarked(rest)
        resolution = _resolve_pinned(prefix, rest, requested, catalogue, today)
        if resolution is None and catalogue.find(unmarked(text)) is None:
            return _resolve_unlisted(prefix, rest, requested, catalogue, today, routes)
        return resolution
    custom_model = routes.custom_model(name, rest) if routes else None
    if custom_model:
        return _custom(custom_model, requested)
    return None


def _resolve_unlisted(
    provider: str, rest: str, requested: str, catalogue: CatalogueView, today: str, routes: CustomRoutes | None
) -> Resolution:
    """Pass on a model that no provider is known to serve, since the provider may have it. Where the caller may not do
    that, take the model that it is a version of, or raise UnknownModel."""
    error = _not_served(provider, rest, requested, catalogue)
    known = catalogue.provider(provider)
    passed_on = error.code != NOT_SERVED and known is not None and known.protocol != SANDBOX
    if routes is not None and passed_on and (unlisted := routes.unlisted_model(provider, rest)):
        return _custom(unlisted, requested)
    version = catalogue.find_version(rest)
    if version is not None and (resolution := _resolve_pinned(provider, version.id, requested, catalogue, today)):
        return resolution
    if routes is not None and passed_on:
        raise UnknownModel(f"{error.message} {NOT_PASSED_ON.format(provider)}", param="model")
    raise error


def _resolve_pinned(
    provider: str, rest: str, requested: str, catalogue: CatalogueView, today: str
) -> Resolution | None:
    model, region = _find_at(provider, rest, catalogue)
    if model is None:
        return None
    served = tuple(mapping for mapping in model.mappings if mapping.provider == provider)
    if not served:
        return None
    _check_alive(model, requested, today, catalogue, provider)
    if region:
        served = _in_region(served, region, requested)
    others = tuple(mapping for mapping in model.mappings if mapping.provider != provider)
    if all(has_ended(mapping, today) for mapping in served):
        day = max(mapping.deactivated for mapping in served)
        raise _ended(requested, day, provider, others, today, catalogue.successor(model, today))
    return Resolution("pinned", requested, model, provider, region, served, others)


def _find_at(provider: str, name: str, catalogue: CatalogueView) -> tuple[Model | None, str]:
    """Return the model and the region that a name without its provider names; None if there is none."""
    model = catalogue.find(name)
    if model is not None:
        return model, ""
    first, _, region = name.rpartition(":")
    model = catalogue.find(first)
    if model is not None:
        return model, region
    # The provider's own name of the model, e.g. with a vendor or a region in front.
    known = catalogue.served_as(provider, name)
    if known is not None:
        return catalogue.find(known.model), known.region
    model = catalogue.find_spelling(name)
    if model is not None:
        return model, ""
    return catalogue.find_spelling(first), region


def _in_region(mappings: tuple[Mapping, ...], region: str, requested: str) -> tuple[Mapping, ...]:
    matches = tuple(mapping for mapping in mappings if mapping.region == region)
    if matches:
        return matches
    known = sorted(mapping.region for mapping in mappings if mapping.region)
    hint = f"Its regions are: {', '.join(known)}." if known else "It has no regions; remove the suffix."
    raise UnknownModel(f"{requested!r} names an unknown region. {hint}", param="model", code="unknown_region")


def _resolve_model(text: str, requested: str, catalogue: CatalogueView, today: str) -> Resolution:
    model = catalogue.find(text) or catalogue.find_version(text)
    if model is None:
        raise _unknown(requested, catalogue)
    _check_alive(model, requested, today, catalogue)
    return Resolution("canonical", requested, model, candidates=model.mappings)


def _custom(custom_model: CustomModel, requested: str) -> Resolution:
    return Resolution(
        "custom",
        requested,
        custom_model.model,
        custom_model.provider.id,
        "",
        (custom_model.mapping,),
        custom_model=custom_model,
    )


class RetiredModel(UnknownModel):
    """The model ended, anywhere or at the provider that the request names. `successor` is the name of the model that
    replaces it there, "" without one."""

    code = "model_deactivated"
    successor = ""


def name_at(provider: str, successor: Model | None) -> str:
    """Return the name of a successor at a provider that serves it, "" without one; any provider will do for ""."""
    if successor is None or not provider:
        return "" if successor is None else successor.id
    served = any(mapping.provider == provider for mapping in successor.mappings)
    return f"{provider}/{successor.id}" if served else ""


def _ended(
    requested: str, day: str, provider: str, others: tuple[Mapping, ...], today: str, successor: Model | None
) -> UnknownModel:
    """Return the error for a provider that no longer serves the model; others may still serve it."""
    going = sorted({mapping.provider for mapping in others if not has_ended(mapping, today)})
    hints = [f"its successor is {successor.id}"] if successor is not None else []
    hints += [f"it is still served by: {', '.join(going)}"] if going else []
    hint = "; ".join(hints) or "choose another from GET /v1/models"
    error = RetiredModel(f"The model {requested!r} was deactivated at {provider} on {day}; {hint}.", param="model")
    error.successor = name_at(provider, successor)
    return error


def _check_alive(model: Model, requested: str, today: str, catalogue: CatalogueView, provider: str = "") -> None:
    """Raise RetiredModel for a model that has ended. The successor at a `provider` is one that it serves."""
    if not has_ended(model, today):
        return
    successor = catalogue.successor(model, today)
    hint = "choose another from GET /v1/models." if successor is None else f"its successor is {successor.id}."
    error = RetiredModel(f"The model {requested!r} was deactivated on {model.deactivated}; {hint}", param="model")
    error.successor = name_at(provider, successor)
    raise error


def _not_served(provider: str, rest: str, requested: str, catalogue: CatalogueView) -> UnknownModel:
    model = catalogue.find(rest) or catalogue.find(rest.rpartition(":")[0])
    if model is None:
        return _unknown(requested, catalogue, near=rest)
    vendors = sorted({mapping.provider for mapping in model.mappings})
    there = f"it is served by: {', '.join(vendors)}." if vendors else "no provider serves it."
    message = f"The provider {provider!r} does not serve {model.id!r}; {there}"
    return UnknownModel(message, param="model", code=NOT_SERVED)


def _unknown(requested: str, catalogue: CatalogueView, text: str = "", near: str = "") -> UnknownModel:
    close = list(catalogue.suggest(near or requested, NEAR_MATCHES))
    hint = f" Did you mean {', '.join(close)}?" if close else " GET /v1/models lists all models."
    return UnknownModel((text or f"There is no model {requested!r}.") + hint, param="model")
