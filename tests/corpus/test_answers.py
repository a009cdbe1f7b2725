"""Every recorded answer of a provider, byte for byte, as the callers of every surface see it.

A file of `answers` is one report: README.md describes its members.
"""

import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from corpus import seen
from corpus.replay import Bytes, Replay
from fakes.bedrock import encode_frame

FILES = sorted((Path(__file__).parent / "answers").glob("*.toml"))
Json = dict[str, Any]
EVENT_STREAM = "application/vnd.amazon.eventstream"


def read_file(path: Path) -> Json:
    return tomllib.loads(path.read_text())


def is_streamed(report: Json) -> bool:
    return report["body"].startswith(("data:", "event:", ":")) or report.get("framing") == "aws"


def answer_of(report: Json) -> Bytes:
    """Return the answer; with `framing = "aws"` each line of the body is the name and the JSON of one frame."""
    if report.get("framing") == "aws":
        pairs = [line.split(" ", 1) for line in report["body"].splitlines() if line]
        body = b"".join(encode_frame(name, json.loads(text)) for name, text in pairs)
        media = EVENT_STREAM
    else:
        body = report["body"].encode()
        media = "text/event-stream" if is_streamed(report) else "application/json"
    return Bytes(body, report.get("status", 200), {"content-type": media} | report.get("headers", {}))


WAYS = [
    pytest.param(path, surface, id=f"{path.stem}-{surface}")
    for path in FILES
    for surface in seen.SURFACES
    if not (surface in seen.UNSTREAMED and is_streamed(read_file(path)))
    and not (surface in seen.WITHOUT_STOP and "stop" in read_file(path).get("request", {}))
]


@pytest.mark.parametrize(("path", "surface"), WAYS)
def test_a_recorded_answer_is_read_rightly_on_every_surface(replay: Replay, path: Path, surface: str) -> None:
    report = read_file(path)
    provider = report["provider"]
    where, body, headers = seen.request_of(
        surface, f"{provider}/corpus", is_streamed(report), report.get("request", {})
    )
    answer = replay.play(where, body, [answer_of(report)], **headers)
    found = asdict(seen.read(surface, answer.content))
    expected = report["expected"]
    for name, value in expected.items():
        if surface == "mcp" and name in ("thought", "calls", "finish", "cited"):
            continue
        if name == "error" and found["error"] and surface in ("mcp", "cohere", "ai", "responses"):
            continue
        if name == "cited" and len(value) == len(found["cited"]):
            value = [[page, mark and text] for (page, text), (_, mark) in zip(value, found["cited"], strict=True)]
        assert found[name] == value, f"{name} on {surface}"
    if "error" not in expected:
        assert not found["error"]
