"""Models call tools by the names that their request declares, which are others than the caller's where a vendor refuses
those."""

import dataclasses
from typing import Any

from fakes import responses
from fakes.server import FakeServer

DECLARED = "declared"
Json = dict[str, Any]


def call_declared_tools(fake: FakeServer) -> None:
    """Let a fake call its first tool where its script says DECLARED."""
    usual = fake.next_answer

    def next_answer(default: Any) -> Any:
        answer = usual(default)
        name = _first_name(fake.calls[-1].body)
        if isinstance(answer, responses.Answer):
            answer.items = tuple({**item, **_named(item, name)} for item in answer.items)
            return answer
        tools = tuple((name if said == DECLARED else said, given) for said, given in answer.tools)
        return dataclasses.replace(answer, tools=tools)

    fake.next_answer = next_answer  # type: ignore[method-assign]


def _named(item: Json, name: str) -> Json:
    return {"name": name} if item.get("name") == DECLARED else {}


def _first_name(body: Json) -> str:
    """Return the name of the first tool in a request of any format."""
    tools = body.get("tools") or body.get("toolConfig", {}).get("tools")
    tool = tools[0]
    for member in ("function", "custom", "toolSpec", "functionDeclarations"):
        tool = tool.get(member, tool)
        tool = tool[0] if isinstance(tool, list) else tool
    return tool["name"]
