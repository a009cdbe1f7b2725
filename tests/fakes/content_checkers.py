"""A strict fake of the outside checkers of guardrails: Presidio, Azure AI Content Safety, Amazon Bedrock Guardrails,
Lakera Guard, and a webhook in the gateway's own format.

    with FakeCheckers() as checkers:
        ... call checkers.url + "/analyze", "/contentsafety/text:analyze", "/v2/guard", "/hook" ...

NAME is personal data where a checker knows its place, and FORBIDDEN is content that is found in a whole text. A request
that the API of the vendor does not describe is refused. `texts` are those that were read, `calls` (path, body).
"""

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import gevent
from fakes import bedrock_types as published
from fakes.bedrock_checks import ACCESS, Refused, check_credential
from fakes.server import FakeServer, headers_of, send_json
from standardwebhooks import Webhook

NAME = "Anna Meyer"
FORBIDDEN = "forbidden-content"
KEY = "key-of-the-checker"
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
AWS_KEY = ":".join(ACCESS)
GUARDRAIL = "gr1234567890"
CATEGORIES = ("Hate", "SelfHarm", "Sexual", "Violence")
FORBIDDEN_IMAGE = base64.b64encode(b"\x89PNG " + FORBIDDEN.encode()).decode()
Json = dict[str, Any]


class FakeCheckers(FakeServer):
    """The services. `silence_s` passes before each answer; `status` other than 200 is answered to every call; `answer`
    replaces every answer."""

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """Forget what was sent, and every fault."""
        self.calls.clear()
        self.texts: list[str] = []
        self.silence_s = 0.0
        self.status = 200
        self.answer: Any = None

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        headers = headers_of(environ)
        payload = environ["wsgi.input"].read()
        target = urlsplit(environ["fake.target"])
        self.calls.append((target.path, payload))
        if self.silence_s:
            gevent.sleep(self.silence_s)
        if self.status != 200:
            return send_json(start, self.status, {"error": "scripted"})
        try:
            answer = self._answer(target.path, parse_qs(target.query), headers, payload, environ)
        except Refused as refused:
            return send_json(start, refused.status, {"error": {"code": refused.kind, "message": str(refused)}})
        return send_json(start, 200, answer if self.answer is None else self.answer)

    def _answer(self, path: str, query: Json, headers: dict[str, str], payload: bytes, environ: Json) -> Any:
        body = json.loads(payload)
        if path == "/hook":
            return self._hook(headers, payload, body)
        if path == "/analyze":
            return self._analyze(headers, body)
        if path.startswith("/contentsafety/"):
            return self._content_safety(path.partition("/contentsafety/")[2], query, headers, body)
        if path == "/v2/guard":
            return self._guard(headers, body)
        if path.startswith("/guardrail/"):
            url = f"http://{environ['HTTP_HOST']}{environ['fake.target']}"
            headers["content-type"] = environ.get("CONTENT_TYPE", "")
            check_credential("POST", url, headers, payload)
            return self._apply(path, body)
        raise Refused("not found", 404)

    def _hook(self, headers: dict[str, str], payload: bytes, body: Json) -> Any:
        Webhook(SECRET).verify(payload, headers)
        _only(body, {"type", "version", "requestId", "timestamp", "contents"})
        findings = []
        for number, content in enumerate(body["contents"]):
            if "data" in content:
                _only(content, {"place", "data", "mediaType"})
                if FORBIDDEN.encode() in base64.b64decode(content["data"]):
                    findings.append({"content": number, "kind": "forbidden"})
                continue
            _only(content, {"place", "text"})
            text = content["text"]
            self.texts.append(text)
            findings += [{"content": number, "kind": "person", "start": a, "end": b} for a, b in _places(text)]
            if FORBIDDEN in text:
                findings.append({"content": number, "kind": "forbidden"})
        return {"findings": findings}

    def _analyze(self, headers: dict[str, str], body: Json) -> Any:
        known = {
            "text",
            "language",
            "correlation_id",
            "score_threshold",
            "entities",
            "return_decision_process",
            "context",
        }
        _only(body, known | {"ad_hoc_recognizers", "allow_list", "trace"})
        if not isinstance(body["text"], str) or body["language"] != "en":
            raise Refused("No matching recognizers were found to serve the request.", 500)
        self.texts.append(body["text"])
        found = [{"entity_type": "PERSON", "start": a, "end": b, "score": 0.85} for a, b in _places(body["text"])]
        if "entities" in body:
            found = [one for one in found if one["entity_type"] in body["entities"]]
        return [one | {"analysis_explanation": None} for one in found if one["score"] >= body["score_threshold"]]

    def _content_safety(self, verb: str, query: Json, headers: dict[str, str], body: Json) -> Any:
        if headers.get("ocp-apim-subscription-key") != KEY:
            raise Refused("Access denied due to invalid subscription key.", 401)
        if query.get("api-version") != ["2024-09-01"]:
            raise Refused("Resource not found", 404)
        if verb == "image:analyze":
            _only(body, {"image", "categories", "outputType"})
            _only(body["image"], {"content", "blobUrl"})
            found = FORBIDDEN.encode() in base64.b64decode(body["image"]["content"])
            return {"categoriesAnalysis": [{"category": name, "severity": 4 * found} for name in body["categories"]]}
        if verb == "text:shieldPrompt":
            _only(body, {"userPrompt", "documents"})
            texts = [body["userPrompt"]] if "userPrompt" in body else []
            texts += body.get("documents", [])
            if not texts or sum(map(len, texts)) > 10_000 or len(body.get("documents", [])) > 5:
                raise Refused("The request is not valid.")
            self.texts += texts
            judged = [{"attackDetected": "attack-on-the-prompt" in text} for text in texts]
            return {
                "userPromptAnalysis": judged[0] if "userPrompt" in body else None,
                "documentsAnalysis": judged[1:] if "userPrompt" in body else judged,
            }
        if verb != "text:analyze":
            raise Refused("Resource not found", 404)
        _only(body, {"text", "categories", "blocklistNames", "haltOnBlocklistHit", "outputType"})
        if not body["text"] or len(body["text"]) > 10_000 or not set(body["categories"]) <= set(CATEGORIES):
            raise Refused("The request is not valid.")
        self.texts.append(body["text"])
        severity = 5 if FORBIDDEN in body["text"] else 0
        analysis = [
            {"category": name, "severity": severity if name == "Violence" else 0} for name in body["categories"]
        ]
        return {"blocklistsMatch": [], "categoriesAnalysis": analysis}

    def _guard(self, headers: dict[str, str], body: Json) -> Any:
        if headers.get("authorization") != f"Bearer {KEY}":
            raise Refused("Unauthorized", 401)
        _only(body, {"messages", "project_id", "payload", "breakdown", "metadata", "dev_info"})
        for message in body["messages"]:
            _only(message, {"role", "content"})
            if message["role"] not in ("system", "user", "assistant", "tool", "developer"):
                raise Refused("unknown role")
        text = body["messages"][-1]["content"]
        self.texts.append(text)
        payload = [
            {"start": a, "end": b, "text": text[a:b], "detector_type": "pii/name", "labels": [], "message_id": 0}
            for a, b in _places(text)
        ]
        attack = FORBIDDEN in text
        breakdown = [
            {
                "project_id": "p",
                "policy_id": "q",
                "detector_id": "a",
                "detector_type": "prompt_attack",
                "detected": attack,
            },
            {
                "project_id": "p",
                "policy_id": "q",
                "detector_id": "b",
                "detector_type": "pii/name",
                "detected": bool(payload),
            },
        ]
        return {"flagged": attack or bool(payload), "payload": payload, "breakdown": breakdown}

    def _apply(self, path: str, body: Json) -> Any:
        _, _, guardrail, _, version, verb = path.split("/")
        shape = published.SERVICE.operation_model("ApplyGuardrail").input_shape
        whole = {"guardrailIdentifier": unquote(guardrail), "guardrailVersion": version, **body}
        report = published.ParamValidator().validate(whole, shape)
        if report.has_errors() or verb != "apply" or guardrail != GUARDRAIL:
            raise Refused(report.generate_report() or "no such guardrail", 400)
        found = False
        entities = []
        for block in body["content"]:
            if "image" in block:
                found = found or FORBIDDEN.encode() in base64.b64decode(block["image"]["source"]["bytes"])
                continue
            text = block["text"]["text"]
            self.texts.append(text)
            found = found or FORBIDDEN in text
            entities += [{"match": text[a:b], "type": "NAME", "action": "ANONYMIZED"} for a, b in _places(text)][:1]
        filters = [{"type": "VIOLENCE", "confidence": "HIGH", "action": "BLOCKED"}] if found else []
        assessment: Json = {}
        if filters:
            assessment["contentPolicy"] = {"filters": filters}
        if entities:
            assessment["sensitiveInformationPolicy"] = {"piiEntities": entities, "regexes": []}
        return {
            "usage": {},
            "action": "GUARDRAIL_INTERVENED" if assessment else "NONE",
            "outputs": [{"text": "Sorry."}] if assessment else [],
            "assessments": [assessment] if assessment else [],
        }


def _only(body: Any, known: set[str]) -> None:
    unknown = set(body) - known
    if unknown:
        raise Refused(f"unknown members: {sorted(unknown)}")


def _places(text: str) -> list[tuple[int, int]]:
    """Return where NAME is, in characters."""
    found = []
    start = text.find(NAME)
    while start >= 0:
        found.append((start, start + len(NAME)))
        start = text.find(NAME, start + 1)
    return found
