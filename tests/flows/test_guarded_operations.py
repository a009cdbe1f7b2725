"""Every operation that calls a model, under guardrails in both directions: the table of docs/guardrails.md holds."""

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.every_operation import MODELS, Step, Tour
from support.gateways import LocalGateway, local_gateway
from support.shared import load

from gateway.accounts import guardrail_changes
from gateway.configuration.settings import ROOT
from gateway.guardrails.rule_sets import INPUTS, GuardrailRule

PAGE = ROOT / "docs/guardrails.md"
BEGIN, END = "<!-- operations: begin -->\n", "<!-- operations: end -->\n"
# Paths that send nothing to a provider: they count, explain or store. Lines of batches and responses in the background
# are sent later, as requests of the operations in the table.
CALLING_NO_MODEL = re.compile(
    r"explain|count_tokens|countTokens|input_tokens|client_secrets|/config$|/cancel$|^/v1/(files|uploads)|batches$"
)
TOOLS = (
    Step("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "chat", "arguments": {
        "model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello!"}]}}}, access="key"),
    Step("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "generate-image",
        "arguments": {"model": "sandbox-image", "prompt": "A red square"}}}, access="key"),
)  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    folder = tmp_path_factory.mktemp("guarded")
    with local_gateway(lambda **given: load(folder, **given)) as gateway:
        yield gateway


def steps() -> dict[str, Step]:
    """Return the calls of models by their names."""
    found: dict[str, Step] = {}
    for step in (*MODELS, *TOOLS):
        body = step.body if isinstance(step.body, dict) else {}
        calls = step.method == "POST" and step.access == "key" and step.status == 200
        if not calls or CALLING_NO_MODEL.search(step.path) or body.get("background"):
            continue
        if step.path == "/mcp" and body.get("method") != "tools/call":
            continue
        tool = f" {body['params']['name']}" if step.path == "/mcp" else ""
        streamed = body.get("stream") or step.form.get("stream") or "streaming" in str(step.headers)
        streamed = streamed or body.get("stream_format") == "sse" or "stream" in step.path
        kind = ", images" if body.get("model") == "sandbox-image" and "chat" in step.path else ""
        found[f"{step.method} {step.of or step.path}{tool}{kind}{', streamed' if streamed else ''}"] = step
    return found


def outcome(gateway: LocalGateway, step: Step, **members: Any) -> str:
    """Return what a rule does in a call that blocks every text and refuses what cannot be read."""
    store = gateway.services.store
    everything = GuardrailRule("", "Everything", "block", patterns=("(?s).",), unread="refuse", **members)
    place = (gateway.organization_id, "organization", gateway.organization_id)
    stored = guardrail_changes.add_guardrail(
        store.database, store.control, *place, everything, active=True, actor="operator"
    )
    tour = Tour(gateway.address, {"key": gateway.key}, "")
    tour.check = False
    text = tour.take(step).body.decode(errors="replace")
    guardrail_changes.remove_guardrail(store.database, store.control, place[0], stored.id, actor="operator")
    store.journal.flush(10)
    if "refuses what it cannot read" in text:
        return "refused as unreadable"
    counts, _ = guardrail_changes.count_findings(store.database, gateway.organization_id, 2)
    return "checked" if any(count.rule_id == stored.id for count in counts) else "no text"


def test_table_of_the_page_is_what_guardrails_do(gateway: LocalGateway) -> None:
    rows = ["| Operation | Request | Answer |\n", "|---|---|---|\n"]
    unchecked = []
    for name, step in steps().items():
        request = outcome(gateway, step, places=INPUTS)
        answer = outcome(gateway, step, places=("answer",))
        rows.append(f"| `{name}` | {request} | {answer} |\n")
        if request == "no text":
            unchecked.append(name)
    assert unchecked == []
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    if os.environ.get("WRITE_GOLDENS"):
        PAGE.write_text(text[:start] + "".join(rows) + text[end:])
        return
    assert text[start:end] == "".join(rows)
