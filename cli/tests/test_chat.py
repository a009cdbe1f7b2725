"""`chat`: answers on stdout as they arrive, costs on stderr, and a conversation that continues."""

import json
import os
import stat
from pathlib import Path

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from harness.stub_service import StubService

ECHO = ("chat", "-m", "sandbox-echo")
COMPLETIONS = "POST /v1/chat/completions"


def stream(*events: object, ended: bool = True) -> tuple[int, bytes]:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return 200, ("".join(lines) + "data: [DONE]\n\n" * ended).encode()


def piece(text: str, **more: object) -> dict[str, object]:
    return {"model": "m", "choices": [{"delta": {"content": text}}], **more}


UNFINISHED = (200, [f"data: {json.dumps(piece('Once'))}\n\n".encode()])


def test_the_answer_is_data_and_its_cost_a_notice(user: Client) -> None:
    finished = user.run(*ECHO, "Hello", "there")
    assert finished.stdout == "Hello there\n"
    assert finished.stderr == "info: Cost $0.000006, 3 tokens in, 3 out, sandbox/sandbox-echo.\n"


def test_the_cost_is_that_of_the_usage(user: Client, account: Account) -> None:
    cost = user.document(*ECHO, "Hello there")["cost"]
    account.gateway.services.billing.rollups.catch_up()
    usage = account("GET", f"/activity?projectId={account.project_id}&timeRange=1h")["activity"]
    assert sum(row["cost"] for row in usage) == pytest.approx(cost)


def test_standard_input_is_the_prompt_or_a_part_of_it(user: Client) -> None:
    assert user.run(*ECHO, typed="from a pipe\n").stdout == "from a pipe\n"
    assert user.run(*ECHO, "Summarize:", "-", typed="a file").stdout == "Summarize: a file\n"
    assert "The prompt is empty" in user.refused(*ECHO, typed=" \n")
    assert "The prompt is empty" in user.refused(*ECHO, "")


def test_without_a_model_the_service_chooses(user: Client) -> None:
    assert user.document("chat", "Hello")["model"].startswith("sandbox/")


def test_one_document_with_stable_names(user: Client) -> None:
    document = user.document(*ECHO, "--system", "Be short.", "Hello")
    assert set(document) == {
        *("model", "provider", "answer", "finishReason", "usage", "cost", "requestId", "messages"),
    }
    assert [message["role"] for message in document["messages"]] == ["system", "user", "assistant"]
    assert document["provider"] == "sandbox" and document["finishReason"] == "stop" and document["requestId"]


def test_a_key_is_needed(user: Client) -> None:
    assert "There is no API key" in user.refused(*ECHO, "Hello", LLMGATEWAY_API_KEY="")


def test_the_key_and_the_address_of_the_options_are_used(user: Client, account: Account) -> None:
    account_url = account.address
    finished = user.run(
        *ECHO, "-k", account.key, "--gateway-url", account_url, "Hi", LLMGATEWAY_API_KEY="", LLMGATEWAY_API_URL=""
    )
    assert finished.stdout == "Hi\n"


def test_a_model_that_does_not_exist_is_an_error_with_the_request_id(user: Client) -> None:
    message = user.refused("chat", "-m", "gpt-99", "Hello")
    assert "There is no model 'gpt-99'" in message and "Request id:" in message


def test_an_answer_of_the_length_limit_is_marked(user: Client) -> None:
    events = [piece("cut"), {"choices": [{"delta": {}, "finish_reason": "length"}]}]
    with StubService({COMPLETIONS: stream(*events)}, {"Content-Type": "text/event-stream"}) as service:
        finished = user.run("chat", "Hello", LLMGATEWAY_API_URL=service.address)
    assert finished.stdout == "cut\n" and "ended early: length" in finished.stderr
    assert "sent no cost of m." in finished.stderr


@pytest.mark.parametrize(
    ("events", "ended", "message"),
    [
        ([piece("half")], False, "ended before it was complete"),
        ([piece("half"), {"error": {"message": "The provider broke."}}], True, "The provider broke."),
    ],
)
def test_a_broken_answer_is_an_error_after_its_part(
    events: list[object], ended: bool, message: str, user: Client, tmp_path: Path
) -> None:
    conversation_file = tmp_path / "chat.json"
    with StubService({COMPLETIONS: stream(*events, ended=ended)}, {"Content-Type": "text/event-stream"}) as service:
        finished = user.run("chat", "-f", str(conversation_file), "Hello", code=1, LLMGATEWAY_API_URL=service.address)
    assert finished.stdout == "half\n" and message in finished.stderr
    assert not conversation_file.exists()


def test_control_characters_of_an_answer_do_not_reach_the_terminal(user: Client) -> None:
    text = "a\x1b]0;title\x07b\tc\nd"
    with (
        StubService({COMPLETIONS: stream(piece(text))}, {"Content-Type": "text/event-stream"}) as service,
        user.terminal("chat", "Hello", LLMGATEWAY_API_URL=service.address) as terminal,
    ):
        terminal.end()
    assert "\x1b]0;" not in terminal.output and "title" in terminal.output
    with StubService({COMPLETIONS: stream(piece(text))}, {"Content-Type": "text/event-stream"}) as service:
        assert user.run("chat", "Hello", LLMGATEWAY_API_URL=service.address).stdout == text + "\n"


# At the terminal


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_a_conversation_at_the_terminal(columns: int, plain: bool, user: Client) -> None:
    environment = {"NO_COLOR": "1"} if plain else {}
    with user.terminal(*ECHO, columns=columns, **environment) as terminal:
        terminal.answer("you>", "Hello")
        terminal.expect("Cost $0.0000")
        terminal.answer("you>", "/cost")
        terminal.expect("The conversation cost $0.0000")
        terminal.answer("you>", "/model gpt-99")
        terminal.answer("The model is now gpt-99.", "Hello")
        terminal.expect("There is no model 'gpt-99'")
        terminal.answer("Request id:", "/model sandbox-echo")
        terminal.answer("The model is now sandbox-echo.", "/what")
        terminal.answer("/reset forgets", "/reset")
        terminal.answer("was forgotten", "/exit")
        text = terminal.end()
    assert ("\x1b[" in terminal.output) is not plain
    assert text.count("The conversation cost") == 2


def test_each_turn_sends_the_former_ones(user: Client) -> None:
    with (
        StubService({COMPLETIONS: stream(piece("Yes."))}, {"Content-Type": "text/event-stream"}) as service,
        user.terminal("chat", "--system", "Be short.", LLMGATEWAY_API_URL=service.address) as terminal,
    ):
        terminal.answer("you>", "One?")
        terminal.answer("no cost of m.", "Two?")
        terminal.expect("Yes.\ninfo: The service sent no cost of m.\nyou> Two?\nYes.")
        terminal.answer("you> ", "/reset")
        terminal.answer("was forgotten", "Three?")
        terminal.expect("Three?\nYes.")
        terminal.answer("you> ", "/exit")
        terminal.end()
    assert all(body["stream_options"]["include_usage"] for _, _, body in service.requests)
    bodies = [[message["content"] for message in body["messages"]] for _, _, body in service.requests]
    assert bodies == [["Be short.", "One?"], ["Be short.", "One?", "Yes.", "Two?"], ["Be short.", "Three?"]]


def test_the_end_of_the_input_ends_the_conversation(user: Client) -> None:
    with user.terminal(*ECHO) as terminal:
        terminal.expect("you>")
        terminal.wait_for_silence()
        os.write(terminal._master, b"\x04")
        assert "The conversation cost $0.00." in terminal.end()


def test_ctrl_c_at_the_prompt_is_130(user: Client) -> None:
    with user.terminal(*ECHO) as terminal:
        terminal.expect("you>")
        terminal.wait_for_silence()
        terminal.interrupt()
        assert "Interrupted." in terminal.end(130)


def test_ctrl_c_during_an_answer_stops_the_answer_alone(user: Client) -> None:
    with (
        StubService({COMPLETIONS: UNFINISHED}, {"Content-Type": "text/event-stream"}) as service,
        user.terminal("chat", LLMGATEWAY_API_URL=service.address) as terminal,
    ):
        terminal.answer("you>", "Tell me a long story.")
        terminal.expect("Once")
        terminal.interrupt()
        terminal.expect("The answer was stopped")
        terminal.answer("conversation.\nyou>", "And now?")
        terminal.expect("And now?\nOnce")
        terminal.interrupt()
        terminal.answer("conversation.\nyou>", "/exit")
        terminal.end()
    assert [len(body["messages"]) for _, _, body in service.requests] == [1, 1]


def test_ctrl_c_during_the_only_answer_is_130_and_keeps_the_former_file(user: Client, tmp_path: Path) -> None:
    conversation_file = tmp_path / "chat.json"
    user.run(*ECHO, "-f", str(conversation_file), "One")
    before = conversation_file.read_text()
    with (
        StubService({COMPLETIONS: UNFINISHED}, {"Content-Type": "text/event-stream"}) as service,
        user.terminal("chat", "-f", str(conversation_file), "A story.", LLMGATEWAY_API_URL=service.address) as terminal,
    ):
        terminal.expect("Once")
        terminal.interrupt()
        terminal.end(130)
    assert conversation_file.read_text() == before and list(tmp_path.glob(".*partial*")) == []


def test_a_conversation_at_the_terminal_has_no_document(user: Client) -> None:
    with user.terminal("chat", "--json") as terminal:
        assert "has no JSON form" in terminal.end(1)


# In a file


def test_a_conversation_is_kept_in_a_file(user: Client, tmp_path: Path) -> None:
    conversation_file = tmp_path / "chat.json"
    user.run(*ECHO, "--file", str(conversation_file), "One")
    user.run("chat", "-f", str(conversation_file), "Two")
    document = json.loads(conversation_file.read_text())
    assert [message["content"] for message in document["messages"]] == ["One", "One", "Two", "Two"]
    assert document["model"] == "sandbox-echo" and document["cost"] > 0
    assert stat.S_IMODE(conversation_file.stat().st_mode) == 0o600
    user.run("chat", "-m", "auto", "-f", str(conversation_file), "--system", "Be short.", "Three")
    document = json.loads(conversation_file.read_text())
    assert document["model"] == "auto" and document["messages"][0] == {"role": "system", "content": "Be short."}
    assert [message["content"] for message in document["messages"][1:5]] == ["One", "One", "Two", "Two"]


@pytest.mark.parametrize("text", ["{", "[]", '{"model": "m"}', '{"model": "m", "cost": 0, "messages": [1]}'])
def test_a_damaged_file_is_refused_and_kept(text: str, user: Client, tmp_path: Path) -> None:
    conversation_file = tmp_path / "chat.json"
    conversation_file.write_text(text)
    assert "cannot be read" in user.refused("chat", "-f", str(conversation_file), "Hello")
    assert conversation_file.read_text() == text


def test_a_file_that_cannot_exist_is_refused(user: Client) -> None:
    assert "cannot be read" in user.refused("chat", "-f", "x" * 300, "Hello")
