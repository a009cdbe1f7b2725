"""An MCP server over standard input and output with tools for notes."""

import json
import sys

TEXT = {"type": "string"}
TOOLS = [
    {
        "name": name,
        "description": f"{name.replace('_', ' ').capitalize()} of the user's notebook.",
        "inputSchema": {"type": "object", "properties": {"title": TEXT}, "required": ["title"]},
    }
    for name in ("read_note", "list_notes", "remove_note")
]


def answer(method: str, params: dict) -> dict:
    match method:
        case "initialize":
            info = {"name": "notes", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"The note says: {params['arguments'].get('title')}."}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
