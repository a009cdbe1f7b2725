"""Faults and timing of the sandbox: the reader of the reply sees each of them, and no sooner than requested."""

import orjson
import pytest

from gateway.catalogue import loader
from gateway.clock import Clock
from gateway.errors import StreamTruncated, UpstreamTimeout, UpstreamUnreachable
from gateway.providers.protocol import Call
from gateway.providers.sandbox.directives import find
from gateway.providers.sandbox.sandbox_server import OPERATIONS, SandboxServer
from gateway.providers.sandbox.speech import VOICES


class ManualClock(Clock):
    """Stands still until something pauses."""

    def __init__(self):
        self.at = 100.0

    def monotonic(self):
        return self.at

    def pause(self, seconds):
        self.at += seconds


class Bench:
    def __init__(self):
        self.clock = ManualClock()
        self.server = SandboxServer(self.clock, self.clock.pause)

    def open(self, text, model="echo", *, wait=60.0, heartbeat=10.0, path="/chat/completions", method="POST", **body):
        body = {"model": model, "messages": [{"role": "user", "content": text}], **body}
        call = Call(method, f"http://sandbox.invalid/v1{path}", {}, orjson.dumps(body))
        return self.server.open(call, deadline=self.clock.at + wait, heartbeat_s=heartbeat)

    def stream(self, text, model="echo", **body):
        return list(self.open(text, model, stream=True, **body).chunks())

    def passed(self):
        return self.clock.at - 100.0


@pytest.fixture
def bench():
    return Bench()


def error_of(reply):
    return orjson.loads(reply.read_all())["error"]


def test_status_directive_answers_with_that_status_and_retry_after(bench):
    reply = bench.open("hi [[sandbox: status=429 retry_after=3]]")
    assert (reply.status, reply.headers["retry-after"]) == (429, "3")
    assert error_of(reply)["code"] == "rate_limit_exceeded"


def test_code_directive_replaces_the_usual_code(bench):
    reply = bench.open("hi [[sandbox: status=400 code=context_length_exceeded]]")
    assert error_of(reply)["code"] == "context_length_exceeded"


def test_every_status_from_400_to_599_has_an_error_body(bench):
    for status in (418, 451, 507, 599):
        assert error_of(bench.open(f"[[sandbox: status={status}]]"))["message"]


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 429, 500, 503])
def test_failing_models_fail_without_any_directive(bench, status):
    reply = bench.open("hi", f"fail-{status}")
    assert reply.status == status
    assert error_of(reply)["type"]


def test_fail_takes_another_status_from_the_prompt(bench):
    assert bench.open("hi", "fail").status == 500
    assert bench.open("[[sandbox: status=502]]", "fail").status == 502


def test_refused_connection_raises_before_any_reply(bench):
    with pytest.raises(UpstreamUnreachable):
        bench.open("[[sandbox: refuse_connection]]")
    with pytest.raises(UpstreamUnreachable):
        bench.open("hi", "fail-refused")


def test_bare_timeout_lasts_until_the_deadline(bench):
    with pytest.raises(UpstreamTimeout):
        bench.open("[[sandbox: timeout]]", wait=30)
    assert bench.passed() == 30


def test_timeout_with_seconds_ends_earlier_than_the_deadline(bench):
    with pytest.raises(UpstreamTimeout):
        bench.open("hi", "fail-timeout", wait=30)
    assert bench.passed() == 1


def test_slow_start_delays_the_headers(bench):
    assert bench.open("[[sandbox: slow_start=4]]").status == 200
    assert bench.passed() == 4


def test_slow_start_beyond_the_deadline_times_out(bench):
    with pytest.raises(UpstreamTimeout):
        bench.open("[[sandbox: slow_start=40]]", wait=5)


def test_silence_is_heartbeats_then_the_first_chunk(bench):
    chunks = bench.stream("hi [[sandbox: silent=30]]", heartbeat=10)
    assert chunks[:2] == [b"", b""]
    assert chunks[2].startswith(b"data: ")
    assert chunks.count(b"") == 2
    assert bench.passed() == 30


def test_silence_beyond_the_deadline_times_out_while_reading(bench):
    reply = bench.open("hi [[sandbox: silent=30]]", wait=25, stream=True)
    with pytest.raises(UpstreamTimeout):
        list(reply.chunks())
    assert bench.passed() == 25


def test_pace_spaces_the_chunks_of_a_stream(bench):
    chunks = bench.stream("four four [[sandbox: pace=20]]")
    assert bench.passed() == pytest.approx(0.02 * (len(chunks) - 1))


def test_rate_and_chunk_size_set_the_pace(bench):
    chunks = bench.stream("[[sandbox: rate=50 chunk=10 tokens=100]]", "template")
    assert len(chunks) == 13  # opening, ten pieces, closing, [DONE]
    assert bench.passed() == pytest.approx(12 * 10 / 50)


def test_plain_answer_takes_as_long_as_its_stream(bench):
    bench.open("[[sandbox: pace=10 tokens=100]]").read_all()
    assert bench.passed() == pytest.approx(1.02)


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("echo", {"n": 3}),
        ("template", {"n": 2}),
        ("reasoning", {}),
        ("tools", {"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]}),
    ],
)
@pytest.mark.parametrize("size", [1, 3])
def test_plain_answers_of_every_kind_take_as_long_as_their_streams(bench, model, more, size):
    text = f"look: Grüße aus Köln [[sandbox: pace=10 chunk={size}]]"
    bench.stream(text, model, **more)
    streamed_s = bench.passed()
    bench.open(text, model, **more).read_all()
    assert bench.passed() - streamed_s == pytest.approx(streamed_s)


def test_cut_stream_raises_after_so_many_chunks(bench):
    chunks = bench.open("a long enough text [[sandbox: cut=2]]", stream=True).chunks()
    assert next(chunks) and next(chunks)
    with pytest.raises(StreamTruncated):
        next(chunks)


def test_cut_plain_answer_raises(bench):
    with pytest.raises(StreamTruncated):
        bench.open("hi", "cut").read_all()


def test_closed_stream_ends_cleanly_but_without_finish(bench):
    chunks = bench.stream("a long enough text [[sandbox: close=3]]")
    assert len(chunks) == 3
    assert b'"finish_reason":"stop"' not in b"".join(chunks)


def test_stalled_stream_beats_until_the_deadline(bench):
    reply = bench.open("a text [[sandbox: stall=1]]", wait=35, stream=True)
    chunks = []
    with pytest.raises(UpstreamTimeout):
        chunks.extend(iter(reply.chunks().__next__, None))
    assert bench.passed() == 35


def test_malformed_chunk_is_no_json(bench):
    chunks = bench.stream("a text", "malformed")
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(chunks[1].removeprefix(b"data: "))
    assert chunks[-1] == b"data: [DONE]\n\n"


def test_malformed_plain_answer_is_no_json(bench):
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(bench.open("[[sandbox: malformed]]").read_all())


def test_error_event_ends_the_stream_with_an_error_object(bench):
    chunks = bench.stream("a long enough text to see [[sandbox: error_event=4]]")
    assert len(chunks) == 5
    assert orjson.loads(chunks[4].removeprefix(b"data: "))["error"]["type"] == "server_error"


def test_error_event_in_a_plain_answer_is_a_200_with_an_error(bench):
    reply = bench.open("[[sandbox: error_event]]")
    assert reply.status == 200
    assert error_of(reply)["code"] == "server_error"


def test_empty_answers_200_with_nothing(bench):
    assert bench.open("hi", "empty").read_all() == b""
    assert bench.stream("hi [[sandbox: empty]]") == []


def test_no_choices_answers_with_an_empty_list(bench):
    assert orjson.loads(bench.open("[[sandbox: no_choices]]").read_all())["choices"] == []
    assert bench.stream("[[sandbox: no_choices]]") == [b"data: [DONE]\n\n"]


def test_no_usage_leaves_usage_out(bench):
    assert "usage" not in orjson.loads(bench.open("[[sandbox: no_usage]]").read_all())
    chunks = bench.stream("[[sandbox: no_usage]]", stream_options={"include_usage": True})
    assert b"prompt_tokens" not in b"".join(chunks)


def test_no_done_leaves_only_the_mark_out(bench):
    chunks = bench.stream("hi [[sandbox: no_done]]")
    assert b'"finish_reason":"stop"' in chunks[-1]


def test_wrong_content_type_is_a_page(bench):
    reply = bench.open("[[sandbox: wrong_content_type]]")
    assert reply.status == 200
    assert reply.headers["content-type"].startswith("text/html")
    assert reply.read_all().startswith(b"<!DOCTYPE html>")


def test_attempt_directive_fails_only_the_first_attempts(bench):
    text = "hi [[sandbox: status=503 attempt=2 key=a]]"
    assert [bench.open(text).status for _ in range(3)] == [503, 503, 200]


def test_attempts_are_counted_by_key(bench):
    assert bench.open("[[sandbox: status=503 attempt=1 key=a]]").status == 503
    assert bench.open("[[sandbox: status=503 attempt=1 key=b]]").status == 503
    assert bench.open("[[sandbox: status=503 attempt=1 key=a]]").status == 200


def test_only_limits_a_directive_to_named_models(bench):
    text = "hi [[sandbox: status=500 only=echo,json]]"
    assert bench.open(text, "echo").status == 500
    assert bench.open(text, "template").status == 200


def test_forgotten_keys_do_not_pile_up(bench):
    bench.open("[[sandbox: status=503 attempt=1 key=first]]")
    for number in range(1000):
        bench.open(f"[[sandbox: status=503 attempt=1 key=k{number}]]")
    assert bench.open("[[sandbox: status=503 attempt=1 key=first]]").status == 503


def test_closing_ends_the_chunks(bench):
    reply = bench.open("a long enough text", stream=True)
    chunks = reply.chunks()
    next(chunks)
    reply.close()
    assert list(chunks) == []


def test_closing_during_silence_ends_the_wait(bench):
    reply = bench.open("[[sandbox: silent=50]]", stream=True)
    chunks = reply.chunks()
    assert next(chunks) == b""
    reply.close()
    assert list(chunks) == []
    assert bench.passed() == 10


def test_unknown_directive_is_refused_by_name(bench):
    reply = bench.open("[[sandbox: stauts=429]]")
    assert reply.status == 400
    assert "'stauts'" in error_of(reply)["message"]


@pytest.mark.parametrize(
    "inside", ["status=200", "status=x", "status", "pace=-1", "finish=never", "attempt=1", "key=a", "no_done=maybe"]
)
def test_directive_out_of_range_is_refused(bench, inside):
    assert bench.open(f"[[sandbox: {inside}]]").status == 400


def test_directives_are_found_in_the_system_message_and_the_last_user_message(bench):
    system = {"role": "system", "content": "[[sandbox: status=500]]"}
    user = {"role": "user", "content": [{"type": "text", "text": "[[SANDBOX: status=429]]"}]}
    assert bench.open("", messages=[system, {"role": "user", "content": "hi"}]).status == 500
    assert bench.open("", messages=[system, user]).status == 429
    assert bench.open("", messages=[user, {"role": "user", "content": "hi"}]).status == 200


def test_unknown_model_path_and_method_are_answers_not_exceptions(bench):
    assert error_of(bench.open("hi", "nothing"))["code"] == "model_not_found"
    assert bench.open("hi", path="/elsewhere").status == 404
    assert bench.open("hi", method="GET").status == 405


def test_model_of_another_operation_is_refused(bench):
    assert error_of(bench.open("hi", "embed"))["param"] == "model"


def test_every_model_of_the_catalogue_serves_its_operations():
    mappings = [mapping for model in loader.load().models.values() for mapping in model.mappings]
    served = {operation.name for operation in OPERATIONS.values()} | {"realtime"}
    for mapping in mappings:
        if mapping.provider == "sandbox":
            assert all(find(mapping.external_id, operation) for operation in mapping.operations)
            assert served.issuperset(mapping.operations) and set(mapping.voices) <= set(VOICES)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": 1}', b'{"messages": []}'])
def test_broken_body_is_a_400(bench, body):
    call = Call("POST", "http://sandbox.invalid/v1/chat/completions", {}, body)
    assert bench.server.open(call, deadline=200.0, heartbeat_s=10).status == 400
