"""Strict fakes of the batch APIs of Anthropic and Google, beside their other operations.

Every line passes the checks of an ordinary request and gets the next answer of the script; `desk` lets batches
misbehave as providers do.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

from fakes import anthropic as anthropic_fake
from fakes import google as google_fake
from fakes.anthropic_checks import Refused as AnthropicRefused
from fakes.anthropic_checks import check_request as check_message
from fakes.batch_desk import BatchFake, KeptBatch
from fakes.google_checks import Refused as GoogleRefused
from fakes.google_checks import check_request as check_generate
from fakes.server import RecordedCall, headers_of
from multipart import parse_options_header

CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class FakeAnthropicBatches(BatchFake, anthropic_fake.FakeAnthropic):
    """api.anthropic.com with message batches."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if self.desk.absent or not path.startswith("/v1/messages/batches"):
            return super().serve(environ, start)
        call = RecordedCall(path, headers_of(environ))
        self.calls.append(call)
        creates = method == "POST" and path == "/v1/messages/batches"
        internal = {"type": "error", "error": {"type": "api_error", "message": "Internal"}}
        return self.serve_batches(environ, start, call, creates, internal, AnthropicRefused)

    def _answer(self, environ: dict[str, Any], call: RecordedCall, method: str, path: str, payload: bytes) -> Any:
        desk = self.desk
        if call.headers.get("anthropic-version") != "2023-06-01" or not call.headers.get("x-api-key"):
            raise AnthropicRefused("anthropic-version: header is required")
        match (method, *path.removeprefix("/v1/messages/batches").split("/")[1:]):
            case ("POST",):
                call.body = json.loads(payload)
                return self._show(desk.begin("msgbatch_", self._read(environ, call), {}))
            case ("GET",):
                query = parse_qs(environ.get("QUERY_STRING", ""))
                page, more = desk.page_of(int(query["limit"][0]), query.get("after_id", [""])[0])
                shown = [self._show(one) for one in page]
                last = page[-1].ident if page else None
                return {"data": shown, "has_more": more, "first_id": page[0].ident if page else None, "last_id": last}
            case ("GET", ident):
                batch = self._known(ident)
                desk.advance(batch, self._answer_line)
                return self._show(batch)
            case ("POST", ident, "cancel"):
                batch = self._known(ident)
                batch.state = "canceled" if batch.state == "working" else batch.state
                return self._show(batch)
        return self._answer_at_end(method, *path.removeprefix("/v1/messages/batches").split("/")[1:])

    def _answer_at_end(self, method: str, *place: str) -> Any:
        desk = self.desk
        match (method, *place):
            case ("GET", ident, "results"):
                batch = self._known(ident)
                if batch.state == "working":
                    raise AnthropicRefused("Batch has no available results.")
                return self._results(batch)
            case ("DELETE", ident):
                if self._known(ident).state == "working":
                    raise AnthropicRefused("Batch cannot be deleted while it is in progress.")
                del desk.batches[ident]
                desk.deleted.append(ident)
                return {"id": ident, "type": "message_batch_deleted"}
        raise AnthropicRefused("Not Found", status=404, kind="not_found_error")

    def _known(self, ident: str) -> KeptBatch:
        if ident not in self.desk.batches:
            raise AnthropicRefused("Not Found", status=404, kind="not_found_error")
        return self.desk.batches[ident]

    def _read(self, environ: dict[str, Any], call: RecordedCall) -> list[tuple[str, Any]]:
        requests = call.body["requests"]
        if set(call.body) != {"requests"} or not requests or len(requests) > 100_000:
            raise AnthropicRefused("requests: invalid")
        idents = [request["custom_id"] for request in requests]
        if len(set(idents)) != len(idents) or not all(CUSTOM_ID.fullmatch(ident) for ident in idents):
            raise AnthropicRefused("requests: custom_id must be unique, with letters, digits, _ and -")
        for number, request in enumerate(requests):
            if set(request) != {"custom_id", "params"} or request["params"].get("stream"):
                raise AnthropicRefused(f"requests.{number}: extra inputs are not permitted")
            message = environ | {"PATH_INFO": "/v1/messages", "REQUEST_METHOD": "POST"}
            check_message(message, call.headers, json.dumps(request["params"]).encode())
        return [(request["custom_id"], request["params"]) for request in requests]

    def _answer_line(self, body: dict[str, Any]) -> tuple[int, Any]:
        answer = self.next_answer(anthropic_fake.Answer("Hello."))
        if answer.status != 200:
            return answer.status, json.loads(anthropic_fake._error(answer))
        message = anthropic_fake.message_of(answer, body["model"], body)
        message["usage"]["service_tier"] = "batch"
        return 200, message

    def _show(self, batch: KeptBatch) -> dict[str, Any]:
        ended = batch.state in ("ended", "expired", "canceled", "failed")
        good = sum(status == 200 for status, _ in batch.results.values())
        left = len(batch.lines) - len(batch.results)
        shown = {
            "id": batch.ident,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": {
                "processing": 0 if ended else left,
                "succeeded": good,
                "errored": len(batch.results) - good,
                "canceled": left if batch.state == "canceled" else 0,
                "expired": left if batch.state == "expired" else 0,
            },
            "created_at": datetime.fromtimestamp(batch.created_at, UTC).isoformat(),
            "expires_at": datetime.fromtimestamp(batch.created_at + 86400, UTC).isoformat(),
            "ended_at": datetime.fromtimestamp(batch.created_at + 60, UTC).isoformat() if ended else None,
            "cancel_initiated_at": None,
            "archived_at": None,
            "results_url": f"https://elsewhere.invalid/{batch.ident}/results" if ended else None,
        }
        from anthropic.types.messages import MessageBatch

        MessageBatch.model_validate(shown)
        return shown

    def _results(self, batch: KeptBatch) -> bytes:
        lines = []
        for custom_id, (status, body) in self.desk.ordered(batch):
            if status == 200:
                result = {"type": "succeeded", "message": body}
            else:
                overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
                result = {"type": "errored", "error": body or overloaded}
            lines.append({"custom_id": custom_id, "result": result})
        word = "canceled" if batch.state == "canceled" else "expired"
        lines += [
            {"custom_id": ident, "result": {"type": word}} for ident, _ in batch.lines if ident not in batch.results
        ]
        from anthropic.types.messages import MessageBatchIndividualResponse

        for line in lines:
            MessageBatchIndividualResponse.model_validate(line)
        return self.desk.file_of(lines)


class FakeGoogleBatches(BatchFake, google_fake.FakeGoogle):
    """generativelanguage.googleapis.com with the Files API and batches."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        path = environ["PATH_INFO"]
        about = path.startswith(("/upload/", "/download/", "/v1beta/files", "/v1beta/batches"))
        if self.desk.absent or not (about or path.endswith(":batchGenerateContent")):
            return super().serve(environ, start)
        call = google_fake.Recorded(path, headers_of(environ), query=environ.get("QUERY_STRING", ""))
        self.calls.append(call)
        creates = path.endswith(":batchGenerateContent")
        internal = {"error": {"code": 500, "message": "Internal", "status": "INTERNAL"}}
        return self.serve_batches(environ, start, call, creates, internal, GoogleRefused)

    def _answer(self, environ: dict[str, Any], call: Any, method: str, path: str, payload: bytes) -> Any:
        desk = self.desk
        if not call.headers.get("x-goog-api-key"):
            raise GoogleRefused("Method doesn't allow unregistered callers", status=403)
        if (method, path) == ("POST", "/upload/v1beta/files"):
            return self._upload(environ, call, payload)
        if path.startswith("/download/v1beta/"):
            name = path.removeprefix("/download/v1beta/").removesuffix(":download")
            if call.query != "alt=media" or name not in desk.files:
                raise GoogleRefused("File not found", status=404)
            return desk.files[name]
        if path.endswith(":batchGenerateContent"):
            call.body = json.loads(payload)
            call.model = path.removeprefix("/v1beta/models/").partition(":")[0]
            return self._show(self._create(call))
        return self._answer_about(parse_qs(call.query), method, *path.removeprefix("/v1beta/").partition(":")[::2])

    def _answer_about(self, query: dict[str, list[str]], method: str, name: str, verb: str) -> Any:
        desk = self.desk
        if method == "DELETE" and (name in desk.files or name in desk.batches):
            (desk.files if name in desk.files else desk.batches).pop(name)
            desk.deleted.append(name)
            return {}
        if (method, name) == ("GET", "batches"):
            page, more = desk.page_of(int(query["pageSize"][0]), query.get("pageToken", [""])[0])
            shown = {"operations": [self._show(one) for one in page]}
            return shown | ({"nextPageToken": page[-1].ident} if more else {})
        batch = desk.batches.get(name)
        if batch is None:
            raise GoogleRefused("Requested entity was not found.", status=404)
        if (method, verb) == ("POST", "cancel"):
            if batch.state == "working":
                batch.state = "canceled"
            return {}
        desk.advance(batch, lambda line: self._answer_line(batch.body["model"], line))
        return self._show(batch)

    def _upload(self, environ: dict[str, Any], call: Any, payload: bytes) -> Any:
        kind, options = parse_options_header(environ.get("CONTENT_TYPE", ""))
        if call.headers.get("x-goog-upload-protocol") != "multipart" or kind != "multipart/related":
            raise GoogleRefused("Invalid upload.")
        first, second = payload.split(f"--{options['boundary']}".encode())[1:3]
        described = json.loads(first.partition(b"\r\n\r\n")[2])
        name = f"files/{self.desk.new('f')}"
        self.desk.files[name] = second.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        return {"file": {"name": name, **described["file"]}}

    def _create(self, call: Any) -> KeptBatch:
        batch = call.body["batch"]
        if set(call.body) != {"batch"} or set(batch) != {"displayName", "inputConfig"}:
            raise GoogleRefused("Invalid JSON payload received.")
        lines = [json.loads(line) for line in self.desk.files[batch["inputConfig"]["fileName"]].splitlines()]
        if any(set(line) != {"key", "request"} for line in lines):
            raise GoogleRefused("Invalid line.")
        for line in lines:
            environ = {"PATH_INFO": f"/v1beta/models/{call.model}:generateContent", "REQUEST_METHOD": "POST"}
            headers = call.headers
            check_generate(environ, headers, json.dumps(line["request"]).encode(), self.signatures)
        body = {"model": call.model, "name": batch["displayName"]}
        return self.desk.begin("batches/b", [(line["key"], line["request"]) for line in lines], body)

    def _answer_line(self, model: str, body: dict[str, Any]) -> tuple[int, Any]:
        answer = self.next_answer(google_fake.Answer("Hello."))
        if answer.status != 200:
            return answer.status, None
        call = google_fake.Recorded("line", {}, model=model, body=body)
        call.usage = google_fake._usage(answer, body)
        return 200, google_fake._joined(list(self._chunks(answer, call)))

    def _show(self, batch: KeptBatch) -> dict[str, Any]:
        words = {
            "working": "RUNNING",
            "ended": "SUCCEEDED",
            "canceled": "CANCELLED",
            "expired": "EXPIRED",
            "failed": "FAILED",
        }
        if batch.state in ("ended", "expired", "canceled") and not batch.files:
            lines = []
            for key, (status, body) in self.desk.ordered(batch):
                code = {400: 3, 429: 8}.get(status, 14)
                error = {"code": code, "message": "Scripted."}
                lines.append({"key": key, "response": body} if status == 200 else {"key": key, "error": error})
            name = f"files/{self.desk.new('r')}"
            self.desk.files[name] = self.desk.file_of(lines, "key")
            batch.files = (name,)
        good = sum(status == 200 for status, _ in batch.results.values())
        metadata = {
            "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
            "model": f"models/{batch.body['model']}",
            "displayName": batch.body["name"],
            "createTime": datetime.fromtimestamp(batch.created_at, UTC).isoformat(),
            "batchStats": {
                "requestCount": str(len(batch.lines)),
                "successfulRequestCount": str(good),
                "failedRequestCount": str(len(batch.results) - good),
            },
            "state": f"BATCH_STATE_{words[batch.state]}",
            "name": batch.ident,
        }
        shown: dict[str, Any] = {"name": batch.ident, "metadata": metadata}
        if batch.files:
            shown |= {"done": True, "response": {"responsesFile": batch.files[0]}}
        if batch.state == "failed":
            shown |= {"done": True, "error": {"code": 3, "message": self.desk.refused}}
        return shown
