"""The interfaces that a protocol implements. A protocol knows one upstream wire format and nothing about callers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn
from typing import Protocol as Interface

from msgspec import Struct

from gateway.callers.credential_sources import PLATFORM_SOURCE, CredentialSource
from gateway.catalogue.entries import RESPONSES_PROTOCOL, Mapping, Provider
from gateway.configuration.value_parsing import TRUE
from gateway.errors import GatewayError, NotSupported, UpstreamFailed
from gateway.neutral.events import Batch
from gateway.neutral.request import Native, Request
from gateway.neutral.videos import VideoFile, VideoStatus, VideoTask
from gateway.providers.answer_checks import UNKNOWN_SHAPE
from gateway.providers.quirks import COMPLETES
from gateway.runtime.large_files import MessageBody
from gateway.transport.request_bytes import CallHead

OPENAI_PROTOCOLS = ("openai", RESPONSES_PROTOCOL)


class Identity(Interface):
    """A workload identity of the gateway's host, which obtains short-lived tokens instead of a stored key.

    `secret` is the current token, "" for none. `sign_in` returns a target with the current token and may wait for one.
    `renew_rejected` returns the target with another token if the provider rejected that of `target`, else None.
    `complete` adds placeholders for settings that a token brings. `sign_in` raises IdentityFailed.
    """

    @property
    def secret(self) -> str: ...
    def sign_in(self, target: "Target") -> "Target": ...
    def renew_rejected(self, target: "Target", reply: "UpstreamReply") -> "Target | None": ...
    def complete(self, settings: dict[str, str]) -> dict[str, str]: ...
    def describe(self) -> tuple[str, int, str]:
        """Return the source of the token, its expiry (µs, 0: no valid token) and the last failure ("": none)."""
        ...


@dataclass(frozen=True, slots=True)
class Credential:
    """A provider's API key. `ident` identifies it without revealing it: a short keyed fingerprint, or the id of the
    stored provider key.

    `elsewhere`: its requests are sent to a different address than those with the platform's keys, so their health is
    tracked separately. `bounded`: it has a spending limit. With an `identity`, which only platform credentials have,
    `secret` is "" until a call signs in.
    """

    secret: str = field(repr=False)
    source: CredentialSource = PLATFORM_SOURCE
    ident: str = ""
    label: str = ""
    base_url: str = ""
    bounded: bool = False
    elsewhere: bool = False
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send a request: a mapping with its provider, a credential, and the filled-in base address.

    `address` has no trailing slash and only the version path of the provider's entry; `settings` are the provider's
    configured values (region, project …). `trusted`: the operator chose the address, so it may be private.
    `output_cap`, when set, is sent upstream as the output limit: the caller's budget or the model allows no more.
    `unseals`: encrypted parts of a conversation are sent to it; where its account cannot read them they are left out.
    `protocol` is the name of the protocol in the entry, unless an operator chose between OpenAI's two protocols with
    the setting `use_responses_api`; `second` is the protocol for requests that need a feature that the first lacks ("":
    none). `memo` caches values derived from these fields (except the cap) for later calls, each under its own key. It
    lives as long as the target and its credential.
    """

    provider: Provider
    mapping: Mapping
    credential: Credential
    address: str
    settings: dict[str, str] = field(default_factory=dict)
    trusted: bool = False
    output_cap: int | None = None
    unseals: bool = True
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    protocol: str = field(init=False)
    second: str = field(init=False)
    quirks: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        # Computed once and not on access: a target serves many requests, and each reads these several times.
        object.__setattr__(self, "protocol", self._find_protocol())
        object.__setattr__(self, "second", self._find_second())
        object.__setattr__(self, "quirks", self.provider.quirks + self.mapping.quirks)

    @property
    def completes(self) -> bool:
        """Whether the target has a text completion endpoint and no chat endpoint."""
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


class CallEndpoint(Struct, eq=False):
    """URL and headers of a target's calls; both are immutable. `head` is the request head that the network layer builds
    from them once."""

    url: str
    headers: dict[str, str]
    head: CallHead | None = None


class Call(Struct, eq=False):
    """An upstream HTTP call. A `body` of bytes is sent in one piece, any other body in several. `renamed` maps the
    function names in the call to the caller's names, `custom` has the caller's names of functions that stand for
    free-text tools. `reader` reads the answer instead of the codec (with the same
    methods), where reading depends on the request.

    `endpoint` is set when other calls of the target have the same URL and headers.
    """

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | MessageBody = b""
    stream: bool = False
    warnings: tuple[str, ...] = ()  # fields of the request that the target cannot carry, under the caller's names
    renamed: dict[str, str] | None = None
    endpoint: CallEndpoint | None = None
    reader: "StreamReader | None" = None
    custom: frozenset[str] = frozenset()


class UpstreamReply(Interface):
    """An upstream's response, as the transport returns it.

    `read_all()` returns the whole body (capped). `chunks()` yields bytes as they arrive, one item per receive; b""
    means that no data arrived during the heartbeat interval. Both raise UpstreamTimeout, UpstreamUnreachable or
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
    """Reads a non-streamed answer: `read` converts a 2xx body into a result."""

    def read(self, reply: UpstreamReply, relayed: bool) -> Any: ...


class StreamReader(AnswerReader, Interface):
    """Reads an answer that may also be streamed. `read_stream` converts a 2xx stream into batches of events: first a
    Started, last a Finished or Failed, and a Heartbeat while no data arrives. A stream that ends without its terminal
    event yields Failed(StreamTruncated)."""

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]: ...


class Codec(AnswerReader, Interface):
    """One operation in one wire format. Stateless: one object serves all requests.

    `write` builds the call from the neutral request. It raises NotSupported for content that the format cannot carry
    and that must not be dropped (the target is then skipped), clamps values to the provider's range and lists dropped
    fields in `Call.warnings`. `relay` retargets a native body of the same dialect without walking its content. `waits`:
    `write` may block on I/O, and runs large computations in a thread itself.
    """

    dialect: str
    waits: bool

    def write(self, request: Any, target: Target) -> Call: ...
    def relay(self, native: Native, request: Any, target: Target) -> Call: ...


class StreamCodec(Codec, StreamReader, Interface):
    """A codec of an operation that can stream."""


class JobCodec(Codec, Interface):
    """A codec of an asynchronous job, such as `codecs["videos"]` of a WireFormat. The first answer is a VideoTask.

    The further calls need the task's `ident` and a target with the same mapping and credential. Each is sent like any
    other call, and the wire's `failure` reads an answer other than 2xx. `status` and `cancel` accept every `ident` that
    `read` returned and never raise for its value. `locates`: a 2xx answer to `content` contains the URL of the video
    instead of the video.
    """

    locates: bool

    def read(self, reply: UpstreamReply, relayed: bool) -> VideoTask:
        """Return the task that the provider started. UpstreamFailed; ContentRefused where the provider refuses it at
        once."""
        ...

    def status(self, ident: str, target: Target) -> Call:
        """Return the call that requests a task's status. Raises the errors of `write` where a credential must be
        exchanged for a token."""
        ...

    def read_status(self, reply: UpstreamReply, target: Target, whole: bool = True) -> VideoStatus:
        """Read a 2xx answer to `status`. UpstreamFailed for an unknown shape; the caller then polls again.  Large
        answers are read in a thread. The secrets of `target` are removed from the texts. `whole=False`: of a video
        inside the answer, only the first bytes are kept."""
        ...

    def content(self, file: VideoFile, target: Target) -> Call:
        """Return the call that downloads a VideoFile which has a `file`; it may be sent with a Range header."""
        ...

    def location(self, reply: UpstreamReply, target: Target) -> str:
        """Return the URL of the video for a codec that `locates` (under the rules of `VideoFile.url`); "" where the
        answer's body is the video, which is not read here. UpstreamFailed."""
        ...

    def cancel(self, ident: str, target: Target) -> Call | None:
        """Return the call that cancels a task, None where the provider has no such endpoint. After any 2xx the task
        counts as canceled. Providers refuse the call (4xx) for a task that is already running; it then continues and is
        billed."""
        ...


class ChatCodec(StreamCodec, Interface):
    """A chat codec, which also provides the members that all operations of its protocol share; see WireFormat."""

    lost: frozenset[str]

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError: ...


Failure = Callable[[UpstreamReply, Target], GatewayError]


class WireFormat(Struct, frozen=True):
    """A protocol: its name in catalogue entries, and a codec for each operation that it carries. `failure` converts a
    response other than 2xx into an error with scrubbed, capped text and the right blame. `lost`: the parts
    of a request (names of Requirements) that it has no field for.
    """

    name: str
    dialect: str
    failure: Failure
    codecs: dict[str, Codec]
    lost: frozenset[str] = frozenset()


# Base classes of codecs that never relay a caller's body, which are most codecs besides chat.


class WrittenCodec:
    """A Codec that never relays a caller's body: its `dialect` differs from the dialect of every request."""

    dialect = ""
    waits = False

    def relay(self, native: Native, request: Request, target: Target) -> Call:
        """Raise NotSupported, because every call is rebuilt."""
        raise NotSupported("A request of this kind is not relayed.")


class PiecesReader:
    """A StreamReader for answers that are only streamed."""

    def read(self, reply: UpstreamReply, relayed: bool) -> NoReturn:
        """Raise UpstreamFailed, because there is no non-streamed answer."""
        raise UpstreamFailed(UNKNOWN_SHAPE, upstream_status=200)


class PiecesCodec(WrittenCodec, PiecesReader):
    """A StreamCodec for answers that are only streamed."""
