"""Items and tools that only servers of the Responses API have, and types that are newer than the gateway: whole for
such a server, and served by every other vendor as calls, text or not at all. No vendor refuses the request."""

import json
from typing import Any

import fakes.responses
import pytest
from contract.contract_gateway import ContractGateway
from contract.vendors import FURTHER, VENDORS, Say

Json = dict[str, Any]
OTHERS = ("openai", "anthropic", "google", "bedrock", "mistral", "cohere")
ALL = sorted(VENDORS | FURTHER)
ASK: Json = {"role": "user", "content": "Go on."}
FUNCTION: Json = {"type": "function", "name": "deploy", "parameters": {"type": "object", "properties": {}}}
SPACE: Json = {"type": "namespace", "name": "mcp__git", "description": "Git", "tools": [FUNCTION]}
COMMAND: Json = {"type": "exec", "command": ["ls"], "env": {}}
RAN: Json = {"stdout": "seen.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
SEARCH: Json = {"type": "tool_search", "execution": "client", "description": "Finds", "parameters": {"type": "object"}}


def call(kind: str, **members: Any) -> Json:
    return {"type": kind, "call_id": "call_1", "status": "completed", **members}


# The items of one past turn, and a word of them that the other vendors' models read ("" for nothing).
ITEMS: dict[str, tuple[list[Json], str]] = {
    "local shell": (
        [
            call("local_shell_call", id="lsh_1", action=COMMAND),
            {"type": "local_shell_call_output", "id": "call_1", "output": "seen.txt"},
        ],
        "seen.txt",
    ),
    "local shell of Codex": (
        [
            call("local_shell_call", action=COMMAND),
            {"type": "function_call_output", "call_id": "call_1", "output": "seen.txt"},
        ],
        "seen.txt",
    ),
    "shell": (
        [call("shell_call", action={"commands": ["ls"]}), call("shell_call_output", output=[RAN])],
        "seen.txt",
    ),
    "patch": (
        [
            call("apply_patch_call", operation={"type": "delete_file", "path": "old.txt"}),
            call("apply_patch_call_output", output="gone"),
        ],
        "old.txt",
    ),
    "tool search": (
        [
            call("tool_search_call", execution="client", arguments={"query": "git"}),
            call("tool_search_output", execution="client", tools=[SPACE]),
        ],
        "mcp__git__deploy",
    ),
    "tool search of the server": (
        [
            {
                "type": "tool_search_call",
                "call_id": None,
                "execution": "server",
                "arguments": {},
                "status": "completed",
            },
            {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [], "status": "completed"},
        ],
        "",
    ),
    "additional tools": ([{"type": "additional_tools", "role": "developer", "tools": [FUNCTION]}], "deploy"),
    "code": (
        [
            {
                **{"type": "code_interpreter_call", "id": "ci_1", "code": "print(6 * 7)", "container_id": "cntr_1"},
                **{"status": "completed", "outputs": [{"type": "logs", "logs": "forty-two"}]},
            }
        ],
        "forty-two",
    ),
    "tools of a server": (
        [
            {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "git", "tools": []},
            {
                **{"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "git", "name": "push"},
                "arguments": "{}",
            },
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
            {
                **{"type": "mcp_call", "id": "mcp_1", "server_label": "git", "name": "push", "arguments": "{}"},
                **{"output": "pushed", "status": "completed"},
            },
        ],
        "pushed",
    ),
    "web search": (
        [{"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}}],
        "",
    ),
    "file search": (
        [
            {
                **{"type": "file_search_call", "id": "fs_1", "queries": ["x"], "status": "completed"},
                "results": [{"filename": "a.txt", "text": "a finding"}],
            }
        ],
        "a finding",
    ),
    "computer": (
        [
            call("computer_call", id="cu_1", action={"type": "screenshot"}, pending_safety_checks=[]),
            call("computer_call_output", output={"type": "computer_screenshot", "image_url": "https://a.org/a.png"}),
        ],
        "screenshot",
    ),
    "image": (
        [{"type": "image_generation_call", "id": "ig_1", "result": None, "status": "failed"}],
        "",
    ),
    "compaction": ([{"type": "compaction", "encrypted_content": "gAAAA"}], ""),
    "program": (
        [
            {**call("program", code="run()", fingerprint="x"), "id": "prog_1"},
            {**call("program_output", result="it ran"), "id": "prog_2"},
        ],
        "it ran",
    ),
    "newer": ([{"type": "hologram_call", "id": "hg_1", "shape": "cube"}], ""),
    "newer call": (
        [call("hologram_call", shape="cube"), call("hologram_call_output", output="projected")],
        "projected",
    ),
}
WARNED = ("compaction", "newer")
TOOLS: dict[str, Json] = {
    "shell": {"type": "shell", "environment": {"type": "local"}},
    "local_shell": {"type": "local_shell"},
    "apply_patch": {"type": "apply_patch"},
    "tool_search": SEARCH,
}
CALLS: dict[str, tuple[str, Json]] = {
    "shell": (
        '{"commands": ["ls"], "timeout_ms": 100}',
        {"action": {"commands": ["ls"], "timeout_ms": 100, "max_output_length": None}},
    ),
    "local_shell": ('{"command": ["ls"]}', {"action": {"type": "exec", "command": ["ls"], "env": {}}}),
    "apply_patch": (
        '{"type": "create_file", "path": "a", "diff": "+x"}',
        {"operation": {"type": "create_file", "path": "a", "diff": "+x"}},
    ),
    "tool_search": ('{"query": "git"}', {"arguments": {"query": "git"}, "execution": "client"}),
}


def ask(stage: ContractGateway, vendor: str, say: Say, *items: Json, **fields: Any) -> tuple[Json, Json]:
    """Return the answer, and the body that the vendor got."""
    stage.script(vendor, say)
    status, answered = stage.send("responses", {"model": f"{vendor}-able", "input": list(items), **fields})
    assert status == 200, answered
    (sent,) = stage.calls_of(vendor)
    return json.loads(answered), sent.body


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Responses API of a later day: it knows more types than the published ones."""
    monkeypatch.setattr(fakes.responses, "check_request", lambda environ, headers, payload, sealed: json.loads(payload))


def warnings_of(stage: ContractGateway) -> str:
    return stage.headers.get("x-llmgateway-warnings", "")


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("vendor", OTHERS)
def test_an_item_of_another_server_is_read_as_calls_or_text(stage: ContractGateway, vendor: str, name: str) -> None:
    items, word = ITEMS[name]
    answer, body = ask(stage, vendor, Say("Done."), ASK, *items, ASK, tools=[FUNCTION | {"name": "clock"}])
    assert answer["status"] == "completed"
    assert word in json.dumps(body)
    assert ("left out" in warnings_of(stage)) is (name in WARNED)


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("name", ["newer", "newer call", "additional tools", "program"])
def test_an_item_reaches_its_own_server_whole(stage: ContractGateway, name: str) -> None:
    items, _ = ITEMS[name]
    stage.script("responses", Say("Done."))
    stage.send("responses", {"model": "responses-able", "input": [ASK, *items, ASK]})
    sent = stage.calls_of("responses")[0].body["input"]
    assert [item for item in sent if item.get("type") in {each["type"] for each in items}] == items


@pytest.mark.parametrize("kind", TOOLS)
@pytest.mark.parametrize("vendor", OTHERS)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_of_the_caller_is_a_function_whose_call_comes_back_as_its_own_item(
    stage: ContractGateway, vendor: str, kind: str, streamed: bool
) -> None:
    arguments, members = CALLS[kind]
    stage.script(vendor, Say(tools=((kind, arguments), ("clock", "{}"))))
    tools = [TOOLS[kind], FUNCTION | {"name": "clock"}]
    body = {"model": f"{vendor}-able", "input": [ASK], "tools": tools, "stream": streamed}
    status, answered = stage.send("responses", body)
    assert status == 200, answered
    if streamed:
        lines = [line[6:] for line in answered.decode().splitlines() if line.startswith("data: {")]
        events = [json.loads(line) for line in lines]
        output = events[-1]["response"]["output"]
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert sorted(done, key=json.dumps) == sorted(output, key=json.dumps)
    else:
        output = json.loads(answered)["output"]
    (made,) = [item for item in output if item["type"] in ("shell_call", "local_shell_call", f"{kind}_call")]
    assert members.items() <= made.items() and made["call_id"] and made["status"] == "completed"
    assert [item["name"] for item in output if item["type"] == "function_call"] == ["clock"]


@pytest.mark.parametrize("vendor", OTHERS)
def test_a_found_tool_is_called_in_its_namespace(stage: ContractGateway, vendor: str) -> None:
    items, _ = ITEMS["tool search"]
    say = Say(tools=(("mcp__git__deploy", "{}"),))
    answer, _ = ask(stage, vendor, say, ASK, *items, tools=[SEARCH, FUNCTION])
    (made,) = [item for item in answer["output"] if item["type"] == "function_call"]
    assert (made["namespace"], made["name"]) == ("mcp__git", "deploy")


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("vendor", ALL)
def test_a_tool_of_a_newer_type_is_for_its_own_server(stage: ContractGateway, vendor: str) -> None:
    tool = {"type": "hologram", "size": 3}
    stage.script(vendor, Say("Done."))
    body = {"model": f"{vendor}-able", "input": [ASK], "tools": [tool, FUNCTION]}
    stage.send("responses", body)
    sent = json.dumps(stage.calls_of(vendor)[0].body)
    assert ("hologram" in sent) is (vendor in ("responses", "both"))
    assert ("hologram" in warnings_of(stage)) is (vendor not in ("responses", "both"))


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("vendor", ALL)
def test_a_part_of_a_newer_type_is_for_its_own_server(stage: ContractGateway, vendor: str) -> None:
    parts = [{"type": "input_text", "text": "See:"}, {"type": "input_hologram", "shape": "cube"}]
    stage.script(vendor, Say("Done."))
    stage.send("responses", {"model": f"{vendor}-able", "input": [{"role": "user", "content": parts}]})
    sent = json.dumps(stage.calls_of(vendor)[0].body)
    assert ("cube" in sent) is (vendor in ("responses", "both"))
    assert ("hologram" in warnings_of(stage)) is (vendor not in ("responses", "both"))


@pytest.mark.parametrize("vendor", OTHERS)
def test_a_conversation_of_which_a_vendor_reads_nothing_is_refused_with_its_place(
    stage: ContractGateway, vendor: str
) -> None:
    stage.script(vendor, Say("Done."))
    status, answered = stage.send("responses", {"model": f"{vendor}-able", "input": [{"type": "hologram"}]})
    assert (status, json.loads(answered)["error"]["param"]) == (400, "input"), answered
    assert not stage.calls_of(vendor)
