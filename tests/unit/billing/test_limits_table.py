"""The table of limits in docs/security.md, held against the code."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.limits_page import documented_operation, limits_section

from gateway.billing.bounds import MAX_OUTPUT_TOKENS, MAX_SEARCHES, compute_bound
from gateway.catalogue.entries import Mapping, Prices, TokenRates
from gateway.limits.cost_bound import CostBound, fit
from gateway.media import frame_counting, token_counting
from gateway.money import MILLION
from gateway.neutral import images, operations, realtime
from gateway.neutral.chat import ChatRequest, Requirements
from gateway.neutral.request import Request
from gateway.neutral.structured import OcrRequest
from gateway.neutral.transcriptions import TranscriptionInput, TranscriptionRequest, units_of
from gateway.neutral.usage import Units, Usage
from gateway.runtime.large_files import StoredFile
from gateway.surfaces import surface_table
from gateway.surfaces.openai import ocr

AT_US = 1_780_000_000_000_000
CONTEXT, OUTPUT_LIMIT = 200_000, 4_000
MAPPING = Mapping(
    "p",
    "m",
    "x",
    prices=(Prices(TokenRates(prompt=3 * 10**9, completion=15 * 10**9, ocr_page=4 * 10**12)),),
    context_length=CONTEXT,
    max_output=OUTPUT_LIMIT,
)
NUMBERS = {
    "chat": (
        token_counting.IMAGE_TOKENS,
        token_counting.PAGE_TOKENS,
        token_counting.AUDIO_TOKENS_PER_SECOND,
        token_counting.PACKED,
        MAX_SEARCHES,
        MAX_OUTPUT_TOKENS,
    ),
    "transcriptions": (frame_counting.MIN_BYTES_PER_SECOND, frame_counting.MIN_AAC_BLOCK_BYTES),
    "images": (images.READ_TOKENS,),
    "moderations": (operations.MEDIA_TOKENS,),
    "ocr": (ocr.MAX_PAGES, ocr.MAX_PAGES - 1),
    "realtime": (realtime.MIN_BYTES_PER_SECOND, realtime.MIN_TRANSCRIBED_MS // 1000),
}


def rows() -> dict[str, tuple[str, str]]:
    """By operation: the whole row, and by what it passes a limit."""
    found = {}
    for line in limits_section().splitlines():
        cells = line.strip("|").split("|")
        if line.startswith("| `") and len(cells) > 2:
            found |= {name: (line, cells[2].strip()) for name in re.findall(r"`(\w+)`", cells[0])}
    return found


def chat(**needs: object) -> ChatRequest:
    return ChatRequest("m", Requirements(prompt_bytes=100, messages=1, **needs), lambda: None)


def bound_of(request: Request) -> CostBound:
    return compute_bound(request, (MAPPING,), 4096, AT_US)


def test_every_operation_has_a_row() -> None:
    assert set(rows()) == set(operations.names())


def test_every_address_that_costs_money_belongs_to_an_operation() -> None:
    paid = [operation.path for operation in surface_table.operations() if operation.paid]
    named = {path: documented_operation(path) for path in paid}
    assert [path for path, name in named.items() if name not in operations.names()] == []


@pytest.mark.parametrize("operation", NUMBERS)
def test_the_table_has_the_numbers_of_the_code(operation: str) -> None:
    row = rows()[operation][0]
    assert [number for number in NUMBERS[operation] if not re.search(rf"(?<![\d,]){number:,}(?![\d,])", row)] == []


@pytest.mark.parametrize(
    "needs",
    [
        {"media": 1, "documents": True, "media_tokens": token_counting.IMAGE_TOKENS, "unseen_media": 1},
        {"web_search": True},
        {"hosted": "anthropic"},
        {"vendor_only": "responses"},
    ],
    ids=["file at an address", "web search", "hosted tool", "parts of a vendor"],
)
def test_content_that_only_the_provider_sees_is_reserved_as_one_context(needs: dict[str, object]) -> None:
    found = bound_of(chat(max_tokens=10, **needs))
    price = CONTEXT * 3 * 10**9 // MILLION
    assert price <= found.fixed_nusd <= price + 100 and 0 < found.unforeseen_nusd < price
    assert "one context" in rows()["chat"][1]


@pytest.mark.parametrize(("context", "longest"), [(0, MAX_OUTPUT_TOKENS), (50_000, 50_000), (10**6, MAX_OUTPUT_TOKENS)])
def test_the_longest_answer_of_a_model_without_a_limit_is_reserved(context: int, longest: int) -> None:
    mapping = replace(MAPPING, context_length=context, max_output=0)

    def bound(**needs: object) -> CostBound:
        return compute_bound(chat(**needs), (mapping,), 4096, AT_US)

    found = bound()
    price = 15 * 10**9 // MILLION
    assert found.bound_nusd - found.fixed_nusd == longest * price
    assert found.max_output == 4096 and found.min_nusd < found.bound_nusd
    assert bound(n=3).bound_nusd - bound(n=3).fixed_nusd == 3 * longest * price
    assert bound(max_tokens=10).unforeseen_output == 0
    assert "its longest answer" in rows()["chat"][1]


@given(
    st.sampled_from([10, None]),
    st.integers(0, 3),
    st.integers(0, 2 * CONTEXT),
    st.integers(0, 2 * 10**9),
)
def test_a_limit_is_exceeded_by_at_most_the_documented_amount(
    limit: int | None, unseen: int, media_tokens: int, available: int
) -> None:
    found = bound_of(chat(max_tokens=limit, media=1, media_tokens=media_tokens, unseen_media=unseen))
    need = fit(found, available)
    excess = 0 if need is None else max(0, need.amount_nusd - available)
    assert excess <= (CONTEXT * 3 * 10**9 // MILLION if unseen else 0)
    assert found.fixed_nusd <= CONTEXT * 3 * 10**9 // MILLION + 100


def test_pages_of_an_image_at_an_address_are_all_that_passes_a_limit_for_ocr() -> None:
    def pages(maximum: int, unforeseen: bool) -> CostBound:
        units = Units(Usage(pages=maximum), Usage(pages=1), Usage(pages=1) if unforeseen else None)
        return bound_of(OcrRequest("m", Requirements(max_tokens=0, messages=1, units=units), lambda: {}))

    page = pages(1, False).bound_nusd - pages(0, False).bound_nusd
    assert abs(pages(ocr.MAX_PAGES, True).unforeseen_nusd - (ocr.MAX_PAGES - 1) * page) < 100
    assert pages(ocr.MAX_PAGES, False).unforeseen_nusd == 0


def test_blocks_within_frames_are_all_that_passes_a_limit_for_transcripts() -> None:
    def sound(max_ms: int, foreseen_ms: int) -> CostBound:
        content = TranscriptionInput(StoredFile.of(b""), "audio/aac", "a")
        units = units_of(content, foreseen_ms, max_ms, foreseen_ms)
        return bound_of(TranscriptionRequest("m", Requirements(max_tokens=0, messages=1, units=units), lambda: content))

    visible, hidden = sound(60_000, 60_000), sound(600_000, 60_000)
    assert visible.unforeseen_nusd == 0
    assert hidden.bound_nusd - hidden.unforeseen_nusd == visible.bound_nusd < hidden.bound_nusd


def test_no_operation_passes_a_limit_beside_those_of_the_table() -> None:
    passing = {name for name, (_, excess) in rows().items() if excess != "nothing"}
    assert passing == {"chat", "ocr", "realtime", "transcriptions", "translations"}
    assert bound_of(chat(max_tokens=10)).unforeseen_nusd == 0
    assert bound_of(chat(max_tokens=10, media=3, media_tokens=50_000)).unforeseen_nusd == 0
