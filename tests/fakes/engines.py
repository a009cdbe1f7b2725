"""fakes of local engines, as each lists its models: `with FakeEngine(OLLAMA) as engine: … engine.url …`.

Routes are {(method, path): body or function of the request's JSON}; everything else is a 404. `engine.routes` can be
changed at any time, `engine.away` makes it answer 503.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from fakes.server import FakeServer, headers_of, send_json

Routes = dict[tuple[str, str], Any]

SHOWN = {
    "qwen3:8b": {
        "capabilities": ["completion", "tools", "thinking"],
        "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960},
    },
    "gemma3:4b": {"capabilities": ["completion", "vision"], "model_info": {"gemma3.context_length": 131072}},
    "nomic-embed-text:latest": {"capabilities": ["embedding"], "model_info": {"nomic-bert.context_length": 2048}},
}


def listed(*names: str, **more: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model", "created": 1, **more} for name in names]}


OLLAMA: Routes = {
    ("GET", "/v1/models"): listed(*SHOWN, owned_by="library"),
    ("POST", "/api/show"): lambda body: SHOWN.get(body["model"]),
}
VLLM: Routes = {("GET", "/v1/models"): listed("Qwen/Qwen3-8B", owned_by="vllm", max_model_len=32768)}
LLAMA_CPP: Routes = {
    ("GET", "/v1/models"): {
        "models": [{"name": "gemma.gguf", "capabilities": ["completion", "multimodal"]}],
        **listed("gemma.gguf", owned_by="llamacpp", meta={"n_ctx_train": 8192, "n_params": 4}),
    }
}
LM_STUDIO: Routes = {
    ("GET", "/v1/models"): listed("qwen-vl", "plain", "embedder"),
    ("GET", "/api/v0/models"): {
        "object": "list",
        "data": [
            {"id": "qwen-vl", "type": "vlm", "max_context_length": 32768, "capabilities": ["tool_use"]},
            {"id": "plain", "type": "llm", "max_context_length": 4096, "capabilities": []},
            {"id": "embedder", "type": "embeddings", "max_context_length": 512},
        ],
    },
}


class FakeEngine(FakeServer):
    """The engine; `calls` are (method, path, headers)."""

    def __init__(self, routes: Routes) -> None:
        super().__init__()
        self.routes = dict(routes)
        self.away = False

    def serve(self, environ: dict[str, Any], start: Callable) -> Iterator[bytes]:
        headers = headers_of(environ)
        method = environ["REQUEST_METHOD"]
        path = environ["PATH_INFO"]
        payload = environ["wsgi.input"].read()
        self.calls.append((method, path, headers))
        body = None if self.away else self.routes.get((method, path))
        if callable(body):
            body = body(json.loads(payload))
        status = 503 if self.away else 404 if body is None else 200
        return send_json(start, status, body or {"error": "not found"})
