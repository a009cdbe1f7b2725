import anthropic
import pytest

from gateway.dialects.anthropic import read_citation, write_citation
from gateway.neutral.parts import Source, SourceRange

CITATIONS = [
    {"type": "char_location", "cited_text": "x", "document_index": 1, "document_title": "D", "file_id": "f1",
     "start_char_index": 0, "end_char_index": 5},
    {"type": "page_location", "cited_text": "x", "document_index": 0, "document_title": None, "file_id": None,
     "start_page_number": 2, "end_page_number": 3},
    {"type": "content_block_location", "cited_text": "x", "document_index": 0, "document_title": "D", "file_id": None,
     "start_block_index": 4, "end_block_index": 6},
    {"type": "search_result_location", "cited_text": "x", "source": "https://a.example", "title": "A",
     "search_result_index": 2, "start_block_index": 0, "end_block_index": 1},
    {"type": "web_search_result_location", "cited_text": "x", "url": "https://a.example", "title": "A",
     "encrypted_index": ""},
]  # fmt: skip


@pytest.mark.parametrize("wire", CITATIONS, ids=lambda wire: wire["type"])
def test_citation_comes_back_as_it_was(wire):
    written = write_citation(read_citation(wire))
    assert written == wire
    anthropic.types.TextBlock.model_validate({"type": "text", "text": "x", "citations": [written]}, strict=True)


@pytest.mark.parametrize(
    "wire", [None, "x", {}, {"type": "char_location", "document_index": "1", "start_char_index": -3}, {"url": 3}]
)
def test_odd_citation_breaks_nothing(wire):
    found = read_citation(wire)
    assert found is None or found.place == SourceRange("characters", 0)


def test_unknown_place_is_written_as_numbers():
    written = write_citation(Source("", "Facts", "x", place=SourceRange("result", 0, file_id="d1")))
    assert (written["source"], written["start_block_index"], written["end_block_index"]) == ("d1", 0, 0)
