"""Token counts of media in chat requests: maximum and likely.

Media are counted by their content. A name or a media type from the caller can only raise the count.
"""

import mimetypes
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec import structs

from gateway.media.pdf_reader import HEAD, READER, PdfFacts, is_pdf
from gateway.media.sounds import SoundDuration, length_of
from gateway.neutral.chat import ChatRequest
from gateway.neutral.file_types import decode_base64, inline_media, normalize_base64, type_of
from gateway.neutral.hosted_uses import HostedUse, is_stored
from gateway.neutral.own_files import check_foreign
from gateway.neutral.parts import Audio, File, Image, Media, Part, ToolResult, VendorPart, Video
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import compute, compute_if

# The highest observed count of one image (Qwen-VL at its highest resolution), and that of a usual image (OpenAI
# documentation, "Images and vision": 1024 × 1024 in high detail). Low detail is 85 tokens.
IMAGE_TOKENS = 16_384
LIKELY_IMAGE_TOKENS = 765
LOW_DETAIL_TOKENS = 85
# A PDF page is read as an image of limited size and as its text (documentation of OpenAI, "File inputs", and of
# Anthropic, "PDF support"; the largest image of a page is Anthropic's with 4,784 tokens).
PAGE_TOKENS = 5_000
LIKELY_PAGE_TOKENS = 765
# Providers count 10 to 33 tokens for a second of audio; the bounds have a margin.
AUDIO_TOKENS_PER_SECOND = 50
TYPICAL_AUDIO_TOKENS_PER_SECOND = 10
BYTES_PER_TOKEN = 4
# The maximum compression ratio of Deflate: office documents are compressed, and providers read their text.
PACKED = 1032
# The count of a file that the gateway cannot see (at a URL or at the provider) if the model's context is unknown; such
# a file is admitted with the tokens of an image.
MAX_CONTEXT_TOKENS = 2_000_000
SECOND_MS = 1000
LARGE = 1 << 18  # characters of base64
TIFF = (b"II*\0", b"MM\0*")
UNTYPED = ("application/octet-stream", "application/pdf", "application/x-pdf")
RICH = ("image", "audio", "video")
STORED_FILE = (HostedUse("", "file_id", "object"),)


class MediaCount(NamedTuple):
    """Token counts of media: the `maximum`, the `likely`, and the number of `unseen` media (IMAGE_TOKENS each in
    `maximum`).
    """

    maximum: int = 0
    likely: int = 0
    unseen: int = 0

    def plus(self, other: "MediaCount") -> "MediaCount":
        return MediaCount(self.maximum + other.maximum, self.likely + other.likely, self.unseen + other.unseen)


NO_MEDIA = MediaCount()
UNREADABLE_FILE = MediaCount(IMAGE_TOKENS, LIKELY_PAGE_TOKENS, 1)


def counted(request: ChatRequest) -> ChatRequest:
    """Return the request with the tokens of its media in its requirements, and the use of files that a provider stores.

    A request without media is returned unchanged. Raise InvalidRequest for invalid contents of the conversation.
    """
    needs = request.requirements
    if not needs.media or needs.media_tokens:
        return request
    total = NO_MEDIA
    uses = needs.hosted_uses
    for message in request.conversation().messages:
        for part in _media_of(message.parts):
            total = total.plus(count(part))
            if part.media.file_id:
                check_foreign(part.media.file_id)
            if part.media.file_id or (part.media.url and is_stored(part.media.url)):
                uses = STORED_FILE
    changed = structs.replace(
        needs,
        media_tokens=total.maximum,
        likely_media_tokens=total.likely,
        unseen_media=total.unseen,
        hosted_uses=uses if uses is needs.hosted_uses else (*needs.hosted_uses, *uses),
    )
    return structs.replace(request, requirements=changed)


def count(part: Image | Audio | Video | File) -> MediaCount:
    """Return the tokens of one part."""
    media = part.media
    if not media.data:
        if isinstance(part, Image) and media.url and not _is_named_as_file(media):
            return _count_image(part)
        return UNREADABLE_FILE
    content = _InlineContent(media)
    return _count(part, content, _head_of(media))


def count_stored(part: Image | Audio | Video | File, file: StoredFile) -> MediaCount:
    """Return the tokens of a part with its content in a file."""
    return _count(part, _StoredContent(file), file.read(HEAD))


def _count(part: Image | Audio | Video | File, content: "_InlineContent | _StoredContent", head: bytes) -> MediaCount:
    kind = type_of(head)
    counted = _count_content(part, content, kind, head)
    if counted is None or _is_named_as_document(part):
        as_file = content.count_file(kind)
        if counted is None:
            counted = as_file
        counted = counted._replace(maximum=max(counted.maximum, as_file.maximum))
        if isinstance(part, Image):  # some providers read any file that is sent as an image
            counted = counted._replace(maximum=max(counted.maximum, IMAGE_TOKENS))
    return counted


class _InlineContent:
    """The content of media as base64."""

    def __init__(self, media: Media) -> None:
        self._media = media

    def count_pdf(self) -> MediaCount:
        return _count_pdf(self._media)

    def count_sound(self) -> MediaCount:
        media = self._media
        return _count_sound(compute_if(len(media.data) >= LARGE, _length_of, media.data))

    def count_file(self, kind: str) -> MediaCount:
        media = self._media
        return compute_if(len(media.data) >= LARGE, _count_file, media, kind)


class _StoredContent:
    """The content of media in a file, which is read in pieces."""

    def __init__(self, file: StoredFile) -> None:
        self._file = file

    def count_pdf(self) -> MediaCount:
        return pdf_tokens(READER.read_stored(self._file))

    def count_sound(self) -> MediaCount:
        return _count_sound(compute(length_of, self._file))

    def count_file(self, kind: str) -> MediaCount:
        return _count_bytes(len(self._file), not kind and compute(_is_stored_text, self._file))


def _count_content(
    part: Image | Audio | Video | File, content: _InlineContent | _StoredContent, kind: str, head: bytes
) -> MediaCount | None:
    """Return the tokens of a PDF, a sound or an image; None for other contents."""
    if is_pdf(head) or any("pdf" in name for name in _types_of(part)):
        return content.count_pdf()
    if isinstance(part, Audio) or kind.startswith("audio/"):
        return content.count_sound()
    if kind.startswith("image/") or head[:4] in TIFF:
        return _count_image(part)
    return None


def pdf_tokens(facts: PdfFacts | None) -> MediaCount:
    """Return the tokens of a PDF. An unreadable one counts more than any context at most, and usually as one page."""
    if facts is None:
        return MediaCount(MAX_CONTEXT_TOKENS, LIKELY_PAGE_TOKENS)
    likely = facts.pages * LIKELY_PAGE_TOKENS + facts.text_bytes // BYTES_PER_TOKEN * facts.pages // facts.max_pages
    return MediaCount(facts.max_pages * PAGE_TOKENS + facts.text_bytes, likely)


def _media_of(parts: tuple[Part, ...]) -> Iterator[Image | Audio | Video | File]:
    for part in parts:
        if isinstance(part, ToolResult):
            yield from _media_of(part.parts)
        elif isinstance(part, Image | Audio | Video | File):
            yield part
        elif isinstance(part, VendorPart):
            yield from _media_of(part.instead)
            yield from _inline_files(part.body)
        beside = getattr(part, "beside", None)
        if beside is not None:
            yield from _inline_files(beside.body)


def _inline_files(body: Any) -> Iterator[File]:
    """Yield the inline files in content of a form that is newer than this gateway."""
    for data, _ in inline_media(body):
        yield File(Media(data=data))


def _is_named_as_file(media: Media) -> bool:
    """Return whether a URL of an image is that of another file by its media type or name. Google loads it as that."""
    kind = media.media_type or mimetypes.guess_type(media.url.partition("?")[0])[0]
    return bool(kind) and not str(kind).startswith("image/")


def _is_named_as_document(part: Image | Audio | Video | File) -> bool:
    """Return whether the caller names another type than PDF, image, sound or video. A provider may read the content as
    that: a text may begin like an image."""
    return any(name and name not in UNTYPED and name.partition("/")[0] not in RICH for name in _types_of(part))


def _types_of(part: Image | Audio | Video | File) -> list[str]:
    """Return the media types that the caller names, by type and by file name."""
    names = [part.media.media_type]
    if isinstance(part, File):
        names.append(mimetypes.guess_type(part.filename)[0] or "")
    return names


def _count_image(part: Image | Audio | Video | File) -> MediaCount:
    low = isinstance(part, Image) and part.detail == "low"
    return MediaCount(IMAGE_TOKENS, LOW_DETAIL_TOKENS if low else LIKELY_IMAGE_TOKENS)


def _count_pdf(media: Media) -> MediaCount:
    data = compute_if(len(media.data) >= LARGE, _decode, media.data)
    return pdf_tokens(None if data is None else READER.read(data))


def _count_sound(length: SoundDuration) -> MediaCount:
    maximum = length.foreseen_ms * AUDIO_TOKENS_PER_SECOND
    likely = length.likely_ms * TYPICAL_AUDIO_TOKENS_PER_SECOND
    return MediaCount(-(-maximum // SECOND_MS), -(-likely // SECOND_MS), int(length.foreseen_ms < length.max_ms))


def _length_of(text: str) -> SoundDuration:
    data = _decode(text)
    return length_of(StoredFile.of(data if data is not None else text.encode("utf-8", "replace")))


def _count_file(media: Media, kind: str) -> MediaCount:
    """Return the tokens of a text by its bytes, because a token has at least one. Other files may be compressed."""
    data = _decode(media.data)
    if data is None:
        return MediaCount(len(media.data) * PACKED, LIKELY_PAGE_TOKENS)
    return _count_bytes(len(data), not kind and _is_text(data))


def _count_bytes(size: int, is_text: bool) -> MediaCount:
    if is_text:
        return MediaCount(size, -(-size // BYTES_PER_TOKEN))
    return MediaCount(size * PACKED, LIKELY_PAGE_TOKENS)


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_stored_text(file: StoredFile) -> bool:
    decoder = getincrementaldecoder("utf-8")()
    try:
        for piece in file.pieces():
            if b"\0" in piece:
                return False
            decoder.decode(piece)
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        return False
    return True


def _decode(text: str) -> bytes | None:
    """Decode base64 like lenient readers; None if it is invalid."""
    try:
        return decode_base64(text)
    except ValueError:
        pass
    try:
        return decode_base64(normalize_base64(text))
    except ValueError:
        return None


def _head_of(media: Media) -> bytes:
    """Return the first bytes, which show the type."""
    head_length = (HEAD // 3 + 2) * 4
    head = _decode(media.data[:head_length]) or b""
    if len(head) < HEAD and len(media.data) > head_length:  # there is white space between the characters
        head = (compute_if(len(media.data) >= LARGE, _decode, media.data) or b"")[:HEAD]
    return head
