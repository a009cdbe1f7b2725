"""Tokens of media in chat requests, by their content."""

from base64 import b64encode

import pytest
from support.pdfs import packed

from gateway.media.token_counting import (
    IMAGE_TOKENS,
    LIKELY_PAGE_TOKENS,
    MAX_CONTEXT_TOKENS,
    PAGE_TOKENS,
    MediaCount,
    count,
    counted,
)
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.neutral.operations import chat_tokens
from gateway.neutral.parts import Audio, File, Image, Media, Message, Part, Text, ToolResult
from gateway.neutral.request import Requirements
from gateway.providers.sandbox import speech

PDF = packed(1000, decoy=b"% /Type /Page \n")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100
FLAC = b"fLaC" + b"\0" * 144_000


def media(data: bytes, kind: str = "") -> Media:
    return Media(kind, data=b64encode(data).decode())


def request(*parts: Part) -> ChatRequest:
    conversation = Conversation((Message("user", parts),))
    return ChatRequest("m", Requirements(prompt_bytes=10, messages=1, media=len(parts)), lambda: conversation)


@pytest.mark.parametrize(
    "part",
    [
        File(media(PDF, "application/pdf")),
        File(media(PDF), "notes.txt"),
        File(media(b"\n\n" + PDF, "text/plain")),
        Image(media(PDF, "image/png")),
        Audio(media(PDF, "audio/wav"), "wav"),
        File(
            Media("", data="\n".join(b64encode(PDF).decode()[at : at + 76] for at in range(0, len(PDF) * 4 // 3, 76)))
        ),
    ],
    ids=["pdf", "as text", "after a line", "as an image", "as sound", "in lines"],
)
def test_a_pdf_counts_by_its_pages_under_whatever_name(part: File | Image | Audio) -> None:
    found = count(part)
    assert found.maximum >= 1000 * PAGE_TOKENS
    assert found.likely >= 1000 * LIKELY_PAGE_TOKENS


def test_a_pdf_that_cannot_be_read_counts_as_more_than_any_context() -> None:
    assert count(File(media(b"%PDF-1.7 garbage"))).maximum == MAX_CONTEXT_TOKENS
    assert count(File(media(b"no pdf at all", "application/pdf"))).maximum == MAX_CONTEXT_TOKENS


def test_a_text_counts_by_its_bytes_and_a_packed_file_by_its_possible_content() -> None:
    assert count(File(media(b"a" * 4000, "text/csv"))) == MediaCount(4000, 1000)
    packed_file = count(File(media(b"PK\x03\x04" + b"\0" * 9996, "text/plain"), "a.docx"))
    assert packed_file.maximum >= 10_000_000


@pytest.mark.parametrize("begin", [b"GIF89a", b"BM", b"ID3", b"fLaC", b"#!AMR\n", b"%PDF-", b"\xff\xd8\xff"], ids=str)
@pytest.mark.parametrize("kind", ["text/plain", "application/json", ""])
def test_a_text_that_begins_like_another_file_counts_as_text_where_it_is_named_so(begin: bytes, kind: str) -> None:
    """A text of 3 MB that begins with "GIF89a" was reserved as an image of 16,384 tokens."""
    text = begin + b" word" * 600_000
    assert count(File(media(text, kind), "notes.txt")).maximum >= len(text)
    if kind:
        assert count(Image(media(text, kind))).maximum >= len(text)


def test_a_sound_in_which_a_decoder_may_find_more_is_marked() -> None:
    found = count(Audio(media(speech.make("aac", 10.0)), "aac"))
    assert found.unseen == 1 and found.maximum == pytest.approx(10 * 50, abs=5)


def test_content_that_only_the_provider_reads_is_marked() -> None:
    for part in (File(Media(url="https://example.com/a.pdf")), File(Media(file_id="file-1"))):
        assert count(part).unseen == 1
    assert count(Image(Media(url="https://example.com/a.png"))) == MediaCount(IMAGE_TOKENS, 765)
    assert count(Image(Media(file_id="file-1"))).unseen == 1


def test_images_count_as_the_largest_and_as_usual() -> None:
    assert count(Image(media(PNG, "image/png"))) == MediaCount(IMAGE_TOKENS, 765)
    assert count(Image(media(PNG, "image/png"), "low")) == MediaCount(IMAGE_TOKENS, 85)
    assert count(File(media(PNG, "image/png"))).maximum == IMAGE_TOKENS


def test_sound_that_may_be_hours_of_silence_counts_as_that() -> None:
    assert count(Audio(media(FLAC), "flac")).maximum >= 16_000 * 50


def test_a_request_has_the_sum_of_its_media_and_those_in_results_of_tools() -> None:
    nested = ToolResult("1", (Text("a"), Image(media(PNG))))
    found = counted(request(File(media(PDF)), nested, Image(media(PNG)))).requirements
    assert found.media_tokens >= 1000 * PAGE_TOKENS + 2 * IMAGE_TOKENS
    assert chat_tokens(counted(request(nested))) == 10 + 16 + IMAGE_TOKENS


def test_a_text_alone_is_not_looked_at() -> None:
    plain = ChatRequest("m", Requirements(prompt_bytes=10, messages=1), lambda: None)
    assert counted(plain) is plain and chat_tokens(plain) == 26


@pytest.mark.parametrize(
    "data",
    [
        " " * 3000 + media(PDF).data,
        media(PDF).data[0] + " " * 3000 + media(PDF).data[1:],
        "\r\n" * 2000 + media(PDF).data,
    ],
    ids=["before it", "within it", "lines"],
)
def test_white_space_hides_no_pdf(data: str) -> None:
    """Only the first 1,372 characters were examined, whatever they were."""
    for part in (File(Media("text/plain", data=data)), Image(Media("image/png", data=data))):
        assert count(part).maximum >= 1000 * PAGE_TOKENS


@pytest.mark.parametrize(
    ("data", "maximum"),
    [
        (b"word " * 200_000, 1_000_000),
        (b"PK\x03\x04" + b"\0" * 1000, 1_000_000),
        (b"x" * 5000 + PDF, 1_000_000),
        (b"hi", IMAGE_TOKENS),
        (b"II*\0" + b"\0" * 100_000, IMAGE_TOKENS),
        (b"MM\0*" + b"\0" * 100_000, IMAGE_TOKENS),
    ],
    ids=["text", "archive", "document behind other bytes", "two bytes", "tiff", "big-endian tiff"],
)
def test_a_file_sent_as_an_image_counts_as_what_it_contains(data: bytes, maximum: int) -> None:
    """Google reads any file of an image part by its media type; a megabyte of text was reserved as one image."""
    found = count(Image(media(data, "image/tiff" if maximum == IMAGE_TOKENS else "text/plain"))).maximum
    assert found >= maximum and (found == IMAGE_TOKENS) == (maximum == IMAGE_TOKENS)


@pytest.mark.parametrize(
    ("url", "kind", "unseen"),
    [
        ("https://x.example/a.pdf", "", 1),
        ("https://x.example/a.PDF?page=1", "", 1),
        ("https://x.example/a.mp4", "", 1),
        ("https://x.example/a", "application/pdf", 1),
        ("https://x.example/a.txt", "image/png", 0),
        ("https://x.example/a.png", "", 0),
        ("https://x.example/a", "", 0),
    ],
)
def test_a_file_at_the_url_of_an_image_is_admitted_one_at_a_time(url: str, kind: str, unseen: int) -> None:
    """Google loads it by the type of its name: parallel requests that were reserved as images read whole documents."""
    assert count(Image(Media(kind, url=url))).unseen == unseen


def test_only_a_name_of_another_kind_makes_content_count_as_text() -> None:
    image, document = PNG + bytes(200_000), packed(1) + b"%" + b"x" * 200_000
    for name in ("", "application/octet-stream", "image/png", "audio/mpeg", "video/mp4"):
        assert count(File(media(image, name))).maximum < len(image), name
    for name in ("", "application/octet-stream", "application/pdf", "application/x-pdf"):
        assert count(File(media(document, name))).maximum < len(document), name
    for content in (image, document):
        assert count(File(media(content, "text/plain"))).maximum >= len(content)
