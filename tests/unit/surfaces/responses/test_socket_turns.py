from gateway.surfaces.responses.socket_turns import headers_of_turns


def test_headers_about_the_caller_apply_to_each_turn_and_those_of_the_handshake_to_none() -> None:
    """One idempotency key or request id for all turns would repeat the first response."""
    of_the_handshake = {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-version": "13",
        "content-length": "0",
        "content-encoding": "gzip",
        "idempotency-key": "k",
        "x-request-id": "r",
    }
    of_the_caller = {"user-agent": "codex", "session-id": "s", "x-forwarded-for": "203.0.113.7"}
    headers = headers_of_turns({**of_the_handshake, **of_the_caller, "authorization": "Bearer old"}, "new")
    assert headers == {**of_the_caller, "authorization": "Bearer new", "content-type": "application/json"}
