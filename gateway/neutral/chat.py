"""A chat request and its result."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from msgspec import Struct, structs

from gateway.neutral.parts import CacheMark, Image, Message, Part, Source, text_length
from gateway.neutral.request import NO_OPTIONS as NO_OPTIONS
from gateway.neutral.request import Native as Native
from gateway.neutral.request import Options as Options
from gateway.neutral.request import Request
from gateway.neutral.request import Requirements as Requirements
from gateway.neutral.usage import NOTHING, Usage, added

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "stop_sequence"]
ToolMode = Literal["auto", "none", "required", "tool", "web_search"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class FunctionTool(Struct, frozen=True):
    """`schema` is the JSON Schema of the arguments, as the caller wrote it (None: takes none)."""

    name: str
    description: str = ""
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    cache: CacheMark | None = None
    deferred: bool = False


class CustomTool(Struct, frozen=True):
    """A tool with free-text input, optionally held to a grammar (`format` in its vendor's JSON)."""

    name: str
    description: str = ""
    format: dict[str, Any] | None = None


class WebSearch(Struct, frozen=True, gc=False):
    """The provider's own web search. `context_size` low, medium, high or "". Location fields are plain text."""

    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    context_size: str = ""
    city: str = ""
    region: str = ""
    country: str = ""
    timezone: str = ""


class VendorTool(Struct, frozen=True):
    """A provider-defined tool that only `vendor` understands; targets of other vendors are skipped or refuse."""

    vendor: str
    kind: str
    body: dict[str, Any]


Tool = FunctionTool | CustomTool | WebSearch | VendorTool


class ToolChoice(Struct, frozen=True, gc=False):
    mode: ToolMode
    name: str = ""


class ResponseFormat(Struct, frozen=True):
    kind: Literal["text", "json_object", "json_schema"]
    name: str = ""
    description: str = ""
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ReasoningOptions(Struct, frozen=True, gc=False):
    """`budget` (tokens) wins over `effort`. `enabled` None = as the model does by itself; `adaptive` lets the
    model choose. `show`: "" default, "omitted", "summary", "full"."""

    effort: Effort | Literal[""] = ""
    budget: int | None = None
    enabled: bool | None = None
    adaptive: bool = False
    mode: str = ""
    show: str = ""
    encrypted: bool = False  # the caller wants sealed reasoning back (stateless multi-turn)


class Sampling(Struct, frozen=True, gc=False):
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    parallel_tool_calls: bool | None = None
    verbosity: str = ""
    output_effort: str = ""  # a vendor's separate output effort


class Conversation(Struct, frozen=True):
    """All that a model reads, decoded."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    response_format: ResponseFormat | None = None
    reasoning: ReasoningOptions = ReasoningOptions()
    sampling: Sampling = Sampling()


class Completion(Struct, frozen=True):
    """A text to go on with; with a suffix, a gap between the two to fill."""

    prompt: str
    suffix: str = ""


class ChatRequest(Request, eq=False):
    """`decode` gives a Conversation; call `conversation()`.

    `completion` is set where a text is to be completed: the conversation is the same task for a chat model. `inlined`
    is kept once somebody made it: the same request with the bytes of all that it names by address.
    """

    operation: ClassVar[str] = "chat"

    completion: Completion | None = None
    inlined: "ChatRequest | None" = None

    def conversation(self) -> Conversation:
        """The decoded conversation, built on first use. Raises InvalidRequest for what is wrong inside it."""
        conversation: Conversation = self.content()
        return conversation

    def with_conversation(self, decode: Callable[[], Conversation], **changes: Any) -> "ChatRequest":
        """The same request about another conversation, with these fields changed; all others stay."""
        return structs.replace(self, decode=decode, inlined=None, _decoded=None, **changes)


class Choice(Struct, frozen=True):
    """One answer. Parts in the order in which the model made them."""

    parts: tuple[Part, ...]
    finish: FinishReason
    stop_sequence: str = ""


@dataclass(slots=True, unsafe_hash=True)
class ChatResult:
    """A complete answer. `native` is the upstream's own reply body when its dialect is the caller's (relay lane): then
    the choices may be read on first use (`deferred`). A `large` one is worked on in a thread."""

    choices: tuple[Choice, ...]
    usage: Usage | None = NOTHING
    model: str = ""  # as the upstream names what answered
    upstream_id: str = ""
    service_tier: str = ""
    warnings: tuple[str, ...] = ()
    native: Native | None = None
    large: bool = field(default=False, repr=False, compare=False)
    _read: Callable[[dict[str, Any]], tuple[Choice, ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _finish: FinishReason | Literal[""] = field(default="", init=False, repr=False, compare=False)

    @classmethod
    def deferred(
        cls,
        read: Callable[[dict[str, Any]], tuple[Choice, ...]],
        finish: FinishReason,
        usage: Usage | None,
        model: str,
        upstream_id: str,
        service_tier: str,
        native: Native,
    ) -> "ChatResult":
        """A result whose choices `read` gives of the body, at most once; it must not fail. `finish` is that of the
        first."""
        result = cls.__new__(cls)  # all but the choices: these have no value yet
        result.usage = usage
        result.model = model
        result.upstream_id = upstream_id
        result.service_tier = service_tier
        result.warnings = ()
        result.native = native
        result.large = False
        result._read = read
        result._finish = finish
        return result

    @property
    def finish(self) -> FinishReason:
        """How the first choice ended."""
        if self._finish:
            return self._finish
        if self.choices:
            return self.choices[0].finish
        return "stop"

    def text_length(self) -> int:
        """The size of all text in it, for an estimate where the upstream reports no usage."""
        return sum(text_length(part) for choice in self.choices for part in choice.parts)

    def __getattr__(self, name: str) -> tuple[Choice, ...]:
        # Asked for what has no value yet, which is the choices of a deferred result alone.
        if name != "choices" or self._read is None or self.native is None:
            raise AttributeError(name)
        self.choices = choices = self._read(self.native.body)
        return choices


def split(request: ChatRequest, most: int, most_tokens: int = 0) -> Iterator[ChatRequest]:
    """Requests for so many answers each, all of the same conversation."""
    wanted = request.requirements.n
    for made in range(0, wanted, most):
        n = min(most, wanted - made)
        needs = structs.replace(request.requirements, n=n)
        yield request.with_conversation(partial(_with_n, request, n), requirements=needs, native=None)


def _with_n(request: ChatRequest, n: int) -> Conversation:
    conversation = request.conversation()
    return structs.replace(conversation, sampling=structs.replace(conversation.sampling, n=n))


def join(results: Sequence[ChatResult]) -> ChatResult:
    """One result of those of `split`, their answers in order; its usage is their sum."""
    first = results[0]
    reported = [one.usage for one in results if one.usage is not None]
    return ChatResult(
        tuple(choice for one in results for choice in one.choices),
        structs.replace(added(reported), calls=len(results)) if len(reported) == len(results) else None,
        first.model,
        first.upstream_id,
        first.service_tier,
        tuple(dict.fromkeys(text for one in results for text in one.warnings)),
    )


def images_of(choice: Choice) -> tuple[Image, ...]:
    return tuple(part for part in choice.parts if isinstance(part, Image))


def sources_of(choice: Choice) -> tuple[Source, ...]:
    found: list[Source] = []
    for part in choice.parts:
        found.extend(getattr(part, "sources", ()))
    return tuple(found)
