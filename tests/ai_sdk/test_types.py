"""Every part of a stream against the SDK's own types: what each `@ai-sdk/provider` declares, by its compiler."""

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from ai_sdk.clients import CACHE, MAJORS, PREFIXES
from ai_sdk.scene import Scene
from contract.cases import PLACE
from contract.vendors import SOURCE, Say

VERSIONS = {5: 2, 6: 3, 7: 4}
COMPILE_S = 120
TOOL = {"type": "function", "name": "weather", "inputSchema": PLACE}
SEARCH = {"type": "provider", "id": "openai.web_search", "name": "finder", "args": {}}
REASON = {"providerOptions": {"llmgateway": {"reasoning_effort": "high"}}}
# Vendor, its answer, the options of the request.
STREAMS: list[tuple[str, Say, dict[str, Any]]] = [
    ("openai", Say("Good day."), {"seed": 1, "temperature": 0.5}),
    ("openai", Say("See:", tools=(("weather", "{}"), ("weather", "{}"))), {"tools": [TOOL]}),
    ("openai", Say(refusal="No."), {}),
    ("anthropic", Say("Aha.", thinking="Hm.", sealed="gAAA=="), REASON),
    ("anthropic", Say("News.", source=SOURCE), {"tools": [SEARCH]}),
    ("google", Say("Aha.", thinking="Hm.", tools=(("weather", '{"city": "Oslo"}'),)), {"tools": [TOOL], **REASON}),
    ("responses", Say("News.", thinking="Hm.", source=SOURCE), {"tools": [SEARCH], **REASON}),
    ("anthropic", Say("Cut off in the middle of it all.", cut=900), {}),
]


def parts_of(scene: Scene, major: int) -> list[dict[str, Any]]:
    """All parts that a client of the major is sent."""
    found = []
    for vendor, say, options in STREAMS:
        scene.script(vendor, say)
        body = {"prompt": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}], **options}
        headers = {
            "Authorization": f"Bearer {scene.gateway.key}",
            "Content-Type": "application/json",
            "ai-language-model-id": f"fake-{vendor}/{vendor}-able",
            "ai-language-model-streaming": "true",
        }
        address = f"{scene.gateway.address}{PREFIXES[major]}/language-model"
        request = urllib.request.Request(address, json.dumps(body).encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found += [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return found


def as_declared(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part as the types declare it: the client turns times into dates, and the types lack some warnings."""
    part = {name: value for name, value in part.items() if name != "timestamp"}
    if part["type"] == "stream-start":
        part["warnings"] = [warning for warning in part["warnings"] if warning["type"] == "other"]
    return part


@pytest.mark.parametrize("major", list(MAJORS))
def test_every_part_is_of_the_type_that_the_version_declares(scene: Scene, major: int) -> None:
    parts = parts_of(scene, major)
    kinds = {part["type"] for part in parts}
    assert {"text-delta", "reasoning-end", "tool-call", "tool-result", "source", "error", "finish"} <= kinds
    name = f"LanguageModelV{VERSIONS[major]}StreamPart"
    lines = [f"import type {{ {name} }} from '@ai-sdk/provider';"]
    lines += [f"export const p{n}: {name} = {json.dumps(as_declared(part))};" for n, part in enumerate(parts)]
    folder: Path = CACHE / f"major-{major}"
    (folder / "parts.ts").write_text("\n".join(lines))
    options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"]
    command = [str(CACHE / "compiler" / "node_modules" / ".bin" / "tsc"), *options, "parts.ts"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_S)
    assert done.returncode == 0, done.stdout[:2000]
