"""A strict fake of the three forms of Azure's chat completions: /openai/v1, deployments, and AI Foundry's /models.

    with FakeAzure() as upstream:
        upstream.script(Answer("Hi"), Answer(filtered="prompt"))
        ... call upstream.url + "/openai/v1/chat/completions" ...

Each form requires a specific path, version and header; bodies are checked like those of api.openai.com. Answers carry
the content filter's results, in streams first in a chunk without choices. `filtered` is "prompt" (a 400) or "answer".
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from fakes import openai_checks
from fakes.server import FakeServer, headers_of, send_json

KEY = "azure-test-key-0123456789"
DATED = "2024-10-21"
FOUNDRY_VERSION = "2024-05-01-preview"
DEPLOYMENT = re.compile(r"/openai/deployments/([^/]+)/chat/completions")
SAFE = {"hate": {"filtered": False, "severity": "safe"}, "violence": {"filtered": False, "severity": "safe"}}
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


@dataclass(frozen=True)
class Answer:
    text: str = "Hello."
    filtered: str = ""


@dataclass
class Recorded:
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any = None
    problem: str = ""


class FakeAzure(FakeServer):
    """The service with `deployments` of those names; `calls` are Recorded. `tokens` are valid beside the key."""

    def __init__(self, *deployments: str) -> None:
        super().__init__()
        self._deployments = deployments
        self.tokens: list[str] = []

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        headers = headers_of(environ)
        call = Recorded(environ["PATH_INFO"], parse_qs(environ.get("QUERY_STRING", "")), headers)
        self.calls.append(call)
        refusal = self._check(call, environ["wsgi.input"].read())
        if refusal is not None:
            call.problem = refusal[1]
            return send_json(start, refusal[0], {"error": {"code": refusal[2], "message": refusal[1]}})
        answer = self.next_answer(Answer())
        if answer.filtered == "prompt":
            inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": SAFE}
            message = "The response was filtered due to the prompt triggering the content management policy."
            return send_json(start, 400, {"error": {"code": "content_filter", "message": message, "innererror": inner}})
        if call.body.get("stream"):
            start("200 OK", [("Content-Type", "text/event-stream")])
            return _events(answer)
        return send_json(start, 200, _whole(answer))

    def _check(self, call: Recorded, payload: bytes) -> tuple[int, str, str] | None:
        """Return the error of a request as status, message and code."""
        token = call.headers.get("authorization", "").removeprefix("Bearer ")
        has_key = call.headers.get("api-key") == KEY
        if has_key == bool(token) or not (has_key or token in self.tokens):
            return 401, "Access denied due to invalid subscription key or wrong API endpoint.", "401"
        version = call.query.get("api-version", [""])[0]
        deployed = DEPLOYMENT.fullmatch(call.path)
        if deployed:
            if version != DATED:
                return 404, "Resource not found", "404"
            if deployed[1] not in self._deployments:
                return 404, "The API deployment for this resource does not exist.", "DeploymentNotFound"
        elif call.path == "/models/chat/completions":
            if version != FOUNDRY_VERSION:
                return 404, "Resource not found", "404"
        elif call.path != "/openai/v1/chat/completions" or version not in ("", "preview"):
            return 404, "Resource not found", "404"
        return self._check_body(call, payload)

    def _check_body(self, call: Recorded, payload: bytes) -> tuple[int, str, str] | None:
        environ = {"PATH_INFO": openai_checks.PATH, "REQUEST_METHOD": "POST", "CONTENT_TYPE": "application/json"}
        try:
            call.body = openai_checks.check_request(environ, {"authorization": "Bearer x"}, payload)
        except openai_checks.Refused as refused:
            return refused.status, str(refused), "invalid_request"
        return None


def _finish(answer: Answer) -> str:
    return "content_filter" if answer.filtered else "stop"


def _whole(answer: Answer) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer), "content_filter_results": SAFE}
    prompt = [{"prompt_index": 0, "content_filter_results": SAFE}]
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o-2024-11-20"}
    return head | {"choices": [choice], "usage": USAGE, "prompt_filter_results": prompt}


def _events(answer: Answer) -> Iterator[bytes]:
    head = {"id": "", "object": "", "created": 0, "model": ""}
    yield _frame(head | {"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": SAFE}]})
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-2024-11-20"}
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": answer.text}, None), ({}, _finish(answer))]
    for delta, finish in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "content_filter_results": SAFE}
        yield _frame(head | {"choices": [choice]})
    yield _frame(head | {"choices": [], "usage": USAGE})
    yield b"data: [DONE]\n\n"


def _frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
