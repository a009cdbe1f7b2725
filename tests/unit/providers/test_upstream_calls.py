"""Large answers of providers are read, and written for their callers, in native threads."""

import threading
from typing import Any

import pytest
from support.replies import json_reply

from gateway.errors import UpstreamFailed
from gateway.neutral.chat import ChatResult, Choice
from gateway.neutral.json_weight import LARGE_WITHOUT_PARTS as LARGE
from gateway.neutral.parts import ToolCall
from gateway.providers import upstream_calls
from gateway.providers.upstream_calls import MAX_PARTS
from gateway.surfaces.web.http_responses import result_reply


class Reader:
    """Reads any answer as so many tool calls, and notes its thread."""

    def __init__(self, calls: int = 1) -> None:
        self.calls = calls
        self.threads: list[int] = []

    def read(self, reply: Any, relayed: bool) -> ChatResult:
        self.threads.append(threading.get_native_id())
        reply.read_all()
        return ChatResult((Choice(tuple(ToolCall(f"call_{n}", "get", "{}") for n in range(self.calls)), "stop"),))


@pytest.mark.parametrize(("size", "apart"), [(10, False), (LARGE, True)])
@pytest.mark.parametrize("relayed", [False, True])
def test_an_answer_is_read_and_written_in_a_thread_when_it_is_large(size: int, apart: bool, relayed: bool) -> None:
    reader, here = Reader(), threading.get_native_id()
    result = upstream_calls.read_answer(reader, json_reply("x" * size), relayed)
    assert [thread != here for thread in reader.threads] == [apart] and result.large is apart
    written: list[int] = []

    def write(one: ChatResult) -> dict[str, str]:
        written.append(threading.get_native_id())
        return {"id": one.model}

    assert result_reply(result, write).body == b'{"id":""}'
    assert [one != here for one in written] == [apart]


def test_a_large_answer_of_many_calls_is_passed_on_unchanged_alone() -> None:
    reader = Reader(MAX_PARTS + 1)
    with pytest.raises(UpstreamFailed, match="more than 5,000 texts and calls"):
        upstream_calls.read_answer(reader, json_reply("x" * LARGE), False)
    assert upstream_calls.read_answer(reader, json_reply("x" * LARGE), True).large
