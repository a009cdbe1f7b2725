from agent import answer
from tools import TOOLS, call_tool

from conftest import chat_answer


def test_tool_is_called_and_its_result_is_sent_back(gateway, monkeypatch):
    monkeypatch.setenv("CHAT_MODEL", "some-model")
    call = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}
    gateway.answers += [chat_answer("", [call]), chat_answer("It is noon.")]
    assert answer("What time is it?") == "It is noon."
    (_, first), (_, second) = gateway.requests
    assert [tool["function"]["name"] for tool in first["tools"]] == list(TOOLS)
    result = second["messages"][-1]
    assert (result["role"], result["tool_call_id"]) == ("tool", "call_1")
    assert result["content"].endswith("+00:00")


def test_fault_of_a_tool_is_told_to_the_model():
    assert "failed" in call_tool("clock", {"zone": "Nowhere/Land"})
    assert "no tool" in call_tool("unknown", {})
