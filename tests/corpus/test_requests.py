"""Every recorded request of a client, as the provider gets it, byte for byte but for the white space of its JSON.

A file of `requests` is one report: README.md describes its members. WRITE_GOLDENS=1 fills in `expected` where a file
has none.
"""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from corpus.replay import Bytes, Replay
from corpus.upstream_checks import ANSWERS, check_accepted

from gateway.catalogue import loader

FILES = sorted((Path(__file__).parent / "requests").glob("*.toml"))
WRITING = bool(os.environ.get("WRITE_GOLDENS"))
Json = dict[str, Any]


def _play(replay: Replay, report: Json) -> tuple[int, Json]:
    """Send the request and return the status of the answer and the body that the provider got."""
    provider = report["provider"]
    protocol = report.get("protocol", loader.load().providers[provider].protocol)
    model = report.get("model", f"{provider}/corpus")
    path = report["path"].replace("MODEL", model)
    body = json.loads(report["body"])
    headers = report.get("headers", {})
    if "MODEL" not in report["path"]:
        body = {"model": model, **body}
    if "/ai/" in path:
        headers = {"ai-language-model-id": model, "ai-language-model-streaming": "false", **headers}
    answers = [
        Bytes(json.dumps(ANSWERS[name]).encode(), 200, {"content-type": "application/json"}) for name in [protocol]
    ]
    # By the provider of the report alone: others with the same model would serve if it was slow in another test.
    headers = {"x-no-fallback": "true", **headers}
    answer = replay.play(path, body, answers, **headers)
    calls = [call for call in replay.upstream.calls if call.body]  # without lists of models
    assert len(calls) == 1, answer.text
    check_accepted(provider, protocol, calls[0])
    return answer.status_code, json.loads(calls[0].body)


# A file with `open` is a fault that is not yet mended: the line goes when the fault does.
WAYS = [
    pytest.param(
        path,
        id=path.stem,
        marks=pytest.mark.xfail(strict=True) if "open" in tomllib.loads(path.read_text()) else (),
    )
    for path in FILES
]


@pytest.mark.parametrize("path", WAYS)
def test_a_recorded_request_reaches_the_provider_as_expected(replay: Replay, path: Path) -> None:
    report = tomllib.loads(path.read_text())
    status, found = _play(replay, report)
    assert status == 200
    if WRITING and "expected" not in report:
        text = json.dumps(found, indent=2, ensure_ascii=False)
        path.write_text(f"{path.read_text().rstrip()}\nexpected = '''\n{text}'''\n")
        return
    expected = json.loads(report["expected"])
    assert json.dumps(found) == json.dumps(expected)
