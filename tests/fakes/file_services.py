"""Strict fakes of the files APIs of OpenAI, Azure, Anthropic, Google and Mistral, beside their other operations.

    with FakeOpenAIFiles() as upstream:
        ... send a request with a large file ...
        assert upstream.desk.uploads == 1

Uploads are checked against the types that the official packages publish, and each answer is one of these types. A
request that names a file which is not on the `desk` of its account is refused as the service refuses it.
"""

import hashlib
import io
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, get_args
from urllib.parse import parse_qs

import gevent
import openai.types as openai_types
from fakes import anthropic as anthropic_fake
from fakes import azure as azure_fake
from fakes import google as google_fake
from fakes import mistral as mistral_fake
from fakes import openai as openai_fake
from fakes import responses as responses_fake
from fakes.batch_desk import form_of
from fakes.published_types import check
from fakes.server import RecordedCall, headers_of, send_json
from google import genai
from openai.types import file_create_params
from pydantic import ValidationError

NUMBERS = itertools.count(1)  # providers never use an id twice
BETA = "files-api-2025-04-14"
PDF = "JVBERi0xLjQK"


@dataclass
class KeptFile:
    account: str
    size: int
    digest: str
    media_type: str
    fields: dict[str, Any]
    expires_at: int
    ready_at: float = 0.0


@dataclass
class FileDesk:
    """The files of a service, and its faults.

    `failing`: every call about files is answered with this status. `slow_s` passes before an upload is answered.
    `reading_s` passes until a file can be named (Google). `lifetime_s`: files expire after this time at most.
    """

    files: dict[str, KeptFile] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    uploads: int = 0
    shown: int = 0
    failing: int = 0
    slow_s: float = 0.0
    reading_s: float = 0.0
    lifetime_s: int = 30 * 86_400

    def lose(self) -> None:
        """Forget all files."""
        self.files.clear()

    def keep(
        self, ident: str, account: str, data: bytes, media_type: str, fields: dict[str, Any], life: int
    ) -> KeptFile:
        self.uploads += 1
        gevent.sleep(self.slow_s)
        expires_at = int(time.time()) + min(life, self.lifetime_s)
        digest = hashlib.sha256(data).hexdigest()
        ready_at = time.monotonic() + self.reading_s
        self.files[ident] = KeptFile(account, len(data), digest, media_type, fields, expires_at, ready_at)
        return self.files[ident]


class FileRefused(Exception):
    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def holders(root: Any, *names: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the objects with one of these members, and its name."""
    rest = [root]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            yield from ((node, name) for name in names if isinstance(node.get(name), str))
            rest += node.values()
        elif isinstance(node, list):
            rest += node


class FileFake:
    """The part that all services share; `desk` is its state."""

    id_names: tuple[str, ...] = ("file_id",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.desk = FileDesk()
        self.file_calls: list[RecordedCall] = []

    def is_about_files(self, path: str) -> bool:
        return path.startswith("/v1/files")

    def account(self, headers: dict[str, str]) -> str:
        return headers.get("authorization", "")

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        headers = headers_of(environ)
        payload = environ["wsgi.input"].read()
        path = environ["PATH_INFO"]
        if self.is_about_files(path):
            call = RecordedCall(path, headers)
            self.file_calls.append(call)
            if self.desk.failing:
                return send_json(start, self.desk.failing, self.error("The server had an error.", self.desk.failing))
            try:
                answer, more = self.answer(environ, call, payload)
            except FileRefused as refused:
                call.problem = str(refused)
                return send_json(start, refused.status, self.error(str(refused), refused.status))
            return send_json(start, 200, answer, *more)
        if environ["REQUEST_METHOD"] == "POST" and payload.startswith(b"{"):
            body = json.loads(payload)
            try:
                self.check_names(body, headers)
            except FileRefused as refused:
                return send_json(start, refused.status, self.error(str(refused), refused.status))
            payload = json.dumps(self.without_names(body)).encode()
        return super().serve({**environ, "wsgi.input": io.BytesIO(payload), "CONTENT_LENGTH": str(len(payload))}, start)

    def check_names(self, body: Any, headers: dict[str, str]) -> None:
        for node, name in holders(body, *self.id_names):
            self.known(node[name], self.account(headers))

    def without_names(self, body: Any) -> Any:
        """Return the body as the checks of ordinary requests take it."""
        return body

    def known(self, ident: str, account: str) -> KeptFile:
        kept = self.desk.files.get(ident)
        if kept is None or kept.account != account or kept.expires_at <= time.time():
            raise FileRefused(f"File {ident} not found.", 404)
        return kept

    def error(self, message: str, status: int) -> Any:
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}

    def answer(self, environ: dict[str, Any], call: RecordedCall, payload: bytes) -> Any:
        place = call.path.removeprefix("/v1/files").strip("/")
        account = self.account(call.headers)
        match environ["REQUEST_METHOD"]:
            case "POST" if not place:
                form = call.body = form_of(environ, payload)
                return self.show(*self.upload(form, account, payload)), ()
            case "GET":
                self.desk.shown += 1
                return self.show(place, self.known(place, account)), ()
            case "DELETE":
                self.known(place, account)
                del self.desk.files[place]
                self.desk.deleted.append(place)
                return {"id": place, "object": "file", "deleted": True}, ()
        raise FileRefused("Invalid URL", 404)

    def upload(self, form: dict[str, Any], account: str, payload: bytes) -> tuple[str, KeptFile]:
        raise NotImplementedError

    def show(self, ident: str, kept: KeptFile) -> Any:
        raise NotImplementedError


class OpenAIFiles(FileFake):
    purposes: tuple[str, ...] = ("user_data",)
    shortest_s = 3600

    def upload(self, form: dict[str, Any], account: str, payload: bytes) -> tuple[str, KeptFile]:
        life = form.get("expires_after[seconds]")
        expiry = {"anchor": form.get("expires_after[anchor]"), "seconds": int(life)} if life else None
        names = {name.partition("[")[0] for name in form}
        if names - set(file_create_params.FileCreateParams.__annotations__):
            raise FileRefused(f"Unknown parameter: {sorted(names)}.")
        try:
            if expiry:
                check(file_create_params.ExpiresAfter, expiry, openai_types)
        except ValidationError as error:
            raise FileRefused(str(error)) from None
        fields = {"purpose": form["purpose"]}
        if form["purpose"] not in {*self.purposes} & {*get_args(openai_types.FilePurpose)}:
            raise FileRefused(f"Invalid purpose {form['purpose']}.")
        if expiry and not self.shortest_s <= expiry["seconds"] <= 30 * 86_400:
            raise FileRefused("Invalid expires_after.")
        ident = f"file-{next(NUMBERS):08d}"
        kept = self.desk.keep(ident, account, form["file"], "", fields, expiry["seconds"] if expiry else 10**9)
        return ident, kept

    def show(self, ident: str, kept: KeptFile) -> Any:
        shown = {
            **{"id": ident, "object": "file", "bytes": kept.size, "created_at": int(time.time())},
            **{"filename": "f", "purpose": kept.fields["purpose"], "status": "processed"},
        }
        if kept.expires_at < time.time() + 9**9:
            shown["expires_at"] = kept.expires_at
        openai_types.FileObject.model_validate(shown)
        return shown


class FakeOpenAIFiles(OpenAIFiles, openai_fake.FakeOpenAI):
    """api.openai.com with files and chat completions."""


class FakeResponsesFiles(OpenAIFiles, responses_fake.FakeResponses):
    """api.openai.com with files and responses."""


class FakeAzureFiles(OpenAIFiles, azure_fake.FakeAzure):
    """An Azure resource with files, of which a purpose is missing."""

    purposes = ("assistants", "batch", "fine-tune", "evals")
    shortest_s = 14 * 86_400

    def is_about_files(self, path: str) -> bool:
        return "/files" in path

    def account(self, headers: dict[str, str]) -> str:
        return headers.get("api-key", "")

    def answer(self, environ: dict[str, Any], call: RecordedCall, payload: bytes) -> Any:
        call.path = f"/v1/files{call.path.partition('/files')[2]}"
        return super().answer(environ, call, payload)


class FakeMistralFiles(OpenAIFiles, mistral_fake.FakeMistral):
    """api.mistral.ai with files."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        if environ["PATH_INFO"] != "/v1/ocr":
            return super().serve(environ, start)
        import mistralai.client.models as types

        headers = headers_of(environ)
        body = json.loads(environ["wsgi.input"].read())
        self.calls.append(RecordedCall("/v1/ocr", headers, body))
        types.OCRRequest.model_validate(body)
        try:
            self.check_names(body, headers)
        except FileRefused as refused:
            return send_json(start, refused.status, self.error(str(refused), refused.status))
        page = {"index": 0, "markdown": "Read.", "images": [], "dimensions": {"dpi": 1, "height": 1, "width": 1}}
        usage = {"pages_processed": 1, "doc_size_bytes": 1}
        return send_json(start, 200, {"pages": [page], "model": body["model"], "usage_info": usage})

    def upload(self, form: dict[str, Any], account: str, payload: bytes) -> tuple[str, KeptFile]:
        import mistralai.client.models as types

        if set(form) - {"file", "purpose", "expiry", "visibility"} or form["purpose"] not in (
            "ocr",
            "batch",
            "fine-tune",
        ):
            raise FileRefused(f"Invalid form: {sorted(form)}")
        ident = f"00000000-0000-4000-8000-{next(NUMBERS):012d}"
        hours = int(form.get("expiry") or 10**5)
        kept = self.desk.keep(ident, account, form["file"], "", {"purpose": form["purpose"]}, hours * 3600)
        types.CreateFileResponse.model_validate(self.show(ident, kept))
        return ident, kept

    def show(self, ident: str, kept: KeptFile) -> Any:
        return {
            **{"id": ident, "object": "file", "bytes": kept.size, "created_at": int(time.time()), "filename": "f"},
            **{"purpose": kept.fields["purpose"], "sample_type": "ocr_input", "source": "upload"},
            "expires_at": kept.expires_at,
        }


class FakeAnthropicFiles(FileFake, anthropic_fake.FakeAnthropic):
    """api.anthropic.com with the beta feature of files."""

    def account(self, headers: dict[str, str]) -> str:
        return headers.get("x-api-key", "")

    def error(self, message: str, status: int) -> Any:
        kind = {404: "not_found_error", 500: "api_error"}.get(status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}

    def answer(self, environ: dict[str, Any], call: RecordedCall, payload: bytes) -> Any:
        if BETA not in call.headers.get("anthropic-beta", "") or call.headers.get("anthropic-version") != "2023-06-01":
            raise FileRefused("Not found", 404)
        return super().answer(environ, call, payload)

    def upload(self, form: dict[str, Any], account: str, payload: bytes) -> tuple[str, KeptFile]:
        life = int(form.get("expires_in_seconds") or 10**9)
        if set(form) - {"file", "expires_in_seconds"} or not (3600 <= life <= 7_776_000 or life == 10**9):
            raise FileRefused(f"Invalid form: {sorted(form)}")
        ident = f"file_01{next(NUMBERS):022d}"
        return ident, self.desk.keep(ident, account, form["file"], "application/pdf", {}, life)

    def show(self, ident: str, kept: KeptFile) -> Any:
        shown = {
            **{"id": ident, "type": "file", "filename": "f", "mime_type": kept.media_type, "size_bytes": kept.size},
            **{"created_at": datetime.now(UTC).isoformat(), "downloadable": False},
            "expires_at": datetime.fromtimestamp(kept.expires_at, UTC).isoformat(),
        }
        from anthropic.types.beta import BetaFileMetadata

        BetaFileMetadata.model_validate(shown)
        return shown

    def check_names(self, body: Any, headers: dict[str, str]) -> None:
        from anthropic.types import beta

        super().check_names(body, headers)
        named = list(holders(body, "file_id"))
        if named and BETA not in headers.get("anthropic-beta", ""):
            raise FileRefused("source: Input tag 'file' found using 'type' does not match any of the expected tags")
        for node, _ in named:
            check(beta.BetaFileDocumentSourceParam, node, beta)

    def without_names(self, body: Any) -> Any:
        for node, _ in holders(body, "file_id"):
            node.clear()
            node.update(type="base64", media_type="application/pdf", data=PDF)
        return body


class FakeGoogleFiles(FileFake, google_fake.FakeGoogle):
    """Google AI Studio with resumable uploads."""

    id_names = ("fileUri",)

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, dict[str, Any]] = {}

    def is_about_files(self, path: str) -> bool:
        return path.startswith(("/upload/v1beta/files", "/v1beta/files"))

    def account(self, headers: dict[str, str]) -> str:
        return headers.get("x-goog-api-key", "")

    def error(self, message: str, status: int) -> Any:
        return {"error": {"code": status, "message": message, "status": "INVALID_ARGUMENT"}}

    def known(self, ident: str, account: str) -> KeptFile:
        try:
            kept = super().known(ident.removeprefix("https://generativelanguage.googleapis.com/v1beta/"), account)
        except FileRefused:
            raise FileRefused("You do not have permission to access the File or it may not exist.", 403) from None
        return kept

    def check_names(self, body: Any, headers: dict[str, str]) -> None:
        super().check_names(body, headers)
        for node, name in holders(body, "fileUri"):
            kept = self.known(node[name], self.account(headers))
            if kept.ready_at > time.monotonic():
                raise FileRefused("The File is not in an ACTIVE state and usage is not allowed.")
            if node.get("mimeType") != kept.media_type:
                raise FileRefused("Unsupported MIME type")

    def answer(self, environ: dict[str, Any], call: RecordedCall, payload: bytes) -> Any:
        account = self.account(call.headers)
        if call.path.startswith("/upload/"):
            return self._upload(environ, call, payload, account)
        name = call.path.removeprefix("/v1beta/")
        kept = self.known(name, account)
        if environ["REQUEST_METHOD"] == "DELETE":
            del self.desk.files[name]
            self.desk.deleted.append(name)
            return {}, ()
        self.desk.shown += 1
        return self.show(name, kept), ()

    def _upload(self, environ: dict[str, Any], call: RecordedCall, payload: bytes, account: str) -> Any:
        headers = call.headers
        command = headers.get("x-goog-upload-command", "")
        if command == "start":
            body = json.loads(payload)
            if headers.get("x-goog-upload-protocol") != "resumable" or set(body) != {"file"}:
                raise FileRefused("Invalid upload.")
            genai.types.File.model_validate(body["file"])
            ident = f"session{next(NUMBERS)}"
            self.sessions[ident] = {
                "size": int(headers["x-goog-upload-header-content-length"]),
                "type": headers["x-goog-upload-header-content-type"],
                "file": body["file"],
            }
            url = f"https://generativelanguage.googleapis.com/upload/v1beta/files?upload_id={ident}"
            return {}, (("X-Goog-Upload-URL", f"{url}&upload_protocol=resumable"), ("X-Goog-Upload-Status", "active"))
        session = self.sessions.pop(parse_qs(environ["QUERY_STRING"]).get("upload_id", [""])[0], None)
        if session is None or command != "upload, finalize" or headers.get("x-goog-upload-offset") != "0":
            raise FileRefused("Invalid upload.")
        if len(payload) != session["size"]:
            raise FileRefused("The size differs.")
        name = f"files/{next(NUMBERS):012d}"
        kept = self.desk.keep(name, account, payload, session["type"], session["file"], 48 * 3600)
        return {"file": self.show(name, kept)}, (("X-Goog-Upload-Status", "final"),)

    def show(self, ident: str, kept: KeptFile) -> Any:
        shown = {
            **{"name": ident, "uri": f"https://generativelanguage.googleapis.com/v1beta/{ident}"},
            **{"mimeType": kept.media_type, "sizeBytes": str(kept.size)},
            "state": "ACTIVE" if kept.ready_at <= time.monotonic() else "PROCESSING",
            "expirationTime": datetime.fromtimestamp(kept.expires_at, UTC).isoformat(),
        }
        genai.types.File.model_validate(shown)
        return shown
