"""The kind, the agent and the difficulty of turns."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.errors import InvalidRequest
from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Requirements
from gateway.neutral.parts import Message, Text, ToolCall, ToolResult
from gateway.neutral.request import Native
from gateway.routes.route_document import Agent
from gateway.routes.turns import TurnTexts, agent_of, difficulty_of, turn_of

SAMPLES = Path(__file__).parents[2] / "samples"
LABELLED = tomllib.loads((SAMPLES / "labelled_turns.toml").read_text())
TASKS = tomllib.loads((SAMPLES / "labelled_tasks.toml").read_text())
SYSTEM = Message("system", (Text("You are a coding agent."),))
# Results of tools behind the user's text, as the labels of the set say.
WORKING = (("done", False),)
FAILING = (("Exit code 2", True), ("AssertionError: 1 != 2", False), ("command failed", False))


def chat(messages: Iterable[Message], tools: tuple[str, ...] = ("Bash",), **needs: object) -> ChatRequest:
    conversation = Conversation(tuple(messages), tuple(map(FunctionTool, tools)))
    return ChatRequest("smart", Requirements(tools=bool(tools), **needs), lambda: conversation)  # type: ignore[arg-type]


def turn_with(labelled: str) -> ChatRequest:
    """Return the request of a labelled turn."""
    results = {"> ": WORKING, "! ": FAILING}.get(labelled[:2], ())
    messages = [SYSTEM, Message("user", (Text(labelled[2:] if results else labelled),))]
    for number, (text, failed) in enumerate(results):
        call = ToolCall(str(number), "Bash", "{}")
        messages += [
            Message("assistant", (call,)),
            Message("tool", (ToolResult(call.id, (Text(text),), is_error=failed),)),
        ]
    return chat(messages)


def judge(request: ChatRequest, stated: str = "", agent: Agent = "main") -> str:
    texts = TurnTexts(request)
    return difficulty_of(request, texts, turn_of(request, texts), stated, agent)


def accuracy(labelled: dict[str, list[str]], agent: Agent = "main") -> float:
    pairs = [(level, text) for level, texts in labelled.items() for text in texts]
    return sum(judge(turn_with(text), agent=agent) == level for level, text in pairs) / len(pairs)


def test_difficulty_is_as_accurate_as_the_documentation_says() -> None:
    # docs/routes.md has these figures.
    assert round(accuracy(LABELLED["fitted"]), 3) == 0.967
    assert round(accuracy(LABELLED["held_out"]), 3) == 0.907
    assert round(accuracy(TASKS["fitted"], "sub"), 3) == 0.958
    assert round(accuracy(TASKS["held_out"], "sub"), 3) == 0.867


def test_effort_and_the_agents_own_word_count_more_than_its_text() -> None:
    small = chat([Message("user", (Text("Fix the typo."),))])
    assert judge(small) == "small" and judge(small, "large") == "large" and judge(small, "huge") == "small"
    task = [Message("user", (Text("Add a flag to the export command and cover it with a test, please."),))]
    assert [judge(chat(task, effort=effort)) for effort in ("low", "", "high")] == ["small", "medium", "large"]


TASK = [Message("user", (Text("Add a flag to the export command and cover it with a test, please."),))]


@pytest.mark.parametrize(
    ("dialect", "effort", "level"),
    [
        ("anthropic", "high", "medium"),
        ("anthropic", "low", "small"),
        ("anthropic", "xhigh", "large"),
        ("google", "high", "medium"),
        ("responses", "high", "large"),
    ],
)
def test_the_effort_that_an_api_has_by_default_says_nothing(dialect: str, effort: str, level: str) -> None:
    request = replace(chat(TASK, effort=effort), native=Native(dialect, {}))
    assert judge(request) == level


def test_title_is_small_whatever_it_is_about() -> None:
    about = "Investigate why the workers deadlock, and design a fix for the race in the distributed scheduler."
    system = Message("system", (Text("You are a title generator."),))
    assert judge(chat([system, Message("user", (Text(about),))], ())) == "small"


def results(*failed: bool) -> list[Message]:
    """Return the messages of an agent that calls a tool as often, with these failures."""
    found = []
    for number, has_failed in enumerate(failed):
        found.append(Message("assistant", (ToolCall(str(number), "Bash", "{}"),)))
        found.append(Message("tool", (ToolResult(str(number), (Text("x"),), is_error=has_failed),)))
    return found


@pytest.mark.parametrize(
    ("then", "level"),
    [
        ("Add the flag `--json` to the export command, with a test for each of its columns.", "medium"),
        ("Try again.", "large"),
        ("The integration test still hangs.", "large"),
    ],
)
def test_failures_before_another_task_say_nothing_about_it(then: str, level: str) -> None:
    said = Message("assistant", (Text("It does not work."),))
    request = chat([SYSTEM, *TASK, *results(True, True, True), said, Message("user", (Text(then),))])
    assert judge(request) == level


def test_a_task_keeps_its_difficulty_while_the_agent_works_for_long() -> None:
    hard = Message("user", (Text("Investigate why the workers deadlock under load, and design a fix."),))
    assert judge(chat([SYSTEM, hard, *results(*[False] * 150)])) == "large"


def test_a_report_of_a_sub_agent_is_no_text_of_a_person() -> None:
    report = Message("user", (Text('<subagent_notification>\n{"agent_path":"01a2","status":{"completed":"Found."}}'),))
    hard = Message("user", (Text("Investigate why the workers deadlock under load, and design a fix."),))
    assert judge(chat([SYSTEM, hard, *results(False), report, *results(False)])) == "large"


@pytest.mark.parametrize(
    ("system", "last", "needs", "turn"),
    [
        ("Generate a concise, sentence-case title for this conversation.", "Fix the bug", {}, "title"),
        ("", "Your task is to create a detailed summary of the conversation so far.", {}, "summary"),
        ("", "quota", {"max_tokens": 1}, "probe"),
        ("You are a coding agent.", "Fix the bug", {"max_tokens": 32_000}, "work"),
    ],
)
def test_side_calls_are_turns_of_their_own_kind(system: str, last: str, needs: dict[str, int], turn: str) -> None:
    request = chat([Message("system", (Text(system),)), Message("user", (Text(last),))], (), **needs)
    assert turn_of(request, TurnTexts(request)) == turn


CLAUDE_CODE = "x-anthropic-billing-header: cc_version=2.1.332.1ff; cc_entrypoint=cli;"


@pytest.mark.parametrize(
    ("headers", "system", "agent"),
    [
        ({}, "You are a coding agent.", "main"),
        ({"x-claude-code-session-id": "s"}, f"{CLAUDE_CODE}\nYou are a Claude agent.", "main"),
        ({"x-claude-code-agent-id": "a5cfd1433f461fd9f"}, f"{CLAUDE_CODE}\nYou review code.", "sub"),
        ({}, f"{CLAUDE_CODE} cc_is_subagent=true;\nYou review code.", "sub"),
        ({}, "You are Claude Code, the official CLI.\nYou are an agent for Claude Code.", "sub"),
        ({"session-id": "s", "thread-id": "t"}, "", "main"),
        ({"x-openai-subagent": "collab_spawn", "x-codex-parent-thread-id": "t"}, "", "sub"),
        ({"x-openai-subagent": "review"}, "", "sub"),
        ({"x-openai-subagent": "compact"}, "", "main"),
        ({"x-session-affinity": "ses_2", "x-parent-session-id": "ses_1"}, "", "sub"),
    ],
)
def test_sub_agents_are_recognized_by_headers_and_instructions(
    headers: dict[str, str], system: str, agent: str
) -> None:
    request = chat([Message("system", (Text(system),)), Message("user", (Text("Fix the bug."),))])
    assert agent_of(headers, TurnTexts(request)) == agent


@pytest.mark.parametrize(
    ("headers", "turn"),
    [
        ({"x-claude-code-request-class": "compaction"}, "summary"),
        ({"x-claude-code-request-class": "main"}, "work"),
        ({"x-claude-code-auxiliary-type": "generate_session_title"}, "title"),
        ({"x-codex-turn-metadata": '{"thread_source":"user","request_kind":"compaction"}'}, "summary"),
        ({"x-codex-turn-metadata": '{"thread_source":"user","request_kind":"turn"}'}, "work"),
        ({"x-openai-subagent": "compact"}, "summary"),
    ],
)
def test_side_calls_are_recognized_by_headers_of_agents(headers: dict[str, str], turn: str) -> None:
    request = chat([SYSTEM, Message("user", (Text("Fix the bug."),))])
    assert turn_of(request, TurnTexts(request), headers) == turn


def test_the_first_text_of_a_person_follows_the_additions_of_the_agent() -> None:
    context = Message("user", (Text("<environment_context>\n  <cwd>/work</cwd>"),))
    asked = Message("user", (Text("<system-reminder>Today is Monday."), Text("Fix the bug.")))
    assert TurnTexts(chat([SYSTEM, context, asked])).first == "Fix the bug."
    continued = "This session is being continued from a previous conversation: the bug is fixed."
    assert TurnTexts(chat([SYSTEM, Message("user", (Text(continued),))])).first == continued


def test_additions_of_the_agent_do_not_count_as_the_persons_text() -> None:
    added = Text("<system-reminder>Design the architecture and prove the algorithm.</system-reminder>")
    assert judge(chat([Message("user", (added, Text("Fix the typo.")))])) == "small"


def test_invalid_conversation_is_left_to_the_reader_that_refuses_it() -> None:
    def fail() -> Conversation:
        raise InvalidRequest("no")

    assert judge(ChatRequest("smart", Requirements(), fail)) == "small"


def test_long_conversation_is_read_at_its_ends_only() -> None:
    text = "word " * 2_000_000
    texts = TurnTexts(chat([Message("user", (Text(text),))] * 50))
    assert len(texts.last) < 3_000 and texts.length == len(text)
