"""The stored files of one request that are too large for it: their contents stay in the store until a target is called,
which gets them in the request or, where they are too large for that, as the names of files at the provider.
"""

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway.callers.access import logs_text
from gateway.callers.authentication import Caller
from gateway.clock import SECOND_US, Clock
from gateway.errors import ContentNeeded, GatewayError, NotSupported, RequestTooLarge
from gateway.files.file_rows import FileRow
from gateway.files.project_files import Files
from gateway.files.provider_files import PlacedFile, ProviderFiles
from gateway.media.token_counting import MediaCount, count_stored, counted
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.neutral.events import Batch, Heartbeat, SourceFound
from gateway.neutral.own_files import is_own_file
from gateway.neutral.parts import (
    Audio,
    File,
    Image,
    Media,
    Message,
    Part,
    Source,
    Text,
    ToolResult,
    Video,
    sound_format,
)
from gateway.neutral.request import Request
from gateway.providers.files.file_codec import FileContent
from gateway.providers.protocol import Target
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import PREPARING, Answering, CallListener, Opener
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import Job, compute, hold_more

FILE_ID = "file_id"
MAX_FILES = 100  # files that one request names
SHARE = 3  # bytes in memory for each byte of a file in a call: as base64, and in the body
KNOWN_COUNTS = 2048
LOST = (400, 403, 404)  # answers to a request that may name a lost file
MISSING = "The content of this file is larger than {} takes in a request, and cannot be uploaded there."
FORBIDDEN = (
    "The files of a request may have {} MB as base64 together: the policy of the organization forbids to store larger "
    "ones at providers."
)

UNCHECKED = "The files of a request that guardrails read may have {} MB as base64 together; send less of the file."

FilePart = Image | Audio | Video | File


class FileCounts:
    """The tokens of stored files in a worker, by content: a conversation names the same file in each turn."""

    def __init__(self, files: Files, spool_dir: str) -> None:
        self._files = files
        self._spool_dir = spool_dir
        self._known: OrderedDict[tuple[str, ...], MediaCount] = OrderedDict()

    def count(self, part: FilePart, row: FileRow) -> MediaCount:
        """Return the tokens of a part that names a stored file. Unavailable."""
        name = part.filename if isinstance(part, File) else ""
        key = (row.content, type(part).__name__, part.media.media_type, name)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._read(part, row)
            if len(self._known) > KNOWN_COUNTS:
                self._known.popitem(last=False)
        return known

    def _read(self, part: FilePart, row: FileRow) -> MediaCount:
        with spooled(self._files, row, self._spool_dir) as spool:
            return count_stored(part, spool)


class Placing(Struct, frozen=True, eq=False):
    """A request as a target gets it, with the files that it names there: by their references, and the ids of the
    gateway's files."""

    request: ChatRequest
    placed: tuple[PlacedFile, ...] = ()
    names: dict[str, str] = {}

    @property
    def may_be_lost(self) -> bool:
        return any(not one.fresh for one in self.placed)

    def clean(self, error: GatewayError) -> GatewayError:
        """Return an error without the provider's names of files."""
        for reference, ident in self.names.items():
            error.message = error.message.replace(reference, ident)
        for one in self.placed:
            error.message = error.message.replace(one.row.remote, one.row.file)
        return error

    def restore_result(self, result: Any) -> Any:
        """Return a result whose sources name the gateway's files."""
        for choice in result.choices if self.names else ():
            if any(isinstance(part, Text) and part.sources for part in choice.parts):
                parts = tuple(self._restore_part(part) for part in choice.parts)
                choices = tuple(replace(one, parts=parts) if one is choice else one for one in result.choices)
                result.choices = choices
        return result

    def restore_batch(self, batch: Batch) -> Batch:
        """Return a batch of events whose sources name the gateway's files."""
        if not any(type(event) is SourceFound for event in batch):
            return batch
        return [
            replace(event, source=self._restore(event.source)) if isinstance(event, SourceFound) else event
            for event in batch
        ]

    def _restore_part(self, part: Part) -> Part:
        if isinstance(part, Text) and part.sources:
            return replace(part, sources=tuple(map(self._restore, part.sources)))
        return part

    def _restore(self, source: Source) -> Source:
        place = source.place
        if place is None or place.file_id not in self.names:
            return source
        return replace(source, place=replace(place, file_id=self.names[place.file_id]))


class RequestFiles:
    """The files of one request, which the caller may see. `maximum` is the size of the largest body; guardrails of the
    caller read the files of the types for which `is_read` is true, so that these are always in the request."""

    def __init__(
        self,
        caller: Caller,
        files: Files,
        at_providers: ProviderFiles,
        counts: FileCounts,
        maximum: int,
        uploads: bool,
        is_read: Callable[[str], bool],
    ) -> None:
        self._caller = caller
        self._files = files
        self._at_providers = at_providers
        self._counts = counts
        self._maximum = maximum
        self._may_upload = uploads and logs_text(caller.rules)
        self._is_read = is_read
        self._read_bytes = 0  # of files that are in the request, because guardrails read them
        self._rows: dict[str, FileRow] = {}
        self._inlined: ChatRequest | None = None

    def through(self, upstreams: Upstreams) -> Upstreams:
        """Return the upstreams of the request."""
        return PlacingUpstreams(upstreams, self)

    def read(self, request: ChatRequest) -> ChatRequest:
        """Return the request with the kinds and tokens of its media. NotFound for a file of another project;
        RequestTooLarge, Unavailable."""
        needs = request.requirements
        if needs.media_tokens:
            return request
        total = MediaCount()

        def take(part: FilePart) -> FilePart:
            nonlocal total
            row = self._find(part.media.file_id)
            typed = self._typed(part, row)
            total = total.plus(self._counts.count(typed, row))
            return typed

        conversation = _mapped(request.conversation(), take)
        if not self._rows:
            return counted(request)
        size = sum(row.size for row in self._rows.values())
        if not self._may_upload and as_base64(size) + needs.prompt_bytes > self._maximum:
            raise RequestTooLarge(FORBIDDEN.format(self._maximum >> 20), param=FILE_ID)
        # The other media are counted as those of every request.
        others = _mapped(conversation, lambda part: None)
        rest = counted(request.with_conversation(lambda: others)).requirements
        parts = [part for message in conversation.messages for part in _files_in(message.parts)]
        changed = replace(
            rest,
            media_tokens=rest.media_tokens + total.maximum,
            likely_media_tokens=rest.likely_media_tokens + total.likely,
            unseen_media=rest.unseen_media + total.unseen,
            vision=needs.vision or any(isinstance(part, Image) for part in parts),
            audio=needs.audio or any(isinstance(part, Audio) for part in parts),
            documents=needs.documents and any(isinstance(part, File) for part in _documents(conversation)),
        )
        readable = {ident: row for ident, row in self._rows.items() if self._is_read(row.media_type)}
        if not readable:
            return request.with_conversation(lambda: conversation, requirements=changed, native=None)
        self._read_bytes = as_base64(sum(row.size for row in readable.values()))
        if self._read_bytes + needs.prompt_bytes > self._maximum:
            raise RequestTooLarge(UNCHECKED.format(self._maximum >> 20), param=FILE_ID)
        filled = self._filled(conversation, readable)
        filled_request = request.with_conversation(lambda: filled, requirements=changed, native=None)
        filled_request.large = True
        return filled_request

    def place(self, upstreams: Upstreams, request: Request, target: Target, deadline: float) -> Placing | None:
        """Return the request for a target: with the contents of its files, or with their names at the provider. None
        where it has no files. NotSupported where the target takes them in neither way; errors of
        `ProviderFiles.place`."""
        if not isinstance(request, ChatRequest):
            return None
        conversation = request.conversation()
        parts = [part for message in conversation.messages for part in _files_in(message.parts)]
        rows = {part.media.file_id: self._find(part.media.file_id) for part in parts}
        if not rows:
            return None
        provider = target.provider
        size = as_base64(sum(row.size for row in rows.values())) + request.requirements.prompt_bytes + self._read_bytes
        if size <= min(self._maximum, provider.inline_mb << 20 or self._maximum):
            return Placing(self._inline(request, conversation, rows))
        codec = self._at_providers.codec_of(target)
        too_large = any(row.size > provider.upload_mb << 20 for row in rows.values())
        if codec is None or not self._may_upload or too_large:
            raise NotSupported(MISSING.format(target.mapping.key), param=FILE_ID, code="file_not_usable")
        self._check(upstreams, request, conversation, codec.sample, target)
        placed = {ident: self._upload(row, target, deadline) for ident, row in rows.items()}
        references = {ident: one.row.reference for ident, one in placed.items()}
        named = _named(request, conversation, references)
        return Placing(named, tuple(placed.values()), {reference: ident for ident, reference in references.items()})

    def place_again(
        self,
        placing: Placing,
        error: GatewayError,
        upstreams: Upstreams,
        request: Request,
        target: Target,
        until: float,
    ) -> Placing | None:
        """Return the request once more after an error that may say that files were lost; None where the provider still
        has all of them. Errors of `place`."""
        if error.upstream_status not in LOST or not placing.may_be_lost:
            return None
        lost = [self._at_providers.forget_lost(one, target) for one in placing.placed if not one.fresh]
        return self.place(upstreams, request, target, until) if any(lost) else None

    def _find(self, ident: str) -> FileRow:
        row = self._rows.get(ident)
        if row is None:
            row = self._rows[ident] = self._files.find(self._caller, ident, FILE_ID)
            if len(self._rows) > MAX_FILES:
                raise RequestTooLarge(f"A request may name {MAX_FILES} files.", param=FILE_ID)
        return row

    def _typed(self, part: FilePart, row: FileRow) -> FilePart:
        """Return a part as what its file is: an image, sound or a document."""
        kind = row.media_type
        media = Media(media_type=kind, file_id=row.id)
        if isinstance(part, File):
            if kind.startswith("image/"):
                return Image(media, cache=part.cache, beside=part.beside)
            if kind.startswith("audio/"):
                return Audio(media, format=sound_format(kind), beside=part.beside)
            return replace(part, media=media, filename=part.filename or self._files.name_of(row))
        return replace(part, media=media)

    def _inline(self, request: ChatRequest, conversation: Conversation, rows: dict[str, FileRow]) -> ChatRequest:
        """Return the request with the contents of its files. Overloaded, Unavailable."""
        if self._inlined is None:
            filled = self._filled(conversation, rows)
            self._inlined = request.with_conversation(lambda: filled)
            self._inlined.large = True
        return replace(
            request, decode=self._inlined.decode, inlined=None, plain=False, _decoded=self._inlined._decoded, large=True
        )

    def _filled(self, conversation: Conversation, rows: dict[str, FileRow]) -> Conversation:
        """Return the conversation with the contents of these files. Overloaded, Unavailable."""
        hold_more(sum(row.size for row in rows.values()) * SHARE)
        loaded = {ident: Media(row.media_type, data=self._load(row)) for ident, row in rows.items()}

        def fill(part: FilePart) -> FilePart:
            media = loaded.get(part.media.file_id)
            return part if media is None else replace(part, media=media)

        return _mapped(conversation, fill)

    def _load(self, row: FileRow) -> str:
        data = b"".join(self._files.open(row))
        return compute(b64encode, data).decode()

    def _check(
        self, upstreams: Upstreams, request: ChatRequest, conversation: Conversation, sample: str, target: Target
    ) -> None:
        """Raise NotSupported where the format of the target cannot name such files; nothing is uploaded then."""
        samples = dict.fromkeys(self._rows, sample)
        try:
            upstreams.try_writing(_named(request, conversation, samples), target)
        except ContentNeeded:
            return  # of a URL, which is loaded when the call is written

    def _upload(self, row: FileRow, target: Target, deadline: float) -> PlacedFile:
        return self._at_providers.place(row, content_of_row(self._files, row), target, deadline)


class PlacingUpstreams(Upstreams):
    """Sends the calls of one request, with its files as each target takes them."""

    def __init__(self, upstreams: Upstreams, files: RequestFiles) -> None:
        vars(self).update(vars(upstreams))
        self._inner = upstreams
        self._files = files

    def through(self, opener: Opener, target: Target, operation: str) -> Target:
        """Return a copy of the target as `Upstreams.through` does, for the upstreams that send its calls."""
        return self._inner.through(opener, target, operation)

    def send(
        self,
        request: Request,
        target: Target,
        deadline: float,
        listener: CallListener | None = None,
        should_abandon: Callable[[], bool] | None = None,
    ) -> Any:
        """Send the request and return its result. Errors of `Upstreams.send` and of `RequestFiles.place`."""
        inner = self._inner
        begun = Clock.monotonic()
        placing = self._files.place(inner, request, target, deadline)
        if placing is None:
            return inner.send(request, target, deadline, listener, should_abandon)
        if should_abandon is not None:
            should_abandon = _patient(should_abandon, Clock.monotonic() - begun)
        try:
            result = inner.send(placing.request, target, deadline, listener, should_abandon)
        except GatewayError as error:
            again = self._files.place_again(placing, error, inner, request, target, deadline)
            if again is None:
                raise placing.clean(error) from None
            placing = again
            try:
                result = inner.send(placing.request, target, deadline, listener, should_abandon)
            except GatewayError as second:
                raise placing.clean(second) from None
        return placing.restore_result(result)

    def stream(
        self, request: Request, target: Target, deadline: float, listener: CallListener | None = None
    ) -> Answering:
        """Start a streamed answer. Errors of `Upstreams.stream` and of `RequestFiles.place`."""
        if not isinstance(request, ChatRequest):
            return self._inner.stream(request, target, deadline, listener)
        preparation = PlacedLater(Job(self._files.place, self._inner, request, target, deadline))
        answering = Answering(preparation)
        answering.is_sent = False
        answering.batches = self._prepare(answering, preparation, request, target, deadline, listener)
        return answering

    def _prepare(
        self,
        answering: Answering,
        preparation: "PlacedLater",
        request: Request,
        target: Target,
        deadline: float,
        listener: CallListener | None,
    ) -> Generator[Batch, None, None]:
        """Yield PREPARING while files are uploaded, and then the batches of the answer."""
        while not preparation.wait(self._heartbeat_s):
            yield PREPARING
        placing = preparation.result()
        sent = self._inner.stream(request if placing is None else placing.request, target, deadline, listener)
        answering.follow(sent)
        if placing is None:
            yield from sent.batches
            return
        yield from self._follow(answering, sent.batches, placing, request, target, deadline, listener)

    def _follow(
        self,
        answering: Answering,
        batches: Iterable[Batch],
        placing: Placing,
        request: Request,
        target: Target,
        deadline: float,
        listener: CallListener | None,
    ) -> Generator[Batch, None, None]:
        """Yield the batches of an answer; of a second call where the provider had lost a file."""
        has_begun = False
        try:
            for batch in batches:
                has_begun = has_begun or any(type(event) is not Heartbeat for event in batch)
                yield placing.restore_batch(batch)
            return
        except GatewayError as error:
            if has_begun:  # its events cannot be taken back
                raise placing.clean(error) from None
            again = self._files.place_again(placing, error, self._inner, request, target, deadline)
            if again is None:
                raise placing.clean(error) from None
        second = self._inner.stream(again.request, target, deadline, listener)
        answering.follow(second)
        try:
            yield from map(again.restore_batch, second.batches)
        except GatewayError as error:
            raise again.clean(error) from None


def _patient(should_abandon: Callable[[], bool], spent_s: float) -> Callable[[], bool]:
    """Return the same for a call that began after its files were uploaded, for which its target is not blamed."""
    until = Clock.monotonic() + spent_s
    return lambda: Clock.monotonic() >= until and should_abandon()


class PlacedLater:
    """The files of a request while they are placed."""

    def __init__(self, job: Job[Placing | None]) -> None:
        self._job = job

    def wait(self, seconds: float) -> bool:
        """Wait for some time; return whether the files are placed, or cannot be."""
        with suppress(TimeoutError, GatewayError):
            self._job.result(seconds)
        return self._job.is_over

    def result(self) -> Placing | None:
        """Return the request with its files. Errors of `RequestFiles.place`."""
        return self._job.result()

    def close(self) -> None:
        """End uploads that nobody waits for."""
        self._job.stop()


def content_of_row(files: Files, row: FileRow) -> FileContent:
    """Return a stored file as it is uploaded."""
    lifetime_s = 0
    if row.expires_at is not None:
        lifetime_s = max(1, (row.expires_at - files.now_us()) // SECOND_US)
    name = files.name_of(row) or row.id
    kind = row.media_type or "application/octet-stream"
    return FileContent(name, kind, row.size, partial(files.open, row), lifetime_s)


@contextmanager
def spooled(files: Files, row: FileRow, spool_dir: str) -> Iterator[StoredFile]:
    """Give a stored file as a temporary one, which can be read at any place. Unavailable."""
    spool = StoredFile(spool_dir)
    pieces = files.open(row)
    try:
        for piece in pieces:
            spool.write(piece)
        yield spool
    finally:
        _close(pieces)
        spool.close()


def as_base64(size: int) -> int:
    """Return the size of a file in a request."""
    return -(-size // 3) * 4


def _named(request: ChatRequest, conversation: Conversation, references: dict[str, str]) -> ChatRequest:
    """Return the request with the provider's names of its files."""
    named = _mapped(
        conversation, lambda part: replace(part, media=replace(part.media, file_id=references[part.media.file_id]))
    )
    return request.with_conversation(lambda: named, names_files=True)


def _is_stored(part: Part) -> bool:
    return isinstance(part, Image | Audio | Video | File) and is_own_file(part.media.file_id) is not None


def _files_in(parts: tuple[Part, ...]) -> Iterator[FilePart]:
    """Yield the parts that name files of the gateway."""
    for part in parts:
        if isinstance(part, ToolResult):
            yield from _files_in(part.parts)
        elif isinstance(part, Image | Audio | Video | File) and _is_stored(part):
            yield part


def _documents(conversation: Conversation) -> Iterator[Part]:
    for message in conversation.messages:
        for part in message.parts:
            yield from part.parts if isinstance(part, ToolResult) else (part,)


def _mapped(conversation: Conversation, change: Callable[[FilePart], FilePart | None]) -> Conversation:
    """Return the conversation with the parts that name files of the gateway changed; None: left out."""

    def walk(parts: tuple[Part, ...]) -> tuple[Part, ...]:
        changed: list[Part] = []
        for part in parts:
            if isinstance(part, ToolResult):
                changed.append(replace(part, parts=walk(part.parts)))
            elif isinstance(part, Image | Audio | Video | File) and _is_stored(part):
                new = change(part)
                if new is not None:
                    changed.append(new)
            else:
                changed.append(part)
        return tuple(changed)

    def within(message: Message) -> Message:
        if any(isinstance(part, ToolResult) or _is_stored(part) for part in message.parts):
            return replace(message, parts=walk(message.parts))
        return message

    return replace(conversation, messages=tuple(map(within, conversation.messages)))


def _close(pieces: object) -> None:
    close = getattr(pieces, "close", None)
    if close is not None:
        close()
