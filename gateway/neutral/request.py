"""What requests of all operations share: the model that is asked for, what it must be able to do, and wishes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from msgspec import Struct, structs

from gateway.neutral.usage import Units, Usage
from gateway.runtime.threads import compute


# Requirements, options and requests are made for each request: a struct costs a fraction of a data class.
class Requirements(Struct, frozen=True, gc=False):
    """Cheap facts for routing and admission, known without decoding the conversation.

    `prompt_bytes` is the size of all text in, `longest_input` that of the largest of texts that are read apart (0: all
    are one prompt); `messages` their number; `media` the number of images and files.
    Tools of providers that are offered and not forced can be left out: `search_offered` tells it of web search, and
    `hosted` names the dialect that alone has the others. `units` is None where tokens of text tell the whole cost.
    Of media that were counted (gateway/media/token_counting.py), `media_tokens` is the most that they can count as,
    `likely_media_tokens` what they usually do, and `unseen_media` how many only the provider sees.
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
    forced_tool: str = ""  # a tool_choice mode beyond auto and none
    verbosity: bool = False
    vendor_only: str = ""  # dialect of a part that no other vendor understands
    penalties: bool = False
    cache_marks: bool = False
    search_offered: bool = False
    hosted: str = ""
    keeps_reasoning: bool = False  # the caller takes reasoning and brings it back, sealed, with the next turn
    longest_input: int = 0
    units: Units | None = None
    media_tokens: int = 0
    likely_media_tokens: int = 0
    unseen_media: int = 0


TIERS_JOINED = "+"  # between the names of service tiers that one request has at once


class Mistake(NamedTuple):
    """A wrong value of a preference: an error where the preference has an effect, else a warning."""

    field: str
    message: str
    param: str


class Options(Struct, frozen=True):
    """Gateway-only wishes of one request. `mistakes` are the wrong values of its preferences."""

    routing: Literal["", "auto", "price", "throughput", "latency"] = ""
    free_models_only: bool = False
    no_reasoning: bool = False
    service_tier: str = ""
    session: str = ""  # prompt_cache_key, then user: sticky session fallback
    prompt_cache_key: str = ""
    prompt_cache_retention: str = ""
    cache_marks: Literal["", "automatic", "disabled"] = ""  # what becomes of cache marks in a native body
    heal: bool = False  # plugins: response-healing
    hides_reasoning: bool = False  # the caller asked for none and is shown none
    image_config: dict[str, Any] | None = None
    extra: dict[str, Any] = {}  # known fields that one provider alone takes
    mistakes: tuple[Mistake, ...] = ()

    def with_changes(self, **changes: Any) -> "Options":
        """The options with these members changed."""
        return structs.replace(self, **changes)


NO_OPTIONS = Options()


class Native(Struct):
    """The caller's own body, checked and free of unknown and gateway-only fields, for upstreams of one dialect.

    `body` maps top-level field names to JSON-encodable values; it is never changed in place. It has no model,
    stream or gateway-only field. `whole`: it may say more than the neutral form, so that two requests that are the same
    there may still differ.
    """

    dialect: str
    body: dict[str, Any]
    whole: bool = False


class Request(Struct, eq=False):
    """A request of any operation. `requested_model` is the model as the caller wrote it.

    `decode` builds what is asked, in the neutral form of the operation; `content()` calls it at most once. `native` is
    the caller's own body, where its format may be an upstream's too. `large`: its body is so large that a thread works
    on it. `warnings` tell what of the caller's own request this one lacks.
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
        """What is asked, decoded on first use. Raises InvalidRequest for what is wrong inside it."""
        if self._decoded is None:
            if self.large:
                self._decoded = compute(self.decode)
            else:
                self._decoded = self.decode()
        return self._decoded


class Result(Protocol):
    """A complete answer of any operation: what billing, logs and replies need to know of it. A dataclass."""

    usage: Usage | None
    model: str  # as the upstream names what answered
    upstream_id: str
    service_tier: str
    warnings: tuple[str, ...]
    large: bool  # worked on in a thread

    @property
    def finish(self) -> str: ...

    def text_length(self) -> int:
        """How many characters of text were written, for an estimate where the upstream reports no usage."""
        ...


@dataclass(slots=True, unsafe_hash=True, kw_only=True)
class WholeResult:
    """What the results of operations other than chat share: as Result has it, for an answer without text."""

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
        """Nothing: what the upstream does not count is counted by what was asked (Units)."""
        return 0
