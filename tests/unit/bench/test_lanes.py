import orjson
import pytest

from bench.lanes import ANSWERS, EVENTS, LANES, write_stream, write_table
from bench.upstreams import size_of, write_reply


def head(path, size=0):
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}".encode()


def test_each_format_is_answered_in_its_own():
    body = write_reply(head("/models/gemini-2.5-flash:generateContent?alt=json"), ANSWERS).partition(b"\r\n\r\n")[2]
    assert "candidates" in orjson.loads(body)
    assert b'"stop_reason":"end_turn"' in write_reply(head("/v1/messages"), ANSWERS)


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/v1/chat/completions", b'{"stream":true}', b'"content":"t'),
        ("/v1/messages", b'{"stream":true}', b'"text":"t'),
        ("/models/gemini-2.5-flash:streamGenerateContent?alt=sse", b"{}", b'"text":"t'),
    ],
)
def test_a_stream_has_fifty_pieces_of_its_format(path, body, text):
    assert write_stream(head(path), body).count(text) == EVENTS
    assert not write_stream(head(path.replace(":streamG", ":g")), b"{}")


def test_an_unknown_path_is_no_answer():
    assert write_reply(head("/nothing"), ANSWERS).startswith(b"HTTP/1.1 404")


def test_the_length_of_a_body_is_read_from_its_head():
    assert size_of(head("/", 17)) == 17
    assert size_of(b"GET / HTTP/1.1") == 0


def test_a_lane_beyond_the_aim_is_named():
    figures = {lane.name: [100.0, 200.0] for lane in LANES}
    figures |= {"to Anthropic": [140.0, 280.0], "AI SDK": [154.0, 308.0], "AI SDK stream": [130.0, 260.0]}
    rows = {lane.name: line for lane, line in zip(LANES, write_table(figures).splitlines()[1:], strict=True)}
    assert "1.10" in rows["AI SDK"] and "beyond" not in rows["AI SDK"]
    assert "1.30" in rows["AI SDK stream"] and "beyond the aim" in rows["AI SDK stream"]
