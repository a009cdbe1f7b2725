"""Strict fakes of the batch APIs of OpenAI, Azure and Mistral, beside their other operations.

    with FakeOpenAIBatches() as upstream:
        upstream.desk.held = True        # batches stay in progress until it is False again
        ... create a batch at upstream.url + "/batches" ...

Requests are checked against the types that the official packages publish, files and lines by the rules of the guides.
Every line passes the checks of an ordinary request and gets the next answer of the script. `desk` lets batches
misbehave as providers do.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import mistralai.client
import openai.types as openai_types
from fakes import mistral as mistral_fake
from fakes import openai as openai_fake
from fakes.batch_desk import BatchFake, KeptBatch, form_of
from fakes.openai_checks import Refused as OpenAIRefused
from fakes.openai_checks import check_body
from fakes.published_types import check
from fakes.responses import Answer as ResponsesAnswer
from fakes.responses import FakeResponse, said
from fakes.responses_checks import check_request as check_response
from fakes.server import RecordedCall, headers_of, send_json
from pydantic import ValidationError

# Answers of operations without a fake.
OTHERS = {
    "/v1/embeddings": {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}],
        "usage": {"prompt_tokens": 4, "total_tokens": 4},
    },
    "/v1/moderations": {"id": "modr-1", "results": [{"flagged": False, "categories": {}, "category_scores": {}}]},
}


class FakeOpenAIBatches(BatchFake, openai_fake.FakeOpenAI):
    """api.openai.com with files and batches."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if self.desk.absent or not path.startswith(("/v1/files", "/v1/batches")):
            return super().serve(environ, start)
        call = RecordedCall(path, headers_of(environ))
        self.calls.append(call)
        if not call.headers.get("authorization", "").startswith("Bearer sk-"):
            return send_json(start, 401, {"error": {"message": "Incorrect API key provided."}})
        creates = method == "POST" and path == "/v1/batches"
        internal = {"error": {"message": "The server had an error.", "type": "server_error"}}
        return self.serve_batches(environ, start, call, creates, internal, OpenAIRefused)

    def _answer(self, environ: dict[str, Any], call: RecordedCall, method: str, path: str, payload: bytes) -> Any:
        desk = self.desk
        place = path.removeprefix("/v1/").split("/")
        match (method, *place):
            case ("POST", "files"):
                call.body = form_of(environ, payload)
                if call.body["purpose"] != "batch":
                    raise OpenAIRefused("Invalid purpose.", param="purpose")
                if call.body.get("expires_after[anchor]", "created_at") != "created_at":
                    raise OpenAIRefused("Invalid anchor.", param="expires_after")
                ident = desk.new("file-")
                desk.files[ident] = call.body["file"]
                return {
                    "id": ident,
                    "object": "file",
                    "purpose": "batch",
                    "filename": "lines.jsonl",
                    "status": "processed",
                }
            case ("GET", "files", ident, "content"):
                return desk.files[self._known(desk.files, ident)]
            case ("DELETE", "files", ident):
                del desk.files[self._known(desk.files, ident)]
                desk.deleted.append(ident)
                return {"id": ident, "object": "file", "deleted": True}
        return self._answer_about_batch(environ, call, payload, method, *place)

    def _answer_about_batch(
        self, environ: dict[str, Any], call: RecordedCall, payload: bytes, method: str, *place: str
    ) -> Any:
        desk = self.desk
        match (method, *place):
            case ("POST", "batches"):
                call.body = json.loads(payload)
                return self._show(self._create(call.body))
            case ("GET", "batches"):
                query = parse_qs(environ.get("QUERY_STRING", ""))
                page, more = desk.page_of(int(query["limit"][0]), query.get("after", [""])[0])
                last = page[-1].ident if page else None
                return {"object": "list", "data": [self._show(one) for one in page], "has_more": more, "last_id": last}
            case ("GET", "batches", ident):
                batch = desk.batches[self._known(desk.batches, ident)]
                desk.advance(batch, lambda line: self.answer_line(batch.body["endpoint"], line))
                return self._show(batch)
            case ("POST", "batches", ident, "cancel"):
                batch = desk.batches[self._known(desk.batches, ident)]
                if batch.state != "working":
                    raise OpenAIRefused(f"Cannot cancel a batch with status '{batch.state}'.", status=409)
                batch.state = "canceled"
                return self._show(batch)
        raise OpenAIRefused(f"Invalid URL ({method} {place})", status=404)

    def _known(self, table: dict[str, Any], ident: str) -> str:
        if ident not in table:
            raise OpenAIRefused(f"No such object: {ident}", status=404)
        return ident

    def _create(self, body: dict[str, Any]) -> KeptBatch:
        try:
            check(openai_types.BatchCreateParams, body, openai_types)
        except ValidationError as error:
            raise OpenAIRefused(str(error)) from None
        for key, value in (body.get("metadata") or {}).items():
            if len(key) > 64 or len(value) > 512:
                raise OpenAIRefused("Metadata is too long.", param="metadata")
        data = self.desk.files[self._known(self.desk.files, body["input_file_id"])]
        return self.desk.begin("batch_", self.read_lines(data, body), body)

    def read_lines(self, data: bytes, body: dict[str, Any]) -> list[tuple[str, Any]]:
        lines = [json.loads(line) for line in data.splitlines()]
        if not lines or len(lines) > 50_000 or len(data) > 200 << 20:
            raise OpenAIRefused("The file has too few or too many lines.", param="input_file_id")
        for line in lines:
            if set(line) != {"custom_id", "method", "url", "body"} or line["method"] != "POST":
                raise OpenAIRefused(f"Invalid line: {line}")
            if line["url"] != body["endpoint"]:
                raise OpenAIRefused("The url of a line must be the endpoint of the batch.", code="mismatched_endpoint")
            if line["body"].get("stream"):
                raise OpenAIRefused("Streaming is not supported in batches.")
        if len({line["custom_id"] for line in lines}) != len(lines):
            raise OpenAIRefused("The custom_id of a line is that of another.", code="duplicate_custom_id")
        if len({line["body"]["model"] for line in lines}) != 1:
            raise OpenAIRefused("All lines must name the same model.", code="mismatched_model")
        return [(line["custom_id"], line["body"]) for line in lines]

    def answer_line(self, endpoint: str, body: dict[str, Any]) -> tuple[int, Any]:
        if endpoint == "/v1/responses":
            return self._respond_to_line(body)
        if endpoint != "/v1/chat/completions":
            return 200, OTHERS[endpoint] | {"model": body["model"]}
        try:
            check_body(body)
        except OpenAIRefused as refused:
            return refused.status, refused.body
        answer = self.next_answer(openai_fake.Answer("Hello."))
        call = RecordedCall("line", {}, body)
        if answer.status != 200:
            return answer.status, json.loads(openai_fake._error(answer))
        call.usage = openai_fake._usage(answer, body)
        return 200, openai_fake._whole(answer, call)

    def _respond_to_line(self, body: dict[str, Any]) -> tuple[int, Any]:
        environ = {"PATH_INFO": "/v1/responses", "REQUEST_METHOD": "POST"}
        headers = {"authorization": "Bearer sk-upstream", "content-type": "application/json"}
        sealed: set[str] = set()
        try:
            check_response(environ, headers, json.dumps(body).encode(), sealed)
        except OpenAIRefused as refused:
            return refused.status, refused.body
        answer = self.next_answer(ResponsesAnswer(said("Hello.")))
        return 200, FakeResponse(answer, body, next(self.desk.numbers), sealed).response()

    def _show(self, batch: KeptBatch) -> dict[str, Any]:
        words = {"working": "in_progress", "ended": "completed", "canceled": "cancelled"}
        if batch.state in ("ended", "expired", "canceled") and not batch.files:
            batch.files = self._write_files(batch)
        good = sum(status == 200 for status, _ in batch.results.values())
        shown = {
            "id": batch.ident,
            "object": "batch",
            "endpoint": batch.body["endpoint"],
            "errors": None,
            "input_file_id": batch.body["input_file_id"],
            "completion_window": "24h",
            "status": words.get(batch.state, batch.state),
            "output_file_id": batch.files[0] or None if batch.files else None,
            "error_file_id": batch.files[1] or None if batch.files else None,
            "created_at": batch.created_at,
            "request_counts": {"total": len(batch.lines), "completed": good, "failed": len(batch.results) - good},
            "metadata": batch.body.get("metadata"),
        }
        if batch.state == "failed":
            errors = [{"code": "invalid", "message": self.desk.refused, "line": None, "param": None}]
            shown["errors"] = {"object": "list", "data": errors}
        openai_types.Batch.model_validate(shown)
        return shown

    def _write_files(self, batch: KeptBatch) -> tuple[str, str]:
        good, bad = [], []
        for custom_id, (status, body) in self.desk.ordered(batch):
            line: dict[str, Any] = {"id": f"batch_req_{custom_id}", "custom_id": custom_id}
            if not status:
                bad.append(line | {"response": None, "error": {"code": "server_error", "message": "Overloaded."}})
                continue
            response = {"status_code": status, "request_id": "req_1", "body": body}
            (good if status == 200 else bad).append(line | {"response": response, "error": None})
        for custom_id, _ in batch.lines if batch.state == "expired" else ():
            if custom_id not in batch.results:
                error = {"code": "batch_expired", "message": "This request could not be executed before the window."}
                bad.append({"id": "batch_req", "custom_id": custom_id, "response": None, "error": error})
        return self.store_lines(good), self.store_lines(bad)


class FakeAzureBatches(FakeOpenAIBatches):
    """Azure OpenAI (v1) with a deployment for Global Batch. Its name ends with -batch."""

    base = "/openai/v1"

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        path = environ["PATH_INFO"]
        if not path.startswith("/openai/v1/"):
            return send_json(start, 404, {"error": {"code": "404", "message": "Resource not found"}})
        if environ.get("HTTP_API_KEY") != "azure-test-key":
            return send_json(start, 401, {"error": {"code": "401", "message": "Access denied"}})
        environ = environ | {"PATH_INFO": path.removeprefix("/openai"), "HTTP_AUTHORIZATION": "Bearer sk-azure"}
        return super().serve(environ, start)

    def read_lines(self, data: bytes, body: dict[str, Any]) -> list[tuple[str, Any]]:
        lines = super().read_lines(data, body)
        if any(not line["model"].endswith("-batch") for _, line in lines):
            raise OpenAIRefused("The deployment is no batch deployment.", code="model_not_found")
        return lines


class FakeMistralBatches(BatchFake, mistral_fake.FakeMistral):
    """api.mistral.ai with files and batch jobs."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if self.desk.absent or not path.startswith(("/v1/files", "/v1/batch/")):
            return super().serve(environ, start)
        call = mistral_fake.Recorded(headers_of(environ))
        self.calls.append(call)
        if call.headers.get("authorization") != f"Bearer {mistral_fake.KEY}":
            return send_json(start, 401, {"detail": "Unauthorized"})
        creates = method == "POST" and path == "/v1/batch/jobs"
        internal = {"object": "error", "message": "Internal", "type": "internal", "code": 1}
        return self.serve_batches(environ, start, call, creates, internal, mistral_fake.Refused)

    def _answer(self, environ: dict[str, Any], call: Any, method: str, path: str, payload: bytes) -> Any:
        desk = self.desk
        match (method, *path.removeprefix("/v1/").split("/")):
            case ("POST", "files"):
                call.body = form_of(environ, payload)
                if set(call.body) != {"purpose", "file"} or call.body["purpose"] != "batch":
                    raise mistral_fake.Refused("Invalid purpose", "invalid_request_error", 422)
                ident = desk.new("file-")
                desk.files[ident] = call.body["file"]
                return {"id": ident, "object": "file", "purpose": "batch", "sample_type": "batch_request"}
            case ("GET", "files", ident, "content") if ident in desk.files:
                return desk.files[ident]
            case ("DELETE", "files", ident) if ident in desk.files:
                del desk.files[ident]
                desk.deleted.append(ident)
                return {"id": ident, "object": "file", "deleted": True}
        return self._answer_about_job(environ, call, payload, method, *path.removeprefix("/v1/").split("/"))

    def _answer_about_job(self, environ: dict[str, Any], call: Any, payload: bytes, method: str, *place: str) -> Any:
        desk = self.desk
        match (method, *place):
            case ("POST", "batch", "jobs"):
                call.body = json.loads(payload)
                known = mistralai.client.models.CreateBatchJobRequest.model_fields
                if not set(call.body) <= set(known):
                    raise mistral_fake.Refused("Extra inputs are not permitted", "invalid_request_error", 422)
                mistralai.client.models.CreateBatchJobRequest.model_validate(call.body)
                return self._show(desk.begin("job-", self._read(call.body), call.body))
            case ("GET", "batch", "jobs"):
                query = parse_qs(environ.get("QUERY_STRING", ""))
                size = int(query.get("page_size", ["100"])[0])
                begin = int(query.get("page", ["0"])[0]) * size
                page = [self._show(one) for one in list(desk.batches.values())[::-1][begin : begin + size]]
                return {"data": page, "object": "list", "total": len(desk.batches)}
            case ("GET", "batch", "jobs", ident) if ident in desk.batches:
                batch = desk.batches[ident]
                desk.advance(batch, self._answer_line)
                return self._show(batch)
            case ("POST", "batch", "jobs", ident, "cancel") if ident in desk.batches:
                batch = desk.batches[ident]
                if batch.state == "working":
                    batch.state = "canceled"
                return self._show(batch)
        raise mistral_fake.Refused("no Route matched with those values", "not_found", 404)

    def _read(self, body: dict[str, Any]) -> list[tuple[str, Any]]:
        lines = [json.loads(line) for line in self.desk.files[body["input_files"][0]].splitlines()]
        if any(set(line) != {"custom_id", "body"} or "model" in line["body"] for line in lines):
            raise mistral_fake.Refused("Invalid line", "invalid_request_error", 422)
        for line in lines:
            if body["endpoint"] == "/v1/chat/completions":
                mistral_fake.check_body(json.dumps({"model": body["model"], **line["body"]}).encode())
        return [(line["custom_id"], {"model": body["model"], **line["body"]}) for line in lines]

    def _answer_line(self, body: dict[str, Any]) -> tuple[int, Any]:
        if "messages" not in body:
            return 200, OTHERS["/v1/embeddings"] | {"model": body["model"]}
        answer = self.next_answer(mistral_fake.Answer("Hello."))
        if answer.status != 200:
            return answer.status, {"object": "error", "message": "Scripted.", "type": "server_error", "code": None}
        return 200, mistral_fake._whole(answer, body["model"])

    def _show(self, batch: KeptBatch) -> dict[str, Any]:
        words = {
            "working": "RUNNING",
            "ended": "SUCCESS",
            "canceled": "CANCELLED",
            "expired": "TIMEOUT_EXCEEDED",
            "failed": "FAILED",
        }
        if batch.state in ("ended", "expired", "canceled") and not batch.files:
            good, bad = [], []
            for custom_id, (status, body) in self.desk.ordered(batch):
                response = {"status_code": status or 503, "body": body or {"message": "busy"}}
                line = {"id": f"id-{custom_id}", "custom_id": custom_id, "response": response, "error": None}
                (good if status == 200 else bad).append(line)
            batch.files = tuple(self.store_lines(lines) for lines in (good, bad))
        good_count = sum(status == 200 for status, _ in batch.results.values())
        shown = {
            "id": batch.ident,
            "object": "batch",
            "input_files": batch.body["input_files"],
            "metadata": batch.body.get("metadata"),
            "endpoint": batch.body["endpoint"],
            "model": batch.body["model"],
            "output_file": (batch.files[0] or None) if batch.files else None,
            "error_file": (batch.files[1] or None) if batch.files else None,
            "errors": [{"message": self.desk.refused, "count": 1}] if batch.state == "failed" else [],
            "status": words[batch.state],
            "created_at": batch.created_at,
            "total_requests": len(batch.lines),
            "completed_requests": len(batch.results),
            "succeeded_requests": good_count,
            "failed_requests": len(batch.results) - good_count,
        }
        mistralai.client.models.BatchJob.model_validate(shown)
        return shown
