"""A provider's own list of models, read with the operator's credential.

Wire facts: OpenAI API reference, "List models" (further fields as providers of this format document them: context
lengths and output limits, prices per token as text); Anthropic API reference, "List Models"; Gemini API reference,
models.list.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import orjson
from msgspec import Struct

from gateway.catalogue.offered_models import OfferedModel
from gateway.errors import NotSupported, UpstreamFailed
from gateway.money import format_price, price_per_million, read_decimal
from gateway.providers.model_discovery import HttpClient
from gateway.providers.openai.address import address_of
from gateway.providers.protocol import Target
from gateway.providers.upstream_calls import signed_in

PAGE_TIMEOUT_S = 30.0
PAGE_BYTES = 16 * 1024 * 1024
PAGES = 50
MODELS = 5_000  # of one list; the rest is an error, because models beyond it would seem to be removed
NAME_LENGTH = 200
PATH = "/models"
MAX_PRICE = Decimal("0.01")  # US dollars per token; a higher number is the price of another unit
CONTEXT = ("context_length", "context_window", "max_context_length", "context_size", "max_model_len")
OUTPUT = ("max_output", "max_output_tokens", "max_completion_tokens", "max_output_length")
PRICES = ("prompt", "completion", "input_cache_read", "input_cache_write")
# Members of `capabilities` → fields of a mapping.
CAPABILITIES = {"function_calling": "tools", "vision": "vision", "reasoning": "reasoning"}
GOOGLE_OPERATIONS = {"generateContent": "chat", "embedContent": "embeddings", "batchEmbedContents": "embeddings"}

Json = dict[str, Any]


class ListFormat(Struct, frozen=True):
    """The model list of a protocol. `query` selects the first page, `next_page` the one after an answer ("": none)."""

    member: str
    read: Callable[[Json], OfferedModel | None]
    query: str = ""
    next_page: Callable[[Json], str] = lambda answer: ""


def fetch_models(client: HttpClient, target: Target) -> list[OfferedModel]:
    """Return the models that the target's provider lists. The call passes the same address guard as model calls.

    NotSupported for a protocol without a readable list. UpstreamFailed for an error of the provider, for an answer
    that is no list and for one that is too long; the transport's errors.
    """
    target = signed_in(target)
    provider = target.provider
    form = FORMATS.get(provider.protocol)
    if form is None:
        raise NotSupported(f"The model list of {provider.name} ({provider.protocol}) cannot be read.")
    offered: dict[str, OfferedModel] = {}
    query = form.query
    for _ in range(PAGES):
        answer = _fetch(client, target, query)
        for entry in _entries(answer, form.member, provider.name):
            model = form.read(entry)
            if model is not None:
                offered.setdefault(model.external_id, model)
        query = form.next_page(answer) if isinstance(answer, dict) else ""
        if len(offered) > MODELS:
            break
        if not query:
            return list(offered.values())
    raise UpstreamFailed(f"{provider.name} lists more than {MODELS} models or {PAGES} pages.")


def _fetch(client: HttpClient, target: Target, query: str) -> Any:
    url, headers = address_of(target, PATH)
    if query:
        url += ("&" if "?" in url else "?") + query
    headers["accept"] = "application/json"
    answer = client.request("GET", url, headers, timeout_s=PAGE_TIMEOUT_S, max_bytes=PAGE_BYTES, trusted=target.trusted)
    name = target.provider.name
    if answer.status != 200:
        raise UpstreamFailed(f"{name} does not list its models: status {answer.status}.")
    try:
        return orjson.loads(answer.body)
    except ValueError:
        raise UpstreamFailed(f"{name} does not list its models: the answer is not JSON.") from None


def _entries(answer: Any, member: str, name: str) -> list[Json]:
    entries = answer.get(member) if isinstance(answer, dict) else answer
    if not isinstance(entries, list):
        raise UpstreamFailed(f"{name} does not list its models: the answer has no list {member}.")
    return [entry for entry in entries if isinstance(entry, dict)]


def _read_openai(entry: Json) -> OfferedModel | None:
    ident = _text(entry.get("id"))
    if not ident or entry.get("active") is False:
        return None
    top = _object(entry.get("top_provider"))
    capabilities = _object(entry.get("capabilities"))
    abilities = {ours: True for theirs, ours in CAPABILITIES.items() if capabilities.get(theirs) is True}
    return OfferedModel(
        ident,
        name=_text(entry.get("display_name")) or _text(entry.get("name")),
        released=_day_of(entry.get("created")),
        context_length=_first_count(entry, CONTEXT),
        max_output=_first_count(entry, OUTPUT) or _count(top.get("max_completion_tokens")),
        prices=_prices(_object(entry.get("pricing"))),
        abilities=abilities,
    )


def _read_anthropic(entry: Json) -> OfferedModel | None:
    ident = _text(entry.get("id"))
    if not ident or entry.get("lifecycle") == "retired":
        return None
    return OfferedModel(
        ident,
        name=_text(entry.get("display_name")),
        released=_day(entry.get("created_at")),
        context_length=_count(entry.get("max_input_tokens")),
        max_output=_count(entry.get("max_tokens")),
        deprecated=_day(entry.get("deprecated_at")),
        deactivated=_day(entry.get("retires_at")),
    )


def _after(answer: Json) -> str:
    last = answer.get("last_id")
    if answer.get("has_more") is True and isinstance(last, str) and last:
        return f"limit=1000&after_id={quote(last, safe='')}"
    return ""


def _read_google(entry: Json) -> OfferedModel | None:
    ident = _text(entry.get("name")).removeprefix("models/")
    if not ident:
        return None
    methods = entry.get("supportedGenerationMethods")
    names = [name for name in methods if isinstance(name, str)] if isinstance(methods, list) else []
    operations = tuple(dict.fromkeys(GOOGLE_OPERATIONS[name] for name in names if name in GOOGLE_OPERATIONS))
    return OfferedModel(
        ident,
        name=_text(entry.get("displayName")),
        context_length=_count(entry.get("inputTokenLimit")),
        max_output=_count(entry.get("outputTokenLimit")) if "chat" in operations else 0,
        operations=operations,
        abilities={"reasoning": True} if entry.get("thinking") is True else {},
    )


def _token(answer: Json) -> str:
    token = answer.get("nextPageToken")
    if isinstance(token, str) and token:
        return f"pageSize=1000&pageToken={quote(token, safe='')}"
    return ""


OPENAI = ListFormat("data", _read_openai)
FORMATS = {
    "openai": OPENAI,
    "openai-responses": OPENAI,
    "deepinfra": OPENAI,
    "xai": OPENAI,
    "anthropic": ListFormat("data", _read_anthropic, "limit=1000", _after),
    "google": ListFormat("models", _read_google, "pageSize=1000", _token),
}


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    """Return a short printable text, else ""."""
    if isinstance(value, str) and len(value) <= NAME_LENGTH and value.isprintable():
        return value
    return ""


def _count(value: Any) -> int:
    if type(value) is int and 0 < value < 10**9:
        return value
    return 0


def _first_count(entry: Json, names: tuple[str, ...]) -> int:
    return next((count for name in names if (count := _count(entry.get(name)))), 0)


def _prices(pricing: Json) -> dict[str, str]:
    """Return prices per token. Prompt and completion must both be there, as text."""
    prices = {name: text for name in PRICES if (text := _price(pricing.get(name)))}
    return prices if "prompt" in prices and "completion" in prices else {}


def _price(value: Any) -> str:
    if not isinstance(value, str) or len(value) > NAME_LENGTH:
        return ""
    try:
        amount = read_decimal(value)
        text = format_price(price_per_million(value))
    except ValueError:
        return ""
    if amount >= MAX_PRICE or (amount and not price_per_million(value)):
        return ""
    return text


def _day(value: Any) -> str:
    """Return the day of an RFC 3339 time; "" for others, and for the epoch, which stands for an unknown day."""
    try:
        day = datetime.fromisoformat(_text(value)).date().isoformat()
    except ValueError:
        return ""
    return "" if day.startswith("1970") else day


def _day_of(value: Any) -> str:
    """Return the day of a Unix time in seconds."""
    if type(value) is int and 10**9 <= value < 2**33:
        return datetime.fromtimestamp(value, UTC).date().isoformat()
    return ""
