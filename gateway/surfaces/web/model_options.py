"""The fields by which a caller names further models and chooses among providers: `models` and `provider`.

`provider` has the members of OpenRouter's provider routing (openrouter.ai, "Provider Routing"). Two headers do the same
for clients that cannot add fields: `X-LLMGateway-Models: a, b` and `X-LLMGateway-Provider: only=a,b; sort=price`.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert

from gateway.billing.context import MODELS_HEADER, PROVIDER_HEADER
from gateway.errors import InvalidRequest
from gateway.neutral.request import MAX_MODELS, ProviderPreferences

Name = Annotated[str, Meta(min_length=1)]
Models = Annotated[list[Name], Meta(max_length=MAX_MODELS)]
Providers = Annotated[list[Name], Meta(max_length=64)]
Criterion = Literal["price", "throughput", "latency"]
NO_EFFECT: tuple[Any, ...] = (None, False, "allow", [], {}, "false")
LISTS = frozenset(("order", "only", "ignore"))


class SortBy(Struct, gc=False):
    by: Criterion


class ProviderOptions(Struct, gc=False):
    """Preferences among the providers of a model."""

    order: Providers | None = None
    only: Providers | None = None
    ignore: Providers | None = None
    sort: Criterion | SortBy | None = None
    allow_fallbacks: bool | None = None
    data_collection: Any = None
    enforce_distillable_text: Any = None
    max_price: Any = None
    preferred_max_latency: Any = None
    preferred_min_throughput: Any = None
    quantizations: Any = None
    require_parameters: Any = None
    zdr: Any = None


# Members without an effect here, unless they have one of the values that change nothing.
UNSUPPORTED_MEMBERS = tuple(
    name for name in ProviderOptions.__struct_fields__ if name not in (*LISTS, "sort", "allow_fallbacks")
)


def read_choice(body: Any, preferences: dict[str, Any]) -> dict[str, Any]:
    """Return members of Options: the preferences and what `models` and `provider` of a body say. `routing` takes
    precedence over `provider.sort`."""
    members = dict(preferences)
    if body.models:
        members["models"] = tuple(body.models)
    if body.provider is not None:
        _add_provider(members, body.provider)
    return members


def read_headers(models: str, provider: str) -> dict[str, Any]:
    """Return members of Options that the values of the two headers set. Raises InvalidRequest, naming the header."""
    members: dict[str, Any] = {}
    names = _split(models)
    if len(names) > MAX_MODELS:
        message = f"The header {MODELS_HEADER} names {len(names)} models; the limit is {MAX_MODELS}."
        raise InvalidRequest(message, param=MODELS_HEADER)
    if names:
        members["models"] = tuple(names)
    if provider:
        _add_provider(members, _read_provider(provider))
    return members


def _read_provider(text: str) -> ProviderOptions:
    given: dict[str, Any] = {}
    for item in text.split(";"):
        if not item.strip():
            continue
        name, equals, value = item.partition("=")
        name = name.strip()
        if not equals or name not in ProviderOptions.__struct_fields__:
            raise _refuse_header(item.strip())
        given[name] = _split(value) if name in LISTS else value.strip()
    try:
        return convert(given, ProviderOptions, strict=False)
    except ValidationError:
        raise _refuse_header(text) from None


def _refuse_header(part: str) -> InvalidRequest:
    message = f"The header {PROVIDER_HEADER} must be like 'only=openai,azure; sort=price', not '{part[:100]}'."
    return InvalidRequest(message, param=PROVIDER_HEADER)


def _split(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _add_provider(members: dict[str, Any], given: ProviderOptions) -> None:
    """Add the members of Options that these preferences set."""
    sort = given.sort.by if isinstance(given.sort, SortBy) else given.sort
    if sort:
        members.setdefault("routing", sort)
    provider = ProviderPreferences(
        order=tuple(given.order or ()),
        only=tuple(given.only or ()),
        ignore=tuple(given.ignore or ()),
        allow_fallbacks=given.allow_fallbacks is not False,
        unread=tuple(name for name in UNSUPPORTED_MEMBERS if getattr(given, name) not in NO_EFFECT),
    )
    if provider != ProviderPreferences():
        members["provider"] = provider


def name_model(wire: dict[str, Any]) -> None:
    """Move the first of `models` to `model` where that is missing."""
    models = wire.get("models")
    if not wire.get("model") and isinstance(models, list) and models:
        wire["model"] = models[0]
