"""Answers of batch APIs that no provider should send."""

import json

import pytest

from gateway.providers.google.batches import GoogleBatchApi
from gateway.providers.openai.batches import OpenAIBatchApi


@pytest.mark.parametrize("status", [10**30, -5, 99, 600, "ok", True, None, [200]])
def test_a_status_that_is_none_is_an_error_of_the_line(status):
    line = json.dumps({"custom_id": "part_1-1", "response": {"status_code": status, "body": {}}})
    assert OpenAIBatchApi().read_result(line.encode()).status == 503
    line = json.dumps({"key": "part_1-1", "error": {"code": status, "message": "No."}})
    assert GoogleBatchApi(lambda headers, target: None).read_result(line.encode()).status == 503
