"""A chat request and its result."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from msgspec import Struct, structs

from gateway.neutral.message_order import in_order
from gateway.neutral.parameters import Effort as Effort
from gateway.neutral.parameters import Sampling as Sampling
from gateway.neutral.parts import CacheMark, Image, Media, Message, Part, Source, text_length
from gateway.neutral.request import NO_OPTIONS as NO_OPTIONS
from gateway.neutral.request import Native as Native
from gateway.neutral.request import Options as Options
from gateway.neutral.request import Request
from gateway.neutral.request import Requirements as Requirements
from gateway.neutral.usage import NO_USAGE, Usage, added

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "pause", "stop_sequence"]
ToolMode = Literal["auto", "none", "required", "tool", "web_search"]


class FunctionTool(Struct, frozen=True):
    """A function that the model may call.

    `schema` is the JSON Schema of the arguments as the caller wrote it (None: no arguments). `newer` are the names of
    members that are newer than the gateway: a body that is not rebuilt has them, and a rebuilt one of `vendor` those
    of `body`, a part of the tool in its format.
    """

    name: str
    description: str = ""
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    cache: CacheMark | None = None
    deferred: bool = False
    newer: tuple[str, ...] = ()
    vendor: str = ""
    body: dict[str, Any] | None = None


class CustomTool(Struct, frozen=True):
    """A tool with free-text input, optionally constrained by a grammar (`format` in its vendor's JSON). Its newer
    members are those of a FunctionTool."""

    name: str
    description: str = ""
    format: dict[str, Any] | None = None
    newer: tuple[str, ...] = ()
    vendor: str = ""
    body: dict[str, Any] | None = None


class WebSearch(Struct, frozen=True, gc=False):
    """The provider's own web search. `context_size` is low, medium, high or "". The location fields are plain text."""

    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    context_size: str = ""
    city: str = ""
    region: str = ""
    country: str = ""
    timezone: str = ""


class VendorTool(Struct, frozen=True):
    """A provider-defined tool that only `vendor` understands. Other vendors get the tools `instead`; without any, their
    targets are skipped or reject it."""

    vendor: str
    kind: str
    body: dict[str, Any]
    instead: tuple["Tool", ...] = ()


Tool = FunctionTool | CustomTool | WebSearch | VendorTool


class ToolChoice(Struct, frozen=True):
    """A choice of a type that is newer than the gateway has the mode auto, and `body` for its `vendor`."""

    mode: ToolMode
    name: str = ""
    vendor: str = ""
    body: Any = None


class ResponseFormat(Struct, frozen=True):
    kind: Literal["text", "json_object", "json_schema"]
    name: str = ""
    description: str = ""
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ReasoningOptions(Struct, frozen=True, gc=False):
    """Reasoning settings. `budget` (tokens) takes precedence over `effort`.

    `enabled` None keeps the model's default; with `adaptive` the model decides. `show` is "" (default), "omitted",
    "summary" or "full".
    """

    effort: Effort | Literal[""] = ""
    budget: int | None = None
    enabled: bool | None = None
    adaptive: bool = False
    mode: str = ""
    show: str = ""
    encrypted: bool = False  # the caller requests encrypted reasoning (stateless multi-turn)


class Conversation(Struct, frozen=True):
    """Everything that a model reads, decoded."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    response_format: ResponseFormat | None = None
    reasoning: ReasoningOptions = ReasoningOptions()
    sampling: Sampling = Sampling()


NO_CONVERSATION = Conversation(())


def _empty_conversation() -> Conversation:
    return NO_CONVERSATION


class Completion(Struct, frozen=True):
    """A text to continue; with a suffix, the gap between prompt and suffix is to be filled."""

    prompt: str
    suffix: str = ""


class ChatRequest(Request, eq=False):
    """A chat request. `decode` returns a Conversation; call `conversation()`.

    `completion` is set for text completions: the conversation is then the same task for a chat model. `inlined` caches
    the same request with the contents of all URLs that it refers to, which are `contents` by URL; `loaded` counts their
    bytes. `plain`: each message is one text, and there are no tools and no calls. `names_files`: media have the names
    of files at the provider.
    """

    operation: ClassVar[str] = "chat"

    completion: Completion | None = None
    inlined: "ChatRequest | None" = None
    loaded: Any = None
    contents: dict[str, Media] | None = None
    plain: bool = False
    names_files: bool = False

    def conversation(self) -> Conversation:
        """Return the decoded conversation, built on first use. Raise InvalidRequest for invalid contents."""
        conversation: Conversation = self.content()
        return conversation

    def _read(self) -> Conversation:
        conversation: Conversation = self.decode()
        if self.plain:
            return conversation
        messages = in_order(conversation.messages)
        if messages is not conversation.messages:
            conversation = structs.replace(conversation, messages=messages)
        return conversation

    def forget(self) -> None:
        """Drop the input once no further attempt can need it: it then reads as an empty conversation."""
        self.native = self.inlined = self.loaded = self.contents = self.completion = None
        self.decode = _empty_conversation
        self._decoded = NO_CONVERSATION

    def with_conversation(self, decode: Callable[[], Conversation], **changes: Any) -> "ChatRequest":
        """Return the request with another conversation and these changes; all other fields stay."""
        return structs.replace(self, decode=decode, inlined=None, plain=False, _decoded=None, **changes)


class Choice(Struct, frozen=True):
    """One choice of the response, with its parts in the order in which the model generated them."""

    parts: tuple[Part, ...]
    finish: FinishReason
    stop_sequence: str = ""


@dataclass(slots=True, unsafe_hash=True)
class ChatResult:
    """A complete response.

    `native` is the upstream's own response body if its dialect is the caller's (relay lane); the choices may then be
    parsed on first use (`deferred`). A `large` result is processed in a thread. `given` are the ids of containers that
    the provider made for it.
    """

    choices: tuple[Choice, ...]
    usage: Usage | None = NO_USAGE
    model: str = ""  # the model name that the upstream reports
    upstream_id: str = ""
    service_tier: str = ""
    warnings: tuple[str, ...] = ()
    native: Native | None = None
    large: bool = field(default=False, repr=False, compare=False)
    given: tuple[str, ...] = field(default=(), repr=False, compare=False)
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
        """Create a result that parses its choices from the native body on first use, at most once, with `read`.

        `read` must not fail. `finish` is the finish reason of the first choice.
        """
        result = cls.__new__(cls)  # The constructor would set the choices, which must stay unset until they are read.
        result.usage = usage
        result.model = model
        result.upstream_id = upstream_id
        result.service_tier = service_tier
        result.warnings = ()
        result.native = native
        result.large = False
        result.given = ()
        result._read = read
        result._finish = finish
        return result

    @property
    def finish(self) -> FinishReason:
        """Return the finish reason of the first choice."""
        if self._finish:
            return self._finish
        if self.choices:
            return self.choices[0].finish
        return "stop"

    def text_length(self) -> int:
        """Return the length of all text, for an estimate if the upstream reports no usage."""
        return sum(text_length(part) for choice in self.choices for part in choice.parts)

    def __getattr__(self, name: str) -> tuple[Choice, ...]:
        # Called only for attributes that are unset, which are the choices of a deferred result.
        if name != "choices" or self._read is None or self.native is None:
            raise AttributeError(name)
        self.choices = choices = self._read(self.native.body)
        return choices


def split(request: ChatRequest, maximum: int, most_tokens: int = 0) -> Iterator[ChatRequest]:
    """Yield requests for at most `maximum` choices each, all with the same conversation."""
    count = request.requirements.n
    for done in range(0, count, maximum):
        n = min(maximum, count - done)
        requirements = structs.replace(request.requirements, n=n)
        yield request.with_conversation(partial(_with_n, request, n), requirements=requirements, native=None)


def _with_n(request: ChatRequest, n: int) -> Conversation:
    conversation = request.conversation()
    return structs.replace(conversation, sampling=structs.replace(conversation.sampling, n=n))


def join(results: Sequence[ChatResult]) -> ChatResult:
    """Merge the results of `split` into one, with the choices in order and the summed usage."""
    first = results[0]
    reported = [result.usage for result in results if result.usage is not None]
    return ChatResult(
        tuple(choice for result in results for choice in result.choices),
        structs.replace(added(reported), calls=len(results)) if len(reported) == len(results) else None,
        first.model,
        first.upstream_id,
        first.service_tier,
        tuple(dict.fromkeys(text for result in results for text in result.warnings)),
    )


def images_of(choice: Choice) -> tuple[Image, ...]:
    return tuple(part for part in choice.parts if isinstance(part, Image))


def sources_of(choice: Choice) -> tuple[Source, ...]:
    sources: list[Source] = []
    for part in choice.parts:
        sources.extend(getattr(part, "sources", ()))
    return tuple(sources)
