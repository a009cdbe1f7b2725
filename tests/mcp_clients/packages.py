"""The packages of npm that are tried, pinned, and where they are kept."""

from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parent.parent.parent / "data" / "mcp"
# The two generations of the TypeScript client, one package each. The second sends the requests of the first unless an
# option makes it look for the revision of the protocol that it was made for.
FIRST, SECOND = {"@modelcontextprotocol/sdk": "1.32.2"}, {"@modelcontextprotocol/client": "2.4.0"}
NEWEST = "2026-07-28"
AUTO, PINNED = ({"versionNegotiation": {"mode": mode}} for mode in ("auto", {"pin": NEWEST}))
# Folder, packages, the client's options, the revision that is agreed upon (the first does not tell).
GENERATIONS = [
    pytest.param("sdk", FIRST, {}, "", id="1"),
    pytest.param("client", SECOND, {}, "2025-11-25", id="2"),
    pytest.param("client", SECOND, AUTO, NEWEST, id="2-auto"),
    pytest.param("client", SECOND, PINNED, NEWEST, id="2-pinned"),
]
# Over the transport of before, which no later revision has.
BRIDGED = [*GENERATIONS[:2], pytest.param("client", SECOND, AUTO, "2025-11-25", id="2-auto")]
INSPECTOR, REMOTE = {"@modelcontextprotocol/inspector": "2.12.0"}, {"mcp-remote": "0.15.1"}
CONFORMANCE, NEXT = (
    {"@modelcontextprotocol/conformance": "0.1.16"},
    {"@modelcontextprotocol/conformance": "0.2.0-alpha.12"},
)
