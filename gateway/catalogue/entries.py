"""Catalogue entries: providers, models and the mappings of models to providers. All are immutable.

Names follow config/catalogue's TOML (docs/catalogue.md). Prices are integer nano-dollars per million units.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, make_dataclass
from operator import attrgetter
from typing import Any, Literal, TypeVar

from msgspec import Struct

from gateway.neutral.hosted_uses import HostedUse
from gateway.neutral.parameters import CAPABILITIES
from gateway.neutral.units import UNITS, prices_of

# The protocols that catalogue entries may name, with default values for fields that an entry omits.


class ProtocolEntry(Struct, frozen=True):
    """Defaults of a protocol. `auth` is how a key is sent, `version_path` is the end of an address without its own.

    `max_inputs` is the number of texts that one call embeds, `max_images` the number of images that one call
    generates, `max_streamed_n` the number of choices that one chat call streams (0: unknown). `hosted_tools`:
    each of its models may use the tools that its vendor runs, whose prices a provider states once; `tools_of` is the
    dialect in which requests name them.
    """

    auth: str = "bearer"
    version_path: str = ""
    max_inputs: int = 0
    max_images: int = 0
    max_streamed_n: int = 0
    hosted_tools: bool = False
    tools_of: str = ""


# Kinds of workload identities, with the settings of a provider that they discover. Implementations are in
# `providers/registry.py`.
IDENTITIES: dict[str, tuple[str, ...]] = {"aws": (), "entra": (), "google": ("project",)}

# Implementations are in `providers/registry.py`.
PROTOCOLS: dict[str, ProtocolEntry] = {
    "openai": ProtocolEntry(version_path="/v1", max_inputs=2048, tools_of="openai"),
    "openai-responses": ProtocolEntry(version_path="/v1", hosted_tools=True, tools_of="responses"),
    "anthropic": ProtocolEntry("x-api-key", "/v1", hosted_tools=True, tools_of="anthropic"),
    "google": ProtocolEntry(
        "x-goog-api-key", "/v1beta", 100, max_images=1, max_streamed_n=1, hosted_tools=True, tools_of="google"
    ),
    "bedrock": ProtocolEntry("sigv4"),
    "cohere": ProtocolEntry(max_inputs=96),
    "dashscope": ProtocolEntry(version_path="/api/v1", max_images=1),
    "deepinfra": ProtocolEntry(version_path="/v1"),
    "elevenlabs": ProtocolEntry("xi-api-key"),
    "xai": ProtocolEntry(version_path="/v1"),
    "bytedance": ProtocolEntry(version_path="/api/v3"),
    "minimax": ProtocolEntry(version_path="/v1"),
    "atlascloud": ProtocolEntry(version_path="/api/v1"),
    "sandbox": ProtocolEntry("none", max_inputs=2048, tools_of="openai"),
}


# APIs of providers for batches of requests (`Provider.batch_api`). Implementations are in `providers/registry.py`.
BATCH_APIS = ("openai", "azure", "anthropic", "google", "mistral")
# APIs of providers for files that requests name (`Provider.files_api`), as those.
FILES_APIS = ("openai", "azure", "anthropic", "google", "mistral")
# APIs of providers that make responses in the background (`Provider.background_api`), as those.
BACKGROUND_APIS = ("responses",)
BATCH_TIER = "batch"  # the service tier of what a provider's batch API answers


def uses_at(protocol: str, second: str, uses: tuple[HostedUse, ...]) -> tuple[HostedUse, ...]:
    """Return the uses of a request that a call of these protocols of a target has: others are left out of it."""
    spoken = {"", *(PROTOCOLS[name].tools_of for name in (protocol, second) if name in PROTOCOLS)}
    return tuple(use for use in uses if use.vendor in spoken)


T = TypeVar("T")
RATE_NAMES = tuple(unit.price for unit in UNITS)
READ_RATES = attrgetter(*RATE_NAMES)
# The flags of mappings that parameters of chat requests need; those that no code reads by name are added to Mapping.
FLAGS = tuple(capability.flag for capability in CAPABILITIES if capability.flag)
TABLE_RATES = frozenset(prices_of("table", "model"))
RESPONSES_PROTOCOL = "openai-responses"  # the protocol that `Mapping.responses_api` enables
Stability = Literal["stable", "beta", "unstable", "experimental"]


def with_fields(names: Iterable[str], kind: Any, default: Any) -> Callable[[type[T]], type[T]]:
    """Return a decorator that adds the fields of a table to a data class, except those that it declares."""

    def extend(declared: type[T]) -> type[T]:
        known = {field.name for field in fields(declared)}  # type: ignore[arg-type]
        added = [(name, kind, default) for name in names if name not in known]
        extended = make_dataclass(declared.__name__, added, bases=(declared,), frozen=True, slots=True)
        extended.__module__ = declared.__module__
        extended.__doc__ = declared.__doc__
        return extended

    return extend


@with_fields(RATE_NAMES, int | None, None)
@dataclass(frozen=True, slots=True)
class TokenRates:
    """Prices of one tier in nano-dollars per million units; None = unpriced.

    UNITS says what each price is for. Keys of the tables: `quality/size`, `default` (per_image);
    `<resolution>[_audio|_video]`, `default…` (per_second, per_video_token); the tool's model, `default`
    (image_tool_…). The prices that no code reads by name have their fields from UNITS.
    """

    prompt: int | None = None
    completion: int | None = None
    input_cache_read: int | None = None
    input_cache_write: int | None = None
    input_cache_write_1h: int | None = None
    image: int | None = None
    output_image: int | None = None
    input_audio: int | None = None
    input_audio_cache_read: int | None = None
    output_audio: int | None = None
    internal_reasoning: int | None = None
    thinking_completion: int | None = None
    request: int | None = None
    character: int | None = None
    input_audio_hour: int | None = None
    per_image: dict[str, int] = field(default_factory=dict)
    per_second: dict[str, int] = field(default_factory=dict)
    per_video_token: dict[str, int] = field(default_factory=dict)
    image_tool_text: dict[str, int] = field(default_factory=dict)
    image_tool_image: dict[str, int] = field(default_factory=dict)
    image_tool_output: dict[str, int] = field(default_factory=dict)

    @property
    def priced(self) -> bool:
        """Return whether any unit has a price. An empty table has none."""
        return any(rate not in (None, {}) for rate in READ_RATES(self))


@dataclass(frozen=True, slots=True)
class Tier:
    """Rates for a whole request of at most `up_to` input tokens (None: no limit)."""

    up_to: int | None
    rates: TokenRates


@dataclass(frozen=True, slots=True)
class Peak:
    """Rates within a daily UTC span, in minutes since midnight; `end` may be after midnight (end < start).

    The span begins on `days` (0 is Monday), except on `holidays` (days since 1970).
    """

    start: int
    end: int
    rates: TokenRates
    days: frozenset[int] = frozenset(range(7))
    holidays: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in force from `from_date` ("YYYY-MM-DD", "" = always): base, tiers in rising order, daily peaks."""

    base: TokenRates
    tiers: tuple[Tier, ...] = ()
    peaks: tuple[Peak, ...] = ()
    from_date: str = ""


@dataclass(frozen=True, slots=True)
class DataPolicy:
    """A provider's published data policy. None: unknown. `retention` is text such as "30 days"."""

    api_training: bool | None = None
    prompt_logging: bool | None = None
    retention: str = ""
    soc2: int | None = None  # 1 or 2, the type
    iso27001: bool | None = None
    gdpr: bool | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider. `credential` names environment variables that may hold its keys, in order; LLM_<ID>_API_KEY comes
    first. `key_prefixes` are beginnings of its keys (key_prefixes.py).

    `protocol` is a name in `providers/`. `address` may contain `{region}`, `{project}`, `{resource}` …, filled from
    `settings` (name → environment variables, see environment_credentials.py). `headers` are fixed request headers.
    `auth` is how the key is sent: "bearer", "sigv4", "google-oauth", "none", "query:<parameter>", or else a header's
    name. `identity` is the kind of workload identity that can replace the key ("": none; `catalogue/entries.py`).
    `search_price` (as in TokenRates) is the price of a web search for mappings without their own price,
    `tool_prices` those of other tools that the provider runs, by the names of TokenRates, and `tool_prices_of` those
    for models by a pattern. `tool_models`: its tools call further models of it. `session_header` is the header in which
    it takes the name of a session, whose requests it sends to the server with their cache. `responses_tools` are the
    tool types that its Responses API accepts, if not all. `cancellation`: closing the connection of a streamed
    response ends generation and billing; `plain_cancellation`: the same for responses without streaming. Other
    responses are read to their end for the usage. `version_path` is the end of `address` that an operator's base URL
    may omit ("" in a file: the last segment of `address` if it is a version such as /v1). `deprecated_models` and
    `deactivated_models` are model → date, for its mappings without their own dates. `batch_api` is its API for batches
    ("": none; BATCH_APIS), `batch_multiplier` the multiplier of token prices there, `batch_cache_multiplier` that of
    cached input if it differs, and `batch_models` a pattern of the models that it takes ("": all). `files_api` is its
    API for files that requests name ("": none; FILES_APIS), `upload_mb` the size of the largest file there that a
    request may name; `inline_mb` is the size of the largest request with the contents of files in it (0: unknown).
    `background_api` is its API for responses that it makes in the background ("": none; BACKGROUND_APIS). `sources` is
    its name in the open data sets (read by build.py only)."""

    id: str
    name: str
    protocol: str
    address: str = ""
    credential: tuple[str, ...] = ()
    key_prefixes: tuple[str, ...] = ()
    key_required: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    quirks: tuple[str, ...] = ()
    priority: float = 1.0
    streaming: bool = True
    cancellation: bool = False
    plain_cancellation: bool = False
    regions: tuple[str, ...] = ()
    service_tiers: dict[str, str] = field(default_factory=dict)  # tier → multiplier of token prices
    data_policy: DataPolicy = DataPolicy()
    headquarters: str = ""
    auth: str = "bearer"
    identity: str = ""
    version_path: str = ""
    search_price: int | None = None
    tool_prices: dict[str, Any] = field(default_factory=dict)
    tool_prices_of: dict[str, Any] = field(default_factory=dict)
    tool_models: bool = False
    session_header: str = ""
    responses_tools: tuple[str, ...] = ()
    batch_api: str = ""
    batch_multiplier: str = ""
    batch_cache_multiplier: str = ""
    batch_models: str = ""
    files_api: str = ""
    upload_mb: int = 0
    inline_mb: int = 0
    background_api: str = ""
    deprecated_models: dict[str, str] = field(default_factory=dict)
    deactivated_models: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


@with_fields(FLAGS, bool, False)
@dataclass(frozen=True, slots=True)
class Mapping:
    """One model at one provider. Limits of 0 are unknown. Dates are "YYYY-MM-DD" or "".

    `service_tiers` maps each offered tier to the decimal multiplier of its token prices; `batch_multiplier` is that of
    the provider's batch API ("": it takes no lines of this model), and `batch_cache_multiplier` that of cached input
    there, if it differs. `responses_api`: it is also served by OpenAI's Responses API, besides the protocol of its
    entry. `formats` are its audio output formats; `image_sizes`, `image_ratios` and `image_qualities` are the values
    that it accepts for images (() = any); `image_tokens` is the maximum token count of an image by `quality/size`;
    `max_inputs` is the number of texts, images or documents that one call accepts. `fine_tune_prices` are those of
    models that are fine-tuned from it. `key` is provider/model, with :region if it has one. `steady` are the rates of
    every request, None if dates, tiers or peaks decide or there is no price."""

    provider: str
    model: str
    external_id: str
    region: str = ""
    protocol: str = ""  # "" = the provider's
    address: str = ""
    operations: tuple[str, ...] = ("chat",)
    prices: tuple[Prices, ...] = ()
    fine_tune_prices: tuple[Prices, ...] = ()
    context_length: int = 0
    max_output: int = 0
    max_temperature: float = 0.0
    min_cacheable_tokens: int = 0
    streaming: bool = True
    vision: bool = False
    audio: bool = False
    documents: bool = False
    tools: bool = False
    parallel_tool_calls: bool = False
    reasoning: bool = False
    reasoning_efforts: tuple[str, ...] = ()
    reasoning_modes: tuple[str, ...] = ()
    reasoning_max_tokens: bool = False
    json_output: bool = False
    json_output_schema: bool = False
    web_search: bool = False
    responses_api: bool = False
    supports_n: bool = False
    max_n: int = 0
    max_streamed_n: int = 0
    realtime: bool = False
    service_tiers: dict[str, str] = field(default_factory=dict)
    batch_multiplier: str = ""
    batch_cache_multiplier: str = ""
    supported_parameters: tuple[str, ...] = ()
    supported_tool_choices: tuple[str, ...] = ()
    video_sizes: tuple[str, ...] = ()
    video_durations: tuple[int, ...] = ()
    video_audio: bool = False
    video_without_audio: bool = False
    voices: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    image_sizes: tuple[str, ...] = ()
    image_ratios: tuple[str, ...] = ()
    image_qualities: tuple[str, ...] = ()
    image_tokens: dict[str, int] = field(default_factory=dict)
    max_inputs: int = 0
    quirks: tuple[str, ...] = ()
    stability: Stability = "stable"
    deprecated: str = ""
    deactivated: str = ""
    source: str = ""
    price_version: str = ""
    checked: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    key: str = field(init=False, repr=False, compare=False)
    steady: TokenRates | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Computed once here because each request reads them several times.
        key = f"{self.provider}/{self.model}"
        object.__setattr__(self, "key", f"{key}:{self.region}" if self.region else key)
        steady = None
        if len(self.prices) == 1 and not (self.prices[0].tiers or self.prices[0].peaks):
            steady = self.prices[0].base
        object.__setattr__(self, "steady", steady)

    @property
    def priced(self) -> bool:
        return any(prices.base.priced for prices in self.prices)

    def choices_a_call(self, streamed: bool) -> int:
        """Return the maximum number of choices of one chat call; 0 = any number."""
        if not self.supports_n:
            return 1
        return (self.max_streamed_n if streamed else 0) or self.max_n


@dataclass(frozen=True, slots=True)
class Model:
    id: str
    name: str = ""
    family: str = ""
    description: str = ""
    aliases: tuple[str, ...] = ()
    released: str = ""
    context_length: int = 0
    max_output: int = 0
    input_modalities: tuple[str, ...] = ("text",)
    output_modalities: tuple[str, ...] = ("text",)
    tokenizer: str = "GPT"
    free: bool = False
    stability: Stability = "stable"
    deprecated: str = ""
    deactivated: str = ""
    max_video_seconds: int = 0
    mappings: tuple[Mapping, ...] = ()
