"""Base types that all operations share: the request with its requirements and options, and the result."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from msgspec import Struct, structs

from gateway.neutral.usage import Units, Usage
from gateway.runtime.threads import compute


# Requirements, options and requests are created for each request: a struct costs a fraction of a data class.
class Requirements(Struct, frozen=True, gc=False):
    """Facts for routing and admission that are known without decoding the conversation.

    `prompt_bytes` is the size of all input text, `longest_input` that of the largest text if they are separate inputs
    (0: a single prompt); `messages` is their number; `media` is the number of images and files.

    Provider tools that are offered but not forced can be left out: `search_offered` marks web search, and `hosted`
    names the only dialect that has the others. `units` is None if text tokens determine the whole cost.

    For media that were counted (gateway/media/token_counting.py), `media_tokens` is the maximum token count,
    `likely_media_tokens` the usual count, and `unseen_media` the number of media that only the provider can see.
    """

    stream: bool = False
    tools: bool = False
    parallel_tools: bool = False
    vision: bool = False
    audio: bool = False
    documents: bool = False
    json_object: bool = False
    json_schema: bool = False
    reasoning: bool = False
    effort: str = ""
    web_search: bool = False
    image_output: bool = False
    n: int = 1
    max_tokens: int | None = None
    prompt_bytes: int = 0
    messages: int = 0
    media: int = 0
    forced_tool: str = ""  # a tool_choice mode other than auto and none
    verbosity: bool = False
    vendor_only: str = ""  # dialect of a part that no other vendor understands
    penalties: bool = False
    cache_marks: bool = False
    search_offered: bool = False
    hosted: str = ""
    keeps_reasoning: bool = False  # the caller requests encrypted reasoning and sends it back with the next turn
    longest_input: int = 0
    units: Units | None = None
    media_tokens: int = 0
    likely_media_tokens: int = 0
    unseen_media: int = 0


TIERS_JOINED = "+"  # separates the names of service tiers if a request has several


class Mistake(NamedTuple):
    """An invalid value of a preference: an error if the preference has an effect, else a warning."""

    field: str
    message: str
    param: str


class Options(Struct, frozen=True):
    """Options of one request that the gateway itself handles. `mistakes` are the invalid values of its preferences."""

    routing: Literal["", "auto", "price", "throughput", "latency"] = ""
    free_models_only: bool = False
    no_reasoning: bool = False
    service_tier: str = ""
    session: str = ""  # prompt_cache_key, else user: the fallback for sticky sessions
    prompt_cache_key: str = ""
    prompt_cache_retention: str = ""
    cache_marks: Literal["", "automatic", "disabled"] = ""  # treatment of cache marks in a native body
    heal: bool = False  # plugins: response-healing
    hides_reasoning: bool = False  # the caller requested no reasoning, so none is returned
    image_config: dict[str, Any] | None = None
    extra: dict[str, Any] = {}  # known fields that only one provider supports
    mistakes: tuple[Mistake, ...] = ()

    def with_changes(self, **changes: Any) -> "Options":
        """Return the options with these members changed."""
        return structs.replace(self, **changes)


NO_OPTIONS = Options()


class Native(Struct):
    """The caller's own body, validated and without unknown and gateway-only fields, for upstreams of one dialect.

    `body` maps top-level field names to JSON-encodable values; it is never changed in place. It has no model, stream
    or gateway-only field. `whole`: it may contain more than the neutral form, so two requests with equal neutral forms
    may differ.
    """

    dialect: str
    body: dict[str, Any]
    whole: bool = False


class Request(Struct, eq=False):
    """A request of any operation. `requested_model` is the model name as the caller wrote it.

    `decode` builds the input in the operation's neutral form; `content()` calls it at most once. `native` is the
    caller's own body if an upstream may use the same format. `large`: the body is processed in a thread. `warnings`
    describe which parts of the caller's request are missing here.
    """

    operation: ClassVar[str] = ""

    requested_model: str
    requirements: Requirements
    decode: Callable[[], Any]
    options: Options = NO_OPTIONS
    native: Native | None = None
    user: str = ""
    large: bool = False
    warnings: tuple[str, ...] = ()
    _decoded: Any = None

    def content(self) -> Any:
        """Return the input, decoded on first use. Raise InvalidRequest for invalid contents."""
        if self._decoded is None:
            if self.large:
                self._decoded = compute(self.decode)
            else:
                self._decoded = self.decode()
        return self._decoded


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
