"""Parameters of functions that services refuse, from each surface toward each vendor: they arrive complete."""

import json
from typing import Any

import pytest
from contract.contract_gateway import ContractGateway
from contract.vendors import FURTHER, VENDORS, Say

Json = dict[str, Any]
TEXT: Json = {"type": "string"}
ODD: Json = {
    "properties": {
        "list": {"type": "array"},
        "any": True,
        "lost": {"$ref": "#/$defs/none", "description": "Lost."},
        "pairs": {"type": "array", "items": {"type": "array"}},
    },
    "required": ["list"],
}
HELLO = [{"role": "user", "content": "Hello"}]
ALL = sorted(VENDORS | FURTHER)


def bodies(schema: Any) -> dict[str, Json]:
    function = {"name": "look", "description": "Looks.", "parameters": schema}
    return {
        "chat": {"messages": HELLO, "tools": [{"type": "function", "function": function}]},
        "responses": {"input": "Hello", "tools": [{"type": "function", "strict": False, **function}]},
        "messages": {
            "messages": HELLO,
            "max_tokens": 500,
            "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object", **(schema or {})}}],
        },
    }


def lists_in(value: Any) -> list[Json]:
    """Return all schemas of lists."""
    if isinstance(value, list):
        return [found for inner in value for found in lists_in(inner)]
    if not isinstance(value, dict):
        return []
    found = [value] if str(value.get("type")).lower() == "array" else []
    return found + [inner for each in value.values() for inner in lists_in(each)]


@pytest.mark.parametrize("surface", ["chat", "responses", "messages"])
@pytest.mark.parametrize("vendor", ALL)
def test_an_odd_schema_arrives_complete(stage: ContractGateway, vendor: str, surface: str) -> None:
    stage.script(vendor, Say("Done."))
    status, answered = stage.send(surface, {"model": f"{vendor}-able", **bodies(ODD)[surface]})
    assert status == 200, answered
    tools = stage.calls_of(vendor)[0].body.get("tools") or stage.calls_of(vendor)[0].body["toolConfig"]["tools"]
    if not (vendor == "anthropic" and surface == "messages"):  # relayed as a direct call
        assert len(lists_in(tools)) == 3 and all("items" in each for each in lists_in(tools)), tools
        assert "$ref" not in json.dumps(tools)


@pytest.mark.parametrize("surface", ["chat", "responses", "messages"])
@pytest.mark.parametrize("vendor", ALL)
@pytest.mark.parametrize("schema", [None, {}, {"additionalProperties": False}])
def test_a_function_without_a_proper_root_is_served(
    stage: ContractGateway, vendor: str, surface: str, schema: Any
) -> None:
    stage.script(vendor, Say(tools=(("look", "{}"),)))
    status, answered = stage.send(surface, {"model": f"{vendor}-able", **bodies(schema)[surface]})
    assert status == 200, answered
