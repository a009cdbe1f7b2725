import orjson

from bench.lanes import reply_to, size_of, write_table


def head(path, size=0):
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}".encode()


def test_each_format_is_answered_in_its_own():
    body = reply_to(head("/models/gemini-2.5-flash:generateContent?alt=json")).partition(b"\r\n\r\n")[2]
    assert "candidates" in orjson.loads(body)
    assert b'"stop_reason":"end_turn"' in reply_to(head("/v1/messages"))


def test_an_unknown_path_is_no_answer():
    assert reply_to(head("/nothing")).startswith(b"HTTP/1.1 404")


def test_the_length_of_a_body_is_read_from_its_head():
    assert size_of(head("/", 17)) == 17
    assert size_of(b"GET / HTTP/1.1") == 0


def test_a_lane_beyond_the_aim_is_named():
    lines = write_table({"relay": [100.0, 200.0], "dear": [140.0, 280.0], "fair": [120.0, 240.0]}).splitlines()
    assert "beyond the aim" in lines[2] and "1.40" in lines[2]
    assert "beyond" not in lines[3] and "1.20" in lines[3]
