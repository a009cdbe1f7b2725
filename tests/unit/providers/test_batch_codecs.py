"""Answers of batch APIs that no provider should send."""

import json

import pytest

from gateway.errors import UpstreamFailed
from gateway.providers.batches import batch_calls
from gateway.providers.batches.batch_calls import split_lines
from gateway.providers.google.batches import GoogleBatchApi
from gateway.providers.openai.batches import OpenAIBatchApi


@pytest.mark.parametrize("status", [10**30, -5, 99, 600, "ok", True, None, [200]])
def test_a_status_that_is_none_is_an_error_of_the_line(status):
    line = json.dumps({"custom_id": "part_1-1", "response": {"status_code": status, "body": {}}})
    assert OpenAIBatchApi().read_result(line.encode()).status == 503
    line = json.dumps({"key": "part_1-1", "error": {"code": status, "message": "No."}})
    assert GoogleBatchApi(lambda headers, target: None).read_result(line.encode()).status == 503


def test_a_line_of_results_has_a_largest_size(monkeypatch):
    monkeypatch.setattr(batch_calls, "MAX_RESULT_BYTES", 100)
    assert list(split_lines(iter([b"a" * 60, b"b" * 30 + b"\n\n", b"c\n", b"d"]))) == [
        b"a" * 60 + b"b" * 30,
        b"c",
        b"d",
    ]
    sent = iter([b"a\n", *[b"b" * 60] * 3])
    lines = split_lines(sent)
    assert next(lines) == b"a"
    with pytest.raises(UpstreamFailed):
        next(lines)
    assert next(sent)  # it was not read to its end
