"""The units that providers bill: one row each.

Everything that differs only by unit follows from these rows when modules load: the counts of Usage, the prices of the
catalogue and their checks, the components of a charge, upper bounds, the figures of usage reports, the pricing objects
and cost details of responses, and the table of prices in docs/catalogue.md.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct, defstruct

S = TypeVar("S", bound=Struct)


class Figure(NamedTuple):
    """A figure of usage reports: its column in the rollups, and its member of `/activity`, which is `divisor` times
    smaller. Amounts of money have no divisor, because they are shown in US dollars."""

    column: str
    member: str
    divisor: int = 1


class BilledTool(NamedTuple):
    """A tool of the Responses API that the provider runs. `type` is its name in requests; answers contain items of the
    type `item` with ids that begin with `prefix`."""

    type: str
    item: str
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit that providers bill.

    `price` is its key in the catalogue's prices, `component` its field in a charge, and `count` its field in Usage ("":
    it is not counted in Usage). `billed` is how its cost is computed:

    - "input", "output": tokens of the prompt and of the answer, multiplied by the service tier;
    - "call": the price of each call;
    - "each": the price times the count;
    - "length": the price of an hour times the count in milliseconds;
    - "table": a price that depends on the size, quality or resolution;
    - "model": the count times the price of the model that the provider's tool called.

    `media` marks tokens of sound and images, and `included_in` is the count that includes its count. `tool` is the
    provider's tool that it counts; it and units `by_provider` have one price at a provider, whatever model uses the
    tool. The price of a `derived` one follows from those of models, so lists of prices leave it out. `maximum` is how
    often one answer may use it if the caller sets no limit, or the tokens of one use.

    `listed` are the pricing objects of the model list that always contain the price, "0" if there is none; the others
    contain it if there is one. `detail` is the member of `cost_details` to which its cost is added; the member is
    missing if it is 0 and not `always_detailed`. `figures` and `cost` are the figures of reports to which its count and
    its cost are added. They come from columns of usage rows if it is `in_columns`, otherwise from their `extra`.
    `meaning` and `absent` describe it in docs/catalogue.md: what the price is for, and the price that replaces a
    missing one.
    """

    price: str
    component: str
    count: str = ""
    billed: Literal["input", "output", "call", "each", "length", "table", "model"]
    media: bool = False
    included_in: str = ""
    tool: BilledTool | None = None
    by_provider: bool = False
    derived: bool = False
    maximum: int = 0
    listed: Literal["everywhere", "models", ""] = ""
    detail: str = ""
    always_detailed: bool = False
    figures: tuple[Figure, ...] = ()
    cost: Figure | None = None
    in_columns: bool = False
    meaning: str
    absent: str = ""


INPUT_TOKENS = Figure("input_tokens", "inputTokens")
OUTPUT_TOKENS = Figure("output_tokens", "outputTokens")
CACHED_TOKENS = Figure("cached_tokens", "cachedTokens")
CACHE_WRITE_TOKENS = Figure("cache_write_tokens", "cacheWriteTokens")
SEARCHES = Figure("searches", "searchCount")
CODE_SESSIONS = Figure("code_sessions", "codeSessionCount")
INPUT_COST = Figure("input_nusd", "inputCost")
OUTPUT_COST = Figure("output_nusd", "outputCost")
CACHE_WRITE_COST = Figure("cache_write_nusd", "cacheWriteInputCost")
AUDIO_INPUT_COST = Figure("audio_input_nusd", "audioInputCost")
IMAGE_INPUT_COST = Figure("image_input_nusd", "imageInputCost")
IMAGE_OUTPUT_COST = Figure("image_output_nusd", "imageOutputCost")
VIDEO_OUTPUT_COST = Figure("video_output_nusd", "videoOutputCost")
CODE_COST = Figure("code_nusd", "codeCost")
SEARCH_COST = Figure("search_nusd", "searchCost")

# fmt: off
UNITS: tuple[Unit, ...] = (
    Unit(
        price="prompt", component="input", count="input", billed="input",
        listed="everywhere", detail="input_cost", always_detailed=True,
        figures=(INPUT_TOKENS,), cost=INPUT_COST, in_columns=True,
        meaning="token in",
    ),
    Unit(
        price="completion", component="output", count="output", billed="output",
        listed="everywhere", detail="output_cost", always_detailed=True,
        figures=(OUTPUT_TOKENS,), cost=OUTPUT_COST, in_columns=True,
        meaning="token out, reasoning included",
    ),
    Unit(
        price="image", component="image_input", count="input_image", billed="input", media=True,
        listed="everywhere", detail="image_input_cost", always_detailed=True, figures=(INPUT_TOKENS,),
        cost=IMAGE_INPUT_COST,
        meaning="token of an image in (for models of videos: image that is read)", absent="prompt",
    ),
    Unit(
        price="input_audio", component="audio_input", count="input_audio", billed="input", media=True,
        listed="everywhere", detail="audio_input_cost", always_detailed=True, figures=(INPUT_TOKENS,),
        cost=AUDIO_INPUT_COST,
        meaning="token of sound in", absent="prompt",
    ),
    Unit(
        price="input_audio_cache_read", component="audio_cached_input", count="input_audio_cached",
        billed="input", media=True,
        listed="everywhere", detail="audio_input_cost", always_detailed=True,
        figures=(INPUT_TOKENS, CACHED_TOKENS), cost=AUDIO_INPUT_COST,
        meaning="token of sound from the provider's cache", absent="input_audio",
    ),
    Unit(
        price="output_audio", component="audio_output", count="output_audio", billed="output", media=True,
        listed="everywhere", detail="audio_output_cost", always_detailed=True, figures=(OUTPUT_TOKENS,),
        cost=Figure("audio_output_nusd", "audioOutputCost"),
        meaning="token of sound out", absent="completion",
    ),
    Unit(
        price="input_cache_read", component="cached_input", count="cache_read", billed="input",
        listed="everywhere", detail="cached_input_cost", always_detailed=True,
        figures=(INPUT_TOKENS, CACHED_TOKENS), cost=Figure("cached_nusd", "cachedInputCost"), in_columns=True,
        meaning="token from the provider's cache", absent="prompt",
    ),
    Unit(
        price="input_cache_write", component="cache_write", count="cache_write", billed="input",
        listed="everywhere", detail="cache_write_input_cost", always_detailed=True,
        figures=(INPUT_TOKENS, CACHE_WRITE_TOKENS), cost=CACHE_WRITE_COST, in_columns=True,
        meaning="token into the provider's cache", absent="prompt",
    ),
    Unit(
        price="input_cache_write_1h", component="cache_write_1h", count="cache_write_1h", billed="input",
        listed="everywhere", detail="cache_write_input_cost", always_detailed=True,
        figures=(INPUT_TOKENS, CACHE_WRITE_TOKENS), cost=CACHE_WRITE_COST, in_columns=True,
        meaning="token into the cache for an hour (OpenAI: 12 hours)", absent="input_cache_write",
    ),
    Unit(
        price="ocr_page", component="ocr", count="pages", billed="each",
        listed="everywhere", detail="ocr_cost", figures=(Figure("pages", "pageCount"),),
        cost=Figure("page_nusd", "pageCost"),
        meaning="page of a document that is read",
    ),
    Unit(
        price="annotated_page", component="ocr", count="annotated_pages", billed="each",
        detail="ocr_cost", cost=Figure("page_nusd", "pageCost"),
        meaning="page that is annotated, in addition to ocr_page",
    ),
    Unit(
        price="image_read", component="image_input", count="images_read", billed="each",
        detail="image_input_cost", always_detailed=True, cost=IMAGE_INPUT_COST,
        meaning="image that an image model reads, where images are not billed by tokens",
    ),
    Unit(
        price="character", component="characters", count="characters", billed="each",
        detail="character_input_cost", figures=(Figure("characters", "characterCount"),),
        cost=Figure("character_nusd", "characterCost"),
        meaning="character that is spoken",
    ),
    Unit(
        price="input_audio_hour", component="audio_seconds", count="audio_ms", billed="length",
        listed="everywhere", detail="audio_duration_cost",
        figures=(Figure("audio_ms", "audioSeconds", 1000),), cost=AUDIO_INPUT_COST,
        meaning="hour of sound in",
    ),
    Unit(
        price="request", component="request", billed="call",
        listed="everywhere", detail="request_cost", always_detailed=True,
        cost=Figure("request_nusd", "requestCost"),
        meaning="call",
    ),
    Unit(
        price="output_image", component="image_output", count="output_image", billed="output", media=True,
        detail="image_output_cost", always_detailed=True, figures=(OUTPUT_TOKENS,), cost=IMAGE_OUTPUT_COST,
        meaning="token of an image out", absent="completion",
    ),
    Unit(
        price="web_search", component="web_search", count="searches", billed="each",
        maximum=5, listed="models", detail="web_search_cost", always_detailed=True, figures=(SEARCHES,),
        cost=SEARCH_COST,
        meaning="web search",
    ),
    Unit(
        price="file_search", component="file_search", count="file_searches", billed="each",
        tool=BilledTool("file_search", "file_search_call", "fs"), maximum=5, detail="file_search_cost",
        figures=(SEARCHES,), cost=SEARCH_COST,
        meaning="search of the caller's files at the provider",
    ),
    Unit(
        price="web_search_preview", component="web_search", count="preview_searches", billed="each", by_provider=True,
        detail="web_search_cost", always_detailed=True, figures=(SEARCHES,), cost=SEARCH_COST,
        meaning="web search with the older tool web_search_preview",
    ),
    Unit(
        price="enterprise_search", component="web_search", count="enterprise_searches", billed="each", by_provider=True,
        detail="web_search_cost", always_detailed=True, figures=(SEARCHES,), cost=SEARCH_COST,
        meaning="web search under an enterprise's terms (tool `enterpriseWebSearch`)",
    ),
    Unit(
        price="map_search", component="web_search", count="map_searches", billed="each", by_provider=True,
        detail="web_search_cost", always_detailed=True, figures=(SEARCHES,), cost=SEARCH_COST,
        meaning="answer with results of a map service (tool `googleMaps`)",
    ),
    Unit(
        price="retrieval", component="file_search", count="retrievals", billed="each", by_provider=True,
        detail="file_search_cost", figures=(SEARCHES,), cost=SEARCH_COST,
        meaning="answer with results of the account's own data (tool `retrieval`)",
    ),
    Unit(
        price="tool_call", component="code", count="tool_calls", billed="each", by_provider=True,
        detail="code_cost", figures=(CODE_SESSIONS,), cost=CODE_COST,
        meaning="call of another tool that the provider bills by calls",
    ),
    Unit(
        price="code_session", component="code", count="code_sessions", billed="each",
        tool=BilledTool("code_interpreter", "code_interpreter_call", "ci"), maximum=1,
        detail="code_cost", figures=(CODE_SESSIONS,),
        cost=CODE_COST,
        meaning="container in which code ran: a session of each gigabyte, or each five minutes of a container",
    ),
    Unit(
        price="image_tool_text", component="image_input", count="image_tool_text", billed="model", maximum=4_096,
        detail="image_input_cost", always_detailed=True, figures=(INPUT_TOKENS,), cost=IMAGE_INPUT_COST,
        meaning="token of text that the tool image_generation read, by its model",
    ),
    Unit(
        price="image_tool_image", component="image_input", count="image_tool_image", billed="model", maximum=16_384,
        detail="image_input_cost", always_detailed=True, figures=(INPUT_TOKENS,), cost=IMAGE_INPUT_COST,
        meaning="token of an image that the tool image_generation read, by its model",
    ),
    Unit(
        price="image_tool_output", component="image_output", count="image_tool_output", billed="model", maximum=6_240,
        detail="image_output_cost", always_detailed=True, figures=(OUTPUT_TOKENS,), cost=IMAGE_OUTPUT_COST,
        meaning="token of an image that the tool image_generation made, by its model",
    ),
    Unit(
        price="tool_model_input", component="tool_model_read", count="tool_model_input", billed="model",
        derived=True, detail="tool_model_cost", figures=(INPUT_TOKENS,), cost=INPUT_COST,
        meaning="token in of a model that the provider's tool calls, by that model",
    ),
    Unit(
        price="tool_model_cache_read", component="tool_model_read", count="tool_model_cache_read", billed="model",
        derived=True, detail="tool_model_cost", figures=(INPUT_TOKENS, CACHED_TOKENS),
        cost=INPUT_COST,
        meaning="token from the cache of a model that the provider's tool calls, by that model",
    ),
    Unit(
        price="tool_model_cache_write", component="tool_model_read", count="tool_model_cache_write", billed="model",
        derived=True, detail="tool_model_cost", figures=(INPUT_TOKENS, CACHE_WRITE_TOKENS),
        cost=INPUT_COST,
        meaning="token into the cache of a model that the provider's tool calls, by that model",
    ),
    Unit(
        price="tool_model_cache_write_1h", component="tool_model_read", count="tool_model_cache_write_1h",
        billed="model", derived=True, detail="tool_model_cost",
        figures=(INPUT_TOKENS, CACHE_WRITE_TOKENS), cost=INPUT_COST,
        meaning="token into the cache for an hour of a model that the provider's tool calls, by that model",
    ),
    Unit(
        price="tool_model_output", component="tool_model_written", count="tool_model_output", billed="model",
        derived=True, detail="tool_model_cost", figures=(OUTPUT_TOKENS,), cost=OUTPUT_COST,
        meaning="token out of a model that the provider's tool calls, by that model",
    ),
    Unit(
        price="internal_reasoning", component="reasoning", count="reasoning", billed="output",
        included_in="output",
        listed="models", detail="output_cost", always_detailed=True,
        figures=(Figure("reasoning_tokens", "reasoningTokens"),), cost=OUTPUT_COST, in_columns=True,
        meaning="reasoning token, if priced separately", absent="completion",
    ),
    Unit(
        price="thinking_completion", component="output", billed="output",
        detail="output_cost", always_detailed=True, cost=OUTPUT_COST, in_columns=True,
        meaning="token out of an answer with reasoning, if such answers have a separate price",
        absent="completion",
    ),
    Unit(
        price="per_second", component="video_output", count="video_ms", billed="table",
        listed="everywhere", detail="video_output_cost", figures=(Figure("video_ms", "videoSeconds", 1000),),
        cost=VIDEO_OUTPUT_COST,
        meaning="second of video made, by resolution",
    ),
    Unit(
        price="per_image", component="images", count="images", billed="table",
        listed="everywhere", detail="image_output_cost", always_detailed=True,
        figures=(Figure("images", "imageCount"),), cost=IMAGE_OUTPUT_COST,
        meaning="image made, by quality and size",
    ),
    Unit(
        price="per_video_token", component="video_output", billed="table",
        detail="video_output_cost", cost=VIDEO_OUTPUT_COST,
        meaning="token of video made, by resolution",
    ),
)
# fmt: on

COUNTS = tuple(unit.count for unit in UNITS if unit.count)
COMPONENTS = tuple(dict.fromkeys(unit.component for unit in UNITS))
PROVIDER_TOOLS = {unit.tool: unit for unit in UNITS if unit.tool}
# The units of tools that a provider has one price for, whatever model of it runs the tool.
TOOL_UNITS = tuple(unit for unit in UNITS if unit.tool or unit.by_provider or unit.billed == "model")
DERIVED_PRICES = frozenset(unit.price for unit in UNITS if unit.derived)
PRICE_OF_COUNT = {unit.count: unit.price for unit in UNITS if unit.count}
TOKEN_COUNTS = tuple(unit.count for unit in UNITS if unit.count and unit.billed in ("input", "output"))
# Counts of text; all others are of media, tools and other units.
TEXT_COUNTS = tuple(unit.count for unit in UNITS if unit.count in TOKEN_COUNTS and not unit.media)


def prices_of(*billed: str, media: bool | None = None) -> tuple[str, ...]:
    """Return the price keys of the units that are billed in one of these ways; `media` limits them to units with that
    value."""
    return tuple(unit.price for unit in UNITS if unit.billed in billed and media in (None, unit.media))


def counts_of(billed: str) -> tuple[str, ...]:
    """Return the disjoint counts of the units that are billed in this way."""
    return tuple(unit.count for unit in UNITS if unit.count and unit.billed == billed and not unit.included_in)


def with_counters(names: Iterable[str]) -> Callable[[type[S]], type[S]]:
    """Return a decorator that adds to a struct an integer, 0 by default, for each of the names that it does not
    declare. A struct declares the names that code reads as attributes."""

    def extend(declared: type[S]) -> type[S]:
        fields = [(name, int, 0) for name in names if name not in declared.__struct_fields__]
        about = {"__doc__": declared.__doc__, "__qualname__": declared.__qualname__}
        return defstruct(declared.__name__, fields, bases=(declared,), namespace=about, module=declared.__module__)  # type: ignore[return-value]

    return extend
