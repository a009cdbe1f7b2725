"""Every question of the program, at each width, with and without colours."""

import pytest
from harness.client_runs import Client
from harness.fake_service import ANSWERS, TOKEN, Answer, FakeService

SECRET = "marked-secret-51c0"
TWO_PROJECTS = {
    "projects": [
        {"id": f"project_{number}", "name": f"Web {number}", "organizationId": "org_1", "mode": "credits"}
        for number in (1, 2)
    ]
}
SIGNED_IN = Answer(200, ANSWERS["GET /auth/get-session"], {"Set-Cookie": "x.session_token=abc; Path=/; HttpOnly"})
SECOND_FACTOR = Answer(401, {"error": "second_factor_required", "message": "Send the code."})
# The command, the answers of the service, the questions with what is typed, and the requests that follow.
QUESTIONS = {
    "description": (
        ("keys", "create", "-p", "project_1"),
        [],
        [("Description:", "Typed")],
        ["POST /keys/api"],
    ),
    "project": (
        ("keys", "create", "-d", "x"),
        [Answer(200, ANSWERS["GET /orgs"]), Answer(200, TWO_PROJECTS)],
        [("Which project? [1-2]", "3"), ("Type a number from 1 to 2.", "2")],
        ["GET /orgs", "GET /orgs/org_1/projects", "POST /keys/api"],
    ),
    "roll": (("keys", "roll", "key_1"), [], [("[y/N]", "y")], ["POST /keys/api/key_1/roll"]),
    "no roll": (("keys", "roll", "key_1"), [], [("[y/N]", "")], []),
    "delete": (("keys", "delete", "key_1"), [], [("[y/N]", "YES")], ["DELETE /keys/api/key_1"]),
    "no delete": (("keys", "delete", "key_1"), [], [("[y/N]", "yess")], []),
    "sign-in": (
        ("auth", "login", "--email"),
        [SECOND_FACTOR, SIGNED_IN],
        [("Email:", "al@example.com"), ("Password:", SECRET), ("Code of the second factor:", SECRET)],
        ["POST /auth/sign-in/email"] * 2,
    ),
    "key": (("auth", "login", "--key"), [], [("API key:", SECRET)], ["GET /v1/key"]),
}


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True], ids=["colored", "plain"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered(
    question: str, plain: bool, columns: int, service: FakeService, service_client: Client
) -> None:
    command, answers, dialogue, requests = QUESTIONS[question]
    service.script(*answers)
    environment = {"NO_COLOR": "1"} if plain else {}
    with service_client.terminal(*command, columns=columns, **environment) as terminal:
        for prompt, typed in dialogue:
            terminal.answer(prompt, typed)
        text = terminal.end(0)
    assert service.lines == requests
    assert SECRET not in text
    assert ("\x1b[" in terminal.output) is not plain
    if question.startswith("no "):
        assert "Cancelled" in text and TOKEN not in text


@pytest.mark.parametrize("question", [name for name in QUESTIONS if name not in ("sign-in", "key")])
def test_without_a_terminal_a_question_is_an_error(question: str, service: FakeService, service_client: Client) -> None:
    command, answers, _, _ = QUESTIONS[question]
    service.script(*answers)
    message = service_client.refused(*command, typed="y\n1\n")
    assert "terminal" in message and "Give -" in message
    assert not [line for line in service.lines if not line.startswith("GET ")]


@pytest.mark.parametrize("question", QUESTIONS)
def test_ctrl_c_at_a_question_changes_nothing(question: str, service: FakeService, service_client: Client) -> None:
    command, answers, dialogue, _ = QUESTIONS[question]
    service.script(*answers)
    before = service_client.config
    with service_client.terminal(*command) as terminal:
        terminal.expect(dialogue[0][0])
        terminal.wait_for_silence()
        terminal.interrupt()
        assert "Interrupted." in terminal.end(130)
    assert not [line for line in service.lines if not line.startswith("GET ")] and service_client.config == before
