"""A strict fake of operations of one object: moderations, rerank, OCR and decisions, as their vendors have them.

Requests are held to the members that the `openai` and `mistralai` packages publish and the references of Cohere, Jina,
Voyage and DeepInfra name. `silent`: answers tell no usage.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import mistralai.client
from fakes.server import FakeServer, headers_of, send_json
from openai.types import ModerationCreateParams, ModerationCreateResponse

TOKENS, PAGES, SEARCHES = 70, 3, 2
CATEGORIES = [
    *("harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent", "self-harm"),
    *("self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors", "violence", "violence/graphic"),
]


@dataclass
class Recorded:
    path: str
    headers: dict[str, str]
    body: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


class FakeStructuredServices(FakeServer):
    """The services; `calls` are Recorded."""

    base = ""
    silent = False

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        call = Recorded(environ["PATH_INFO"], headers_of(environ), json.loads(environ["wsgi.input"].read()))
        self.calls.append(call)
        status = self.next_answer(200)
        if status != 200:
            return send_json(start, status, {"error": {"message": "no"}, "message": "no"})
        try:
            answer = self._answer(call.path, call.body)
        except AssertionError as error:
            call.problem = str(error)
            return send_json(start, 400, {"error": {"message": f"refused: {error}"}})
        return send_json(start, 200, answer)

    def _answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/v1/moderations":
            return self._moderations(body)
        if path == "/v1/ocr":
            return self._ocr(body)
        if path == "/v1/systemone":
            assert body.keys() == {"model", "state", "questions"}, "members"
            answers = {name: {"type": question["type"], "noul": 0.9} for name, question in body["questions"].items()}
            return {"model": f"typesafe/{body['model']}", "answers": answers} | self._usage(input_tokens=TOKENS)
        return self._rerank(path, body)

    def _usage(self, **tokens: int) -> dict[str, Any]:
        return {} if self.silent else {"usage": tokens}

    def _moderations(self, body: dict[str, Any]) -> dict[str, Any]:
        assert body.keys() <= ModerationCreateParams.__annotations__.keys(), "unknown member"
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        assert body["model"] == "omni-moderation-latest" or all(isinstance(text, str) for text in texts), "texts alone"
        rows: list[dict[str, Any]] = [
            {
                "categories": {name: name == "violence" and "kill" in str(text) for name in CATEGORIES},
                "category_scores": dict.fromkeys(CATEGORIES, 0.01),
            }
            for text in texts
        ]
        if not body["model"].startswith("mistral"):
            for row in rows:
                row |= {"flagged": any(row["categories"].values())}
                row["category_applied_input_types"] = {key: ["text"] for key in CATEGORIES}
            ModerationCreateResponse.model_validate({"id": "modr-1", "model": body["model"], "results": rows})
        answer = {"id": "modr-1", "model": body["model"], "results": rows}
        if body["model"].startswith("mistral"):
            mistralai.client.models.ClassificationRequest.model_validate(body)
            mistralai.client.models.ModerationResponse.model_validate(answer)
            return answer | self._usage(prompt_tokens=TOKENS, total_tokens=TOKENS, completion_tokens=0)
        return answer

    def _ocr(self, body: dict[str, Any]) -> dict[str, Any]:
        mistralai.client.models.OCRRequest.model_validate(body)
        size = {"dpi": 200, "height": 10, "width": 10}
        rows = [{"index": n, "markdown": f"# Page {n}", "images": [], "dimensions": size} for n in range(PAGES)]
        answer: dict[str, Any] = {"pages": rows, "model": body["model"], "document_annotation": None}
        answer["usage_info"] = {"pages_processed": PAGES, "doc_size_bytes": 99}
        mistralai.client.models.OCRResponse.model_validate(answer)
        if self.silent:
            del answer["usage_info"]
        return answer

    def _rerank(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        scores = [round(len(text) / 100, 4) for text in body["documents"]]
        rows = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
        if path.startswith("/v1/inference/"):
            assert body.keys() == {"queries", "documents"} and len(body["queries"]) == 1, "members"
            return {"scores": scores, "inference_status": {"status": "succeeded"}} | (
                {} if self.silent else {"input_tokens": TOKENS}
            )
        assert body.keys() == {"model", "query", "documents"}, "members"
        if path == "/v2/rerank":
            usage = {} if self.silent else {"billed_units": {"search_units": SEARCHES}}
            return {"id": "r-1", "results": rows, "meta": {"api_version": {"version": "2"}, **usage}}
        assert path in ("/v1/rerank", "/voyage/v1/rerank"), path
        return {"data" if "voyage" in path else "results": rows} | self._usage(total_tokens=TOKENS)
