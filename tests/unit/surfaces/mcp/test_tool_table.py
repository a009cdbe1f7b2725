from gateway.surfaces.mcp.tool_table import Toolbox

# Tools that call models, for which the caller pays.
PAID = {"chat", "generate-image", "generate-alt-image"}


def test_clients_are_told_which_tools_only_read() -> None:
    """https://modelcontextprotocol.io/specification/2025-11-25/schema#toolannotations: what is not stated counts as
    destructive and open."""
    shown = {tool["name"]: tool["annotations"] for tool in Toolbox().shown}
    reading = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    making = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True}
    assert shown == {name: making if name in PAID else reading for name in shown}
    assert set(shown) > PAID
