"""How clients name the session of an agent; the formats are those of the clients' own requests."""

import pytest

from gateway.metering.session_ids import MAX_ID_LENGTH, SESSIONS

UUID = "57a121ec-f78c-48c3-a745-e3036a3ecc33"


def test_the_first_header_in_the_order_of_the_table_names_the_session():
    headers = dict.fromkeys(SESSIONS.headers, " ")
    for name in reversed(SESSIONS.headers):
        headers[name] = f" {name} "
        assert SESSIONS.of_headers(headers) == name
    assert SESSIONS.of_headers({"user-agent": "x"}) == ""


def test_each_agent_names_its_session_by_its_own_header():
    agents = {
        "own": "x-llmgateway-session x-session-id",
        "Claude Code": "x-claude-code-session-id",
        "Codex CLI": "session-id conversation-id thread-id",
        "OpenCode": "x-opencode-session x-session-affinity",
        "Kilo Code": "x-kilocode-taskid",
        "Roo Code": "x-roo-task-id",
        "Cline": "x-task-id",
        "Goose": "agent-session-id",
        "LiteLLM": "x-litellm-session-id",
        "Helicone": "helicone-session-id",
    }
    for agent, names in agents.items():
        for name in names.split():
            assert SESSIONS.of_headers({name: "s-1"}) == "s-1", agent


@pytest.mark.parametrize(
    ("user_id", "session"),
    [
        (f"user_{'a' * 64}_account__session_{UUID}", UUID),
        (f"user_{'a' * 64}_account_{UUID}_session_{UUID}", UUID),
        (f'{{"device_id":"d","account_uuid":"","session_id":"{UUID}"}}', UUID),
        ('{"session_id":7}', ""),
        ("{not json", ""),
        ("customer-7", ""),
    ],
)
def test_the_user_id_of_an_anthropic_body_names_the_session_of_claude_code(user_id, session):
    assert SESSIONS.of_user_id(user_id) == session


def test_a_prompt_cache_key_is_a_session_only_for_clients_that_use_one_for_each():
    assert SESSIONS.of_cache_key("codex", UUID) == SESSIONS.of_cache_key("opencode", UUID) == UUID
    assert SESSIONS.of_cache_key("my-app", "static") == ""


def test_metadata_names_a_session():
    assert SESSIONS.of_metadata({"team": "a", "session_id": "s-1"}) == "s-1"
    assert SESSIONS.of_metadata({"sessionId": "s-1"}) == "s-1"
    assert SESSIONS.of_metadata({"session_id": 1}) == ""


@pytest.mark.parametrize("session", ["x" * 65, "a b", "a/b", "ä", "a\0b"])
def test_an_id_that_is_long_or_not_printable_is_stored_as_its_digest(session):
    stored = SESSIONS.of_metadata({"session_id": session})
    assert len(stored) == 32 < MAX_ID_LENGTH and stored == SESSIONS.of_metadata({"session_id": session})
