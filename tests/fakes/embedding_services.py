"""A strict fake of the embeddings of OpenAI, the Gemini API, Cohere, Mistral, Voyage and Jina.

    with FakeEmbeddingServices() as upstream:
        upstream.script(500)  # the status of the next answer; after the script's end all answers are valid
        ... call upstream.url + "/v1/embeddings", "/v1beta/models/x:batchEmbedContents", "/v2/embed" ...

Requests are held to the members that the `openai`, `google-genai` and `mistralai` packages publish and the references
of the others name, and to the most inputs that each takes in a call;
answers to OpenAI's and Google's published types. The vector of a text is its length and one, so every test can tell
which text it belongs to; each text counts three tokens, each token id one.
"""

import base64
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import mistralai.client
from fakes.server import FakeServer, headers_of, send_json
from google import genai
from openai.types import CreateEmbeddingResponse, EmbeddingCreateParams

TOKENS = 3
IMAGE_TOKENS = 1610
MOST = {"/v1": 2048, "/v2": 96, "/v1beta": 100, "/mistral/v1": 256, "/voyage/v1": 1000, "/jina/v1": 512}
COMPATIBLE_FIELDS = {
    "/voyage/v1": {"model", "input", "input_type", "truncation", "output_dimension", "output_dtype"},
    "/jina/v1": {"model", "input", "task", "dimensions", "normalized", "late_chunking", "embedding_type", "truncate"},
    "/mistral/v1": {"model", "input", "output_dimension", "output_dtype", "metadata"},
}
TASK_TYPES = {"RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT", "SEMANTIC_SIMILARITY", "CLASSIFICATION", "CLUSTERING"}
TASK_TYPES |= {"QUESTION_ANSWERING", "FACT_VERIFICATION", "CODE_RETRIEVAL_QUERY"}
JINA_TASKS = {"retrieval.query", "retrieval.passage", "text-matching", "code.query", "code.passage"}
COHERE_FIELDS = {"model", "texts", "input_type", "embedding_types", "output_dimension", "truncate", "max_tokens"}
COHERE_FIELDS |= {"images", "inputs"}
COHERE_PARTS = {"text": {"type", "text"}, "image_url": {"type", "image_url"}}


@dataclass
class Recorded:
    """A recorded request; `problem` is the reason of its refusal."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def vector_of(one: Any, size: int | None = None) -> list[float]:
    return [float(len(one)), 1.0, *([0.5] * (max(size, 2) - 2) if size else [])]


class FakeEmbeddingServices(FakeServer):
    """The services; `calls` are Recorded. `silent`: answers have no usage; the next `short` answers lack a vector."""

    base = ""
    silent = False
    short = 0

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        call = Recorded(environ["PATH_INFO"], headers_of(environ), json.loads(environ["wsgi.input"].read()))
        self.calls.append(call)
        status = self.next_answer(200)
        if status != 200:
            return send_json(
                start, status, {"error": {"message": "no", "code": status, "status": "X"}, "message": "no"}
            )
        try:
            answer = self._answer(call)
        except AssertionError as error:
            call.problem = str(error)
            return send_json(start, 400, {"error": {"message": f"refused: {error}"}, "message": f"refused: {error}"})
        return send_json(start, 200, answer)

    def _answer(self, call: Recorded) -> dict[str, Any]:
        names = ("input", "texts", "requests", "images", "inputs")
        inputs = next((call.body[name] for name in names if name in call.body), None)
        place = next(place for place in MOST if call.path.startswith(f"{place}/"))
        assert not isinstance(inputs, list) or len(inputs) <= MOST[place], "too many inputs"
        if call.path == "/v1/embeddings":
            return self._openai(call.body)
        if place in COMPATIBLE_FIELDS:
            return self._compatible(place, call.body)
        if call.path == "/v2/embed":
            return self._cohere(call.body)
        return self._google(call.path, call.body)

    def _openai(self, body: dict[str, Any]) -> dict[str, Any]:
        assert body.keys() <= EmbeddingCreateParams.__annotations__.keys(), "unknown member"
        texts = body["input"]
        single = isinstance(texts, str) or isinstance(texts[0], int)
        inputs = [texts] if single else texts
        rows = []
        for index, one in enumerate(inputs):
            vector: Any = vector_of(one, body.get("dimensions"))
            if body.get("encoding_format") == "base64":
                vector = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
            rows.append({"object": "embedding", "index": index, "embedding": vector})
        tokens = sum(TOKENS if isinstance(one, str) else len(one) for one in inputs)
        if self.short:
            self.short -= 1
            rows.pop()
        answer = {"object": "list", "data": rows[::-1], "model": body["model"]}
        answer["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
        if body.get("encoding_format") != "base64":
            CreateEmbeddingResponse.model_validate(answer)
        return {name: value for name, value in answer.items() if name != "usage"} if self.silent else answer

    def _compatible(self, place: str, body: dict[str, Any]) -> dict[str, Any]:
        assert body.keys() <= COMPATIBLE_FIELDS[place], "unknown member"
        assert body.get("task", "text-matching") in JINA_TASKS, "unknown task"
        size = body.get("output_dimension", body.get("dimensions"))
        rows = [
            {"object": "embedding", "index": index, "embedding": vector_of(one, size)}
            for index, one in enumerate(body["input"])
        ]
        tokens = TOKENS * len(rows)
        answer: dict[str, Any] = {"object": "list", "data": rows, "model": body["model"]}
        answer["usage"] = {"total_tokens": tokens} | ({} if "voyage" in place else {"prompt_tokens": tokens})
        if place == "/mistral/v1":
            mistralai.client.models.EmbeddingRequest.model_validate(body)
            answer |= {"id": "e-1", "usage": answer["usage"] | {"completion_tokens": 0}}
            mistralai.client.models.EmbeddingResponse.model_validate(answer)
        return answer

    def _cohere(self, body: dict[str, Any]) -> dict[str, Any]:
        assert body.keys() <= COHERE_FIELDS, "unknown member"
        assert body["input_type"] in ("search_document", "search_query", "classification", "clustering", "image")
        assert body.get("truncate", "END") in ("NONE", "START", "END")
        (name,) = body.keys() & {"texts", "images", "inputs"}
        parts = [part for item in body["inputs"] for part in item["content"]] if name == "inputs" else []
        assert all(part.keys() == COHERE_PARTS[part["type"]] for part in parts)
        assert name == "inputs" or all(isinstance(text, str) for text in body[name])
        (kind,) = body["embedding_types"]
        vectors: list[Any] = [vector_of(str(item), body.get("output_dimension")) for item in body[name]]
        if kind != "float":
            assert kind in ("int8", "uint8", "binary", "ubinary")
            vectors = [[int(number) for number in vector] for vector in vectors]
        billed = {"input_tokens": float(TOKENS * len(vectors))}
        if name != "texts":
            billed = {"input_tokens": 0.0, "image_tokens": float(IMAGE_TOKENS * len(vectors))}
        texts = body.get("texts", [])
        return {"id": "e-1", "embeddings": {kind: vectors}, "texts": texts, "meta": {"billed_units": billed}}

    def _google(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path.startswith("/v1beta/models/") and path.endswith(":batchEmbedContents"), "no such method"
        assert body.keys() == {"requests"}
        for request in body["requests"]:
            assert request.keys() <= {"model", "content", "outputDimensionality", "taskType", "title"}
            assert request.get("taskType", "CLUSTERING") in TASK_TYPES, "unknown task type"
            assert f"/v1beta/{request['model']}:batchEmbedContents" == path, "another model"
            genai.types.Content.model_validate(request["content"])
        texts = [
            (request["content"]["parts"][0]["text"], request.get("outputDimensionality"))
            for request in body["requests"]
        ]
        answer: dict[str, Any] = {"embeddings": [{"values": vector_of(*text)} for text in texts]}
        genai.types.EmbedContentResponse.model_validate(answer)
        return answer if self.silent else answer | {"usageMetadata": {"promptTokenCount": TOKENS * len(texts)}}
