"""Base types that all operations share: the request with its requirements and options, and the result."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, get_args, get_type_hints

from msgspec import Struct, structs

from gateway.neutral.hosted_uses import NO_USES, HostedUse
from gateway.neutral.usage import Units, Usage
from gateway.runtime.threads import compute


class Feature(Struct, frozen=True):
    """A feature of a mapping that a request may require: the row of one yes-or-no field of Requirements.

    `reason` names it in plans, records and errors, `field` the field of chat completions that requires it, and `flag`
    the field of a catalogue mapping that offers it ("": every mapping, unless its protocol has no field for it). An
    `optional` feature is a preference: a mapping without it gets the request without it, and the caller gets the
    warning `dropped`, with the mapping in place of {} ("": engine/fitting.py writes it).
    """

    reason: str
    field: str = ""
    flag: str = ""
    optional: bool = False
    dropped: str = ""


# Marks fields that are no part of a cached plan's key. Sizes count through the plan's ceiling.
UNPLANNED = object()


def marks_of(kind: type[Struct]) -> dict[str, tuple[Any, ...]]:
    """Return the annotations of each field of a struct."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: getattr(hints[name], "__metadata__", ()) for name in kind.__struct_fields__}


def planned_fields(kind: type[Struct]) -> tuple[str, ...]:
    """Return the fields of a struct that are part of a cached plan's key."""
    return tuple(name for name, marks in marks_of(kind).items() if UNPLANNED not in marks)


# Requirements, options and requests are created for each request: a struct costs a fraction of a data class.
class Requirements(Struct, frozen=True, gc=False):
    """Facts for routing and admission that are known without decoding the conversation.

    `parameters` are the capabilities (neutral/parameters.py) that the request's parameters need. `prompt_bytes` is the
    size of all input text, `longest_input` that of the largest text if they are separate inputs (0: a single prompt);
    `messages` is their number; `media` is the number of images and files. `earlier_images`: messages of the assistant
    have images; those of other messages need `vision`.

    Provider tools that are offered but not forced can be left out: `search_offered` marks web search, and `hosted`
    names the only dialect that has the others; `hosted_uses` is what it uses beside its model. `units` is None if text
    tokens determine the whole cost.

    For media that were counted (gateway/media/token_counting.py), `media_tokens` is the maximum token count,
    `likely_media_tokens` the usual count, and `unseen_media` the number of media that only the provider can see.
    """

    stream: Annotated[bool, Feature("streaming", "stream", "streaming")] = False
    tools: Annotated[bool, Feature("tools", "tools", "tools")] = False
    vision: Annotated[bool, Feature("vision", "messages", "vision")] = False
    earlier_images: Annotated[
        bool,
        Feature(
            *("images of earlier answers", "messages", "vision"),
            optional=True,
            dropped="messages: images of earlier answers were left out: {} reads no images.",
        ),
    ] = False
    audio: Annotated[bool, Feature("audio", "messages", "audio")] = False
    documents: Annotated[bool, Feature("documents", "messages", "documents")] = False
    json_object: Annotated[bool, Feature("json", "response_format", "json_output")] = False
    json_schema: Annotated[bool, Feature("json schema", "response_format", "json_output_schema")] = False
    reasoning: Annotated[bool, Feature("reasoning", "", "reasoning", optional=True)] = False
    effort: str = ""
    web_search: Annotated[bool, Feature("web search", "tools", "web_search")] = False
    image_output: Annotated[
        bool,
        Feature(
            "image output", "image_config", optional=True, dropped="image_config was left out: {} makes no images."
        ),
    ] = False
    parameters: frozenset[str] = frozenset()
    n: int = 1
    max_tokens: int | None = None
    prompt_bytes: Annotated[int, UNPLANNED] = 0
    messages: Annotated[int, UNPLANNED] = 0
    media: Annotated[int, UNPLANNED] = 0
    forced_tool: str = ""  # a tool_choice mode other than auto and none
    vendor_only: str = ""  # dialect of a part that no other vendor understands
    own_parts: str = ""  # dialect of parts of earlier turns that other vendors get as text, or not at all
    own_members: Annotated[str, UNPLANNED] = ""  # dialect of members beside parts that only its vendor reads
    cache_marks: Annotated[
        bool,
        Feature("cache marks", optional=True, dropped="cache_control was left out: {} has no cache marks."),
    ] = False
    search_offered: bool = False
    hosted: str = ""
    hosted_uses: tuple[HostedUse, ...] = NO_USES
    # The caller requests encrypted reasoning and sends it back with the next turn.
    keeps_reasoning: Annotated[bool, UNPLANNED] = False
    longest_input: Annotated[int, UNPLANNED] = 0
    units: Annotated[Units | None, UNPLANNED] = None
    media_tokens: Annotated[int, UNPLANNED] = 0
    likely_media_tokens: Annotated[int, UNPLANNED] = 0
    unseen_media: Annotated[int, UNPLANNED] = 0


# The rows of Requirements, by field.
FEATURES: dict[str, Feature] = {
    name: mark for name, marks in marks_of(Requirements).items() for mark in marks if isinstance(mark, Feature)
}
TIERS_JOINED = "+"  # separates the names of service tiers if a request has several


MAX_MODELS = 8  # further models that a request may name


class Mistake(NamedTuple):
    """An invalid value of a preference: an error if the preference has an effect, else a warning."""

    field: str
    message: str
    param: str


class ProviderPreferences(Struct, frozen=True):
    """The caller's choice among the providers of a model, by provider names.

    `order` are tried first, in this order; all others than `only`, and those in `ignore`, are left out. Without
    `allow_fallbacks`, only the providers in `order` serve, or without an order only the first. `unread` are members
    that have no effect here.
    """

    order: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    allow_fallbacks: bool = True
    unread: tuple[str, ...] = ()


# The preference among the providers of a model; "" is that of the project.
Strategy = Literal["", "auto", "price", "throughput", "latency"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)[1:]


class Options(Struct, frozen=True):
    """Options of one request that the gateway itself handles. `mistakes` are the invalid values of its preferences.

    `models` are tried in order when the requested model cannot serve.
    """

    routing: Strategy = ""
    free_models_only: bool = False
    no_reasoning: bool = False
    service_tier: str = ""
    session: Annotated[str, UNPLANNED] = ""  # prompt_cache_key, else user: the fallback for sticky sessions
    prompt_cache_key: Annotated[str, UNPLANNED] = ""
    prompt_cache_retention: Annotated[str, UNPLANNED] = ""
    # The name of the session in requests to providers: a keyed digest, for a request without prompt_cache_key.
    session_cache_key: Annotated[str, UNPLANNED] = ""
    # Treatment of cache marks in a native body, and the lifetime of those that are added.
    cache_marks: Annotated[Literal["", "automatic", "disabled"], UNPLANNED] = ""
    cache_ttl: Annotated[Literal["", "5m", "1h"], UNPLANNED] = ""
    heal: Annotated[bool, UNPLANNED] = False  # plugins: response-healing
    hides_reasoning: Annotated[bool, UNPLANNED] = False  # the caller requested no reasoning, so none is returned
    image_config: Annotated[dict[str, Any] | None, UNPLANNED] = None
    extra: Annotated[dict[str, Any], UNPLANNED] = {}  # known fields that only one provider supports
    mistakes: tuple[Mistake, ...] = ()
    models: tuple[str, ...] = ()
    provider: ProviderPreferences | None = None

    def with_changes(self, **changes: Any) -> "Options":
        """Return the options with these members changed."""
        return structs.replace(self, **changes)


NO_OPTIONS = Options()


class Native(Struct):
    """The caller's own body, validated and without unknown and gateway-only fields, for upstreams of one dialect.

    `body` maps top-level field names to JSON-encodable values; it is never changed in place. It has no model, stream
    or gateway-only field. `whole`: it may contain more than the neutral form, so two requests with equal neutral forms
    may differ. `instructed`: instructions are among the messages, in a dialect that has a separate field for them.
    `adapted`: the neutral form was changed since, which codecs that mend a native body apply to it.
    """

    dialect: str
    body: dict[str, Any]
    whole: bool = False
    instructed: bool = False
    adapted: bool = False


class Request(Struct, eq=False):
    """A request of any operation. `requested_model` is the model name as the caller wrote it.

    `decode` builds the input in the operation's neutral form; `content()` calls it at most once. `native` is the
    caller's own body if an upstream may use the same format. `large`: the body is processed in a thread. `kept`: its
    surface needs the input until the answer ends. `warnings` describe which parts of the caller's request are missing
    here.
    """

    operation: ClassVar[str] = ""

    requested_model: str
    requirements: Requirements
    decode: Callable[[], Any]
    options: Options = NO_OPTIONS
    native: Native | None = None
    user: str = ""
    large: bool = False
    kept: bool = False
    warnings: tuple[str, ...] = ()
    _decoded: Any = None

    def content(self) -> Any:
        """Return the input, decoded on first use. Raise InvalidRequest for invalid contents."""
        if self._decoded is None:
            if self.large:
                self._decoded = compute(self._read)
            else:
                self._decoded = self._read()
        return self._decoded

    def _read(self) -> Any:
        return self.decode()


class Result(Protocol):
    """A complete result of any operation: the members that billing, logs and responses need."""

    usage: Usage | None
    model: str  # the model name that the upstream reports
    upstream_id: str
    service_tier: str
    warnings: tuple[str, ...]
    large: bool  # processed in a thread

    @property
    def finish(self) -> str: ...

    def text_length(self) -> int:
        """Return the number of characters written, for an estimate if the upstream reports no usage."""
        ...


@dataclass(slots=True, unsafe_hash=True, kw_only=True)
class WholeResult:
    """The members that the results of operations other than chat share: Result's, for a result without text."""

    usage: Usage | None = None
    model: str = ""
    upstream_id: str = ""
    service_tier: str = ""
    warnings: tuple[str, ...] = ()
    large: bool = field(default=False, repr=False, compare=False)

    @property
    def finish(self) -> str:
        return "stop"

    def text_length(self) -> int:
        """Return 0: usage that the upstream does not report is taken from the request's Units."""
        return 0


# Names that stand for a choice among models. AUTO and SMART are valid with and without the product's prefix.

OWN_PREFIX = "llmgateway/"
AUTO = "auto"
SMART = "smart"
DYNAMIC = "dynamic/"  # before the name of a route

# The mark of a long context at the end of a model's name, such as "[1m]": agents write it for themselves, but some of
# their requests carry it. It is no part of the name.

MARK_END = "]"
MARKS = ("[1m]", "[2m]", "[1M]", "[2M]")
MARK_LENGTH = 4


def unmarked(name: str) -> str:
    """Return a model's name without the mark, also if it was added several times."""
    if not name.endswith(MARK_END):
        return name
    end = len(name)
    # By position, because a copy for each of many marks would take quadratic time.
    while name.startswith(MARKS, end - MARK_LENGTH, end):
        end -= MARK_LENGTH
        while end and name[end - 1].isspace():
            end -= 1
    return name[:end]


def is_marked(name: str) -> bool:
    """Return whether a model's name has the mark."""
    return name.endswith(MARKS)
