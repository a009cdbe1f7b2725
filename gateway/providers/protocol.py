"""The interface of a protocol, which knows one upstream wire format and nothing of callers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as Interface

from msgspec import Struct

from gateway.catalogue.entries import RESPONSES_PROTOCOL, Mapping, Provider
from gateway.configuration.value_parsing import TRUE
from gateway.errors import GatewayError
from gateway.neutral.events import Batch
from gateway.neutral.request import Native
from gateway.neutral.videos import VideoFile, VideoStatus, VideoTask
from gateway.providers.quirks import COMPLETES
from gateway.runtime.large_files import MessageBody
from gateway.transport.request_bytes import CallHead

OPENAI_PROTOCOLS = ("openai", RESPONSES_PROTOCOL)


@dataclass(frozen=True, slots=True)
class Credential:
    """A provider's key. `source` is "platform" (environment) or "byok" (the caller's organization's own).

    `ident` identifies it without revealing it: a short keyed fingerprint, or the id of the stored provider key.
    `elsewhere`: its requests go to another address than those with the platform's keys, so they have a health of their
    own. `bounded`: it has a spending limit.
    """

    secret: str = field(repr=False)
    source: str = "platform"
    ident: str = ""
    label: str = ""
    base_url: str = ""
    bounded: bool = False
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send a request: a mapping with its provider, a credential, and the filled-in base address.

    `address` has no trailing slash and no version path beyond what the provider's entry says; `settings` are the
    provider's filled values (region, project …). `trusted`: the operator chose the address, so it may be private.
    `output_cap`, when set, is sent upstream as the output limit: the caller's budget or the model allows no more.
    `protocol` is the name of its protocol: its entry's, unless an operator chose between OpenAI's two with the setting
    `use_responses_api`; `second` is the one for requests that need what the first lacks ("": none).
    `memo` caches what was derived from all this (except the cap) for the next call, each value under its own name: it
    lives as long as the target, and so as the credential.
    """

    provider: Provider
    mapping: Mapping
    credential: Credential
    address: str
    settings: dict[str, str] = field(default_factory=dict)
    trusted: bool = False
    output_cap: int | None = None
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    protocol: str = field(init=False)
    second: str = field(init=False)
    quirks: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        # Computed once and not on access: a target serves many requests, and each asks several times.
        object.__setattr__(self, "protocol", self._find_protocol())
        object.__setattr__(self, "second", self._find_second())
        object.__setattr__(self, "quirks", self.provider.quirks + self.mapping.quirks)

    @property
    def completes(self) -> bool:
        """Whether it completes text itself instead of chatting."""
        return not COMPLETES.isdisjoint(self.quirks)

    def _find_protocol(self) -> str:
        name = self.mapping.protocol or self.provider.protocol
        chosen = self.settings.get("use_responses_api")
        if chosen and name in OPENAI_PROTOCOLS:
            return OPENAI_PROTOCOLS[chosen.lower() in TRUE]
        return name

    def _find_second(self) -> str:
        offered = self.mapping.responses_api and self.protocol == OPENAI_PROTOCOLS[0]
        if offered and not self.settings.get("use_responses_api"):
            return RESPONSES_PROTOCOL
        return ""


class Way(Struct, eq=False):
    """URL and headers (never changed) of a target's calls. `head` is the request head that the network layer builds
    from them once."""

    url: str
    headers: dict[str, str]
    head: CallHead | None = None


class Call(Struct, eq=False):
    """An upstream HTTP call; a `body` of bytes is sent as it is, any other in pieces. `renamed`: the caller's function
    names, by those sent. `reader` reads its answer instead of the codec (with the same methods), where that depends on
    what was requested.

    `way` is set when other calls of the target have the same URL and headers.
    """

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | MessageBody = b""
    stream: bool = False
    warnings: tuple[str, ...] = ()  # what of the request this target does not carry, named for the caller
    renamed: dict[str, str] | None = None
    way: Way | None = None
    reader: "StreamReader | None" = None


class UpstreamReply(Interface):
    """An upstream's response, as the transport returns it.

    `read_all()` returns the whole body (capped). `chunks()` yields bytes as they arrive, one item per receive; b""
    means that nothing arrived for the heartbeat interval. Both raise UpstreamTimeout, UpstreamUnreachable or
    StreamTruncated.
    """

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> dict[str, str]: ...
    def read_all(self) -> bytes: ...
    def chunks(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...


class AnswerReader(Interface):
    """Reads a non-streamed answer: `read` turns a 2xx body into a result."""

    def read(self, reply: UpstreamReply, relayed: bool) -> Any: ...


class StreamReader(AnswerReader, Interface):
    """Reads an answer that may also be streamed: `read_stream` turns a 2xx stream into batches: first a Started, last a
    Finished or Failed, Heartbeat while nothing arrives; a stream that ends without its terminal event yields
    Failed(StreamTruncated)."""

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]: ...


class Codec(AnswerReader, Interface):
    """One operation in one wire format. Stateless: one object serves all requests.

    `write` builds the call from the neutral form; it raises NotSupported for what cannot be carried and must not be
    dropped (the target is then skipped), clamps values to the provider's range and lists in `Call.warnings` what it
    leaves out. `relay` retargets a native body of the same dialect without walking its content. `waits`: `write` may
    wait, and runs large computations in a thread itself.
    """

    dialect: str
    waits: bool

    def write(self, request: Any, target: Target) -> Call: ...
    def relay(self, native: Native, request: Any, target: Target) -> Call: ...


class StreamCodec(Codec, StreamReader, Interface):
    """A codec of an operation that can stream."""


class JobCodec(Codec, Interface):
    """A codec of an operation that goes on after its answer, which is a VideoTask: `codecs["videos"]` of a Wire is one.

    The further calls need the task's `ident` and a target of the same mapping and credential; each is sent like any
    other, and an answer other than 2xx is read by the wire's `failure`. They never raise for odd values of a row:
    `status` and `cancel` take whatever text `read` gave. `locates`: a 2xx answer to `content` tells where the video is,
    and is not the video.
    """

    locates: bool

    def read(self, reply: UpstreamReply, relayed: bool) -> VideoTask:
        """The task that was begun. UpstreamFailed; ContentRefused where the provider refuses it at once."""
        ...

    def status(self, ident: str, target: Target) -> Call:
        """The call that asks how far a task is. `write`'s errors, where a credential must be exchanged for a token."""
        ...

    def read_status(self, reply: UpstreamReply, target: Target, whole: bool = True) -> VideoStatus:
        """What a 2xx answer to it says. UpstreamFailed for one of an unknown shape: ask again. Large answers are read
        in a thread. `target` tells which secrets its texts must not have. Not `whole`: of a video that comes along the
        beginning is enough."""
        ...

    def content(self, file: VideoFile, target: Target) -> Call:
        """The call that loads a VideoFile which has a `file`; it may be sent with a Range."""
        ...

    def location(self, reply: UpstreamReply, target: Target) -> str:
        """The URL at which the video is, of one that `locates` (then it has the rules of `VideoFile.url`); "" where the
        answer's body is the video, which is not read here. UpstreamFailed."""
        ...

    def cancel(self, ident: str, target: Target) -> Call | None:
        """The call that ends a task, None where the provider has none. After any 2xx the task is as good as canceled;
        providers refuse it (4xx) for a task that has begun, which then goes on and is billed."""
        ...


class ChatCodec(StreamCodec, Interface):
    """A chat codec, which also has what all operations of its protocol share; see Wire."""

    marks: bool
    lost: frozenset[str]

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError: ...


Failure = Callable[[UpstreamReply, Target], GatewayError]


@dataclass(frozen=True, slots=True)
class Wire:
    """A protocol: its name in catalogue entries, and a codec for each operation that it carries.

    `failure` turns a response other than 2xx into an error with scrubbed, capped text and the right blame. `marks`: the
    format has cache marks. `lost`: the parts of a request (names of Requirements) that it has no field for.
    """

    name: str
    dialect: str
    failure: Failure
    codecs: dict[str, Codec]
    marks: bool = False
    lost: frozenset[str] = frozenset()
