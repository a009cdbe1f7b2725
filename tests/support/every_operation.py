"""Calls every operation of the API description on a gateway with the sandbox as its provider."""

import base64
import io
import json
import struct
import time
import wave
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests

from gateway.accounts.second_factor import STEP_S, code_at
from gateway.telemetry.otlp_attribution import MEMBERS

Json = dict[str, Any]
HELLO = [{"role": "user", "content": "Hello!"}]
LIMIT = {"usageLimit": "100", "periodUsageLimit": "10", "periodUsageDurationValue": 1, "periodUsageDurationUnit": "day"}
SETTINGS = {"settings": {"permissions": {"deny": ["WebFetch"]}}}
RULE = {"ruleType": "deny_models", "ruleValue": {"models": ["gpt-4"]}}
ADA, ADAS = "ada@example.com", "a long enough one"
CLI = "llmgateway-cli"
SKILL = "---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n"
AI_HEADERS = {"ai-language-model-id": "sandbox/sandbox-echo"}
PROMPT = [{"role": "user", "content": [{"type": "text", "text": "Hello!"}]}]


def write_png() -> bytes:
    """Return a PNG with one white pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head, pixels = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0), zlib.compress(b"\0\xff\xff\xff")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def write_wav() -> bytes:
    """Return a WAV file with 0.1 seconds of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1), sound.setsampwidth(2), sound.setframerate(8000)
        sound.writeframes(bytes(1600))
    return file.getvalue()


PNG = f"data:image/png;base64,{base64.b64encode(write_png()).decode()}"


@dataclass(frozen=True)
class Step:
    """A call. `path` is the description's path. Its variables and `{…}` in the body are values that earlier steps
    saved; `save` lists the members of the answer (dotted) to save. `access`: with the key, a session, or nothing."""

    method: str
    path: str
    body: Any = None
    save: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    status: int = 200
    access: str = "session"
    form: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    of: str = ""  # the description's path, where `path` has concrete values

    @property
    def operation(self) -> str:
        return f"{self.method} {self.of or self.path}"


@dataclass
class RecordedResponse:
    """A completed step: the request and the response; `audit` are the actions of the audit log after it, newest
    first."""

    step: Step
    sent: Any
    status: int
    media: str
    body: bytes
    audit: list[str] = field(default_factory=list)

    @property
    def streamed(self) -> bool:
        return self.media == "text/event-stream"

    def events(self) -> list[Any]:
        """Return the JSON of each event of a stream."""
        lines = self.body.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def send(path: str, body: Any = None, **more: Any) -> Step:
    """Return a step that a program calls with its API key."""
    return Step("GET" if body is None else "POST", path, body, access="key", **more)


def both(path: str, body: Json, **more: Any) -> Iterator[Step]:
    """Return the steps for a complete answer and a stream."""
    yield send(path, body, **more)
    yield send(path, {**body, "stream": True})


def audio(path: str) -> Iterator[Step]:
    form = {"model": "sandbox-transcribe", "file": ("hello.wav", write_wav())}
    yield Step("POST", path, access="key", form=form)
    yield Step("POST", path, access="key", form={**form, "stream": "true"})


def models_of(prefix: str) -> Iterator[Step]:
    body = {"prompt": PROMPT}
    yield Step("POST", f"{prefix}/language-model", body, access="key", headers=AI_HEADERS)
    streamed = {**AI_HEADERS, "ai-language-model-streaming": "true"}
    yield Step("POST", f"{prefix}/language-model", body, access="key", headers=streamed)
    yield send(f"{prefix}/config")


def gemini_of(prefix: str) -> Iterator[Step]:
    """Return the steps for Gemini's methods."""
    content = {"role": "user", "parts": [{"text": "Hello!"}]}
    bodies: dict[str, tuple[str, Json]] = {
        "generateContent": ("sandbox-echo", {"contents": [content]}),
        "streamGenerateContent": ("sandbox-echo", {"contents": [content]}),
        "countTokens": ("sandbox-echo", {"contents": [content]}),
        "embedContent": ("sandbox-embed", {"content": content}),
        "batchEmbedContents": ("sandbox-embed", {"requests": [{"content": content}]}),
    }
    for method, (model, body) in bodies.items():
        yield send(f"{prefix}/models/{model}:{method}", body, of=f"{prefix}/models/{{model}}:{method}")
    events = f"{prefix}/models/sandbox-echo:streamGenerateContent"
    yield send(
        events, bodies["generateContent"][1], query="?alt=sse", of=f"{prefix}/models/{{model}}:streamGenerateContent"
    )


BATCH_LINE = b'{"custom_id": "1", "url": "/v1/embeddings", "body": {"model": "sandbox-embed", "input": "Hello!"}}'
MODELS = (
    send(
        "/v1/chat/completions",
        {"model": "sandbox-echo", "messages": HELLO, "metadata": {"session_id": "session-of-an-agent"}},
    ),
    *both("/v1/chat/completions", {"model": "sandbox-echo", "messages": HELLO}, save={"log_id": "metadata.log_id"}),
    *both("/v1/chat/completions", {"model": "sandbox-image", "messages": HELLO, "image_config": {"n": 2}}),
    *both("/v1/completions", {"model": "sandbox-echo", "prompt": "Once upon"}),
    *both("/v1/fim/completions", {"model": "sandbox-echo", "prompt": "Once ", "suffix": " a time"}),
    send("/v1/embeddings", {"model": "sandbox-embed", "input": "Hello!", "dimensions": 8}),
    *both("/v2/chat", {"model": "sandbox-echo", "messages": HELLO}),
    *both("/v1/chat", {"model": "sandbox-echo", "message": "Hello!"}),
    send("/v2/embed", {"model": "sandbox-embed", "texts": ["Hello!"], "embedding_types": ["float", "base64"]}),
    send("/v1/embed", {"model": "sandbox-embed", "texts": ["Hello!"], "input_type": "search_query"}),
    *both("/v1/images/generations", {"model": "sandbox-image", "prompt": "A red square"}),
    *both("/v1/images/edits", {"model": "sandbox-image", "prompt": "Make it blue", "images": [{"image_url": PNG}]}),
    send("/v1/rerank", {"model": "sandbox-rerank", "query": "tea", "documents": ["Green tea", "A spade"]}),
    send("/v1/moderations", {"model": "sandbox-moderate", "input": "Hello!"}),
    send("/v1/ocr", {"model": "sandbox-read", "document": {"type": "image_url", "image_url": PNG}}),
    send(
        "/v1/systemone",
        {
            "model": "sandbox-decide",
            "state": "The kettle boils.",
            "questions": {"next": {"type": "noul", "instructions": "Is it time for tea?"}},
        },
    ),
    send("/v1/audio/speech", {"model": "sandbox-speak", "input": "Hello!", "voice": "calm", "response_format": "wav"}),
    send("/v1/audio/speech", {"model": "sandbox-speak", "input": "Hello!", "voice": "calm", "stream_format": "sse"}),
    *audio("/v1/audio/transcriptions"),
    *audio("/v1/audio/translations"),
    send("/v1/realtime/client_secrets", {"session": {"type": "realtime", "model": "sandbox-realtime"}}),
    send("/v1/realtime", query="model=sandbox-realtime", status=426),
    send("/v1/videos", {"model": "sandbox-film", "prompt": "[[sandbox: takes=3600]]"}, save={"video_id": "id"}),
    Step("POST", "/v1/videos", access="key", form={"model": "sandbox-film", "prompt": "A kettle boils."}),
    send("/v1/videos", query="limit=1"),
    send("/v1/videos/{video_id}"),
    send("/v1/videos/{video_id}/content", status=409),
    send("/v1/videos/logs/{log_id}/content", status=404),
    Step("DELETE", "/v1/videos/{video_id}", access="key"),
    Step(
        "POST",
        "/v1/files",
        access="key",
        form={"purpose": "user_data", "file": ("note.bin", b"Tea.")},
        save={"file_id": "id"},
    ),
    send("/v1/files", query="limit=1"),
    send("/v1/files/{file_id}"),
    send("/v1/files/{file_id}/content"),
    Step("DELETE", "/v1/files/{file_id}", access="key"),
    send(
        "/v1/uploads",
        {"bytes": 4, "filename": "note.txt", "mime_type": "text/plain", "purpose": "user_data"},
        save={"upload_id": "id"},
    ),
    Step(
        "POST",
        "/v1/uploads/{upload_id}/parts",
        access="key",
        form={"data": ("part", b"Tea.")},
        save={"part_id": "id"},
    ),
    send("/v1/uploads/{upload_id}/complete", {"part_ids": ["{part_id}"]}),
    Step("POST", "/v1/uploads/{upload_id}/cancel", access="key", status=409),
    Step(
        "POST",
        "/v1/files",
        access="key",
        form={"purpose": "batch", "file": ("lines.jsonl", BATCH_LINE)},
        save={"input_file_id": "id"},
    ),
    send(
        "/v1/batches",
        {"input_file_id": "{input_file_id}", "endpoint": "/v1/embeddings", "completion_window": "24h"},
        save={"batch_id": "id"},
    ),
    send("/v1/batches", query="limit=1"),
    send("/v1/batches/{batch_id}"),
    Step("POST", "/v1/batches/{batch_id}/cancel", access="key"),
    send(
        "/v1/messages/batches",
        {"requests": [{"custom_id": "1", "params": {"model": "sandbox-slow", "max_tokens": 9, "messages": HELLO}}]},
        save={"message_batch_id": "id"},
    ),
    send("/v1/messages/batches", query="limit=1"),
    send("/v1/messages/batches/{message_batch_id}"),
    send("/v1/messages/batches/{message_batch_id}/results", status=404),
    Step("POST", "/v1/messages/batches/{message_batch_id}/cancel", access="key"),
    Step("DELETE", "/v1/messages/batches/{message_batch_id}", access="key", status=409),
    send("/v1/models", query="mapped=true"),
    send("/v1/models/{model}"),
    send("/v1/route/explain", {"model": "sandbox-echo", "messages": HELLO}),
    send("/v1/route/explain/{log_id}"),
    send("/v1/key"),
    send("/v1/credits"),
    *both("/v1/messages", {"model": "sandbox-echo", "max_tokens": 100, "messages": HELLO}),
    send("/v1/messages/count_tokens", {"model": "sandbox-echo", "messages": HELLO}),
    *gemini_of("/v1beta"),
    *gemini_of("/v1"),
    send("/v1beta/models"),
    send("/v1beta/models/sandbox-echo", of="/v1beta/models/{model}"),
    *both("/v1/responses", {"model": "sandbox-echo", "input": "Hello!"}, save={"response_id": "id"}),
    send("/v1/responses", status=405),
    send("/v1/responses/compact", {"model": "sandbox-echo", "input": "Hello!"}),
    send("/v1/responses/input_tokens", {"model": "sandbox-echo", "input": "Hello!"}),
    Step("GET", "/v1/responses", access="key", status=405),
    send("/v1/responses/{response_id}"),
    send("/v1/responses/{response_id}/input_items"),
    send(
        "/v1/responses", {"model": "sandbox-echo", "input": "Hello!", "background": True}, save={"background_id": "id"}
    ),
    Step(
        "POST",
        "/v1/responses/{background_id}/cancel",
        access="key",
        of="/v1/responses/{response_id}/cancel",
    ),
    Step("POST", "/v1/responses/{response_id}/cancel", access="key", status=400),
    Step("DELETE", "/v1/responses/{response_id}", access="key"),
    *(step for prefix in ("/v1/ai", "/v3/ai", "/v4/ai") for step in models_of(prefix)),
    *(Step("GET", "/mcp", access=access, headers={"Accept": "application/json"}) for access in ("none", "key")),
    send("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    send("/mcp", {"jsonrpc": "2.0", "method": "notifications/initialized"}, status=202),
    Step("OPTIONS", "/mcp", status=204, access="none"),
    *(Step(method, "/mcp", access="key", status=405) for method in ("DELETE", "PUT", "PATCH")),
)
SERVICE = (
    *tuple(
        Step("GET", path, access="none")
        for path in ("/", "/livez", "/healthz", "/health/liveliness", "/readyz", "/health/readiness", "/robots.txt")
    ),
    Step("GET", "/metrics", access="operator"),
)
ORGANIZATION = "/orgs/{organization_id}"
LIMIT_PATH = f"{ORGANIZATION}/limits/{{limit_id}}"
ROUTE_PATH = f"{ORGANIZATION}/routes/{{route_name}}"
ROUTE_DOCUMENT = {"rules": [{"when": {"agent": "sub"}, "use": "sandbox-echo"}], "otherwise": "sandbox-echo"}
PEOPLE = (
    Step("POST", "/auth/sign-in/email", {"email": "owner@localhost", "password": "{password}"},
         {"other_session": "session.id"}, access="none"),
    Step("GET", "/auth/get-session"),
    Step("GET", "/user/me"),
    Step("GET", "/auth/sessions"),
    Step("DELETE", "/auth/sessions/{other_session}", of="/auth/sessions/{session_id}"),
    Step("GET", "/orgs", save={"organization_id": "organizations.0.id"}),
    Step("POST", "/orgs", {"name": "Acme"}, {"second_organization": "organization.id"}, status=201),
    Step("GET", ORGANIZATION),
    Step("GET", f"{ORGANIZATION}/projects", save={"first_project": "projects.0.id"}),
    Step("PATCH", "/projects/{first_project}", {"retention": "retain"}, of="/projects/{project_id}"),
    Step("PATCH", ORGANIZATION, {"name": "Research"}),
    Step("PUT", f"{ORGANIZATION}/policy", {"requireSoc2": False}),
    Step("GET", f"{ORGANIZATION}/policy"),
    Step("POST", f"{ORGANIZATION}/skills", {"content": SKILL}, {"skill_id": "skill.id"}),
    Step("GET", f"{ORGANIZATION}/skills"),
    Step("GET", f"{ORGANIZATION}/skills/{{skill_id}}"),
    Step("PATCH", f"{ORGANIZATION}/skills/{{skill_id}}", {"enabled": False}),
    Step("PATCH", f"{ORGANIZATION}/skills/{{skill_id}}", {"enabled": True}),
    Step("DELETE", f"{ORGANIZATION}/skills/{{skill_id}}"),
    Step(
        "POST",
        f"{ORGANIZATION}/invitations",
        {"email": ADA, "role": "developer"},
        {"invitation": "invitation.token", "invitation_id": "invitation.id"},
        status=201,
    ),
    Step("GET", f"{ORGANIZATION}/invitations"),
    Step("GET", f"{ORGANIZATION}/membership"),
    Step("POST", "/auth/invitation", {"token": "{invitation}"}, access="none"),
    Step(
        "POST", "/auth/sign-up/email", {"token": "{invitation}", "password": ADAS, "name": "Ada"},
        access="none",
    ),
    Step("POST", f"{ORGANIZATION}/invitations", {"email": "owner2@example.com"},
         {"invitation": "invitation.token", "invitation_id": "invitation.id"}, status=201),
    Step("DELETE", f"{ORGANIZATION}/invitations/{{invitation_id}}"),
    Step("GET", f"{ORGANIZATION}/members", save={"member_id": "members.1.id"}),
    Step("GET", f"{ORGANIZATION}/members/{{member_id}}"),
    Step("PATCH", f"{ORGANIZATION}/members/{{member_id}}", {"role": "admin"}),
    Step("PATCH", f"{ORGANIZATION}/members/{{member_id}}/limit", LIMIT),
    Step("POST", f"{ORGANIZATION}/teams", {"name": "Readers"}, {"team_id": "team.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/teams"),
    Step("GET", f"{ORGANIZATION}/teams/{{team_id}}"),
    Step("PATCH", f"{ORGANIZATION}/teams/{{team_id}}", {"name": "Writers"}),
    Step("PATCH", f"{ORGANIZATION}/teams/{{team_id}}/limit", LIMIT),
    Step("PUT", f"{ORGANIZATION}/managed-settings", SETTINGS),
    Step("GET", f"{ORGANIZATION}/managed-settings"),
    Step("PUT", f"{ORGANIZATION}/teams/{{team_id}}/managed-settings", SETTINGS),
    Step("GET", f"{ORGANIZATION}/teams/{{team_id}}/managed-settings"),
    Step("DELETE", f"{ORGANIZATION}/teams/{{team_id}}/managed-settings"),
    Step("DELETE", f"{ORGANIZATION}/managed-settings"),
    Step("PUT", f"{ORGANIZATION}/teams/{{team_id}}/members/{{member_id}}"),
    Step("PUT", f"{ORGANIZATION}/teams/{{team_id}}/leads/{{member_id}}"),
    Step("GET", f"{ORGANIZATION}/teams/{{team_id}}/leads"),
    Step("DELETE", f"{ORGANIZATION}/teams/{{team_id}}/leads/{{member_id}}"),
    Step("DELETE", f"{ORGANIZATION}/teams/{{team_id}}/members/{{member_id}}"),
    Step("DELETE", f"{ORGANIZATION}/teams/{{team_id}}"),
    Step("PUT", "/projects/{first_project}/admins/{member_id}", of="/projects/{project_id}/admins/{member_id}"),
    Step("GET", "/projects/{first_project}/admins", of="/projects/{project_id}/admins"),
    Step("DELETE", "/projects/{first_project}/admins/{member_id}", of="/projects/{project_id}/admins/{member_id}"),
    Step("DELETE", f"{ORGANIZATION}/members/{{member_id}}"),
    Step("POST", f"{ORGANIZATION}/service-accounts",
         {"name": "Terraform", "scopes": ["keys:write"], "ipCidrs": ["127.0.0.1"], "clientId": "terraform"},
         {"account_id": "serviceAccount.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/service-accounts"),
    Step("GET", f"{ORGANIZATION}/service-accounts/{{account_id}}"),
    Step("PATCH", f"{ORGANIZATION}/service-accounts/{{account_id}}", {"scopes": ["keys:read"]}),
    Step("POST", f"{ORGANIZATION}/service-accounts/{{account_id}}/roll"),
    Step("DELETE", f"{ORGANIZATION}/service-accounts/{{account_id}}"),
)  # fmt: skip
WORK = (
    Step("POST", "/projects", {"organizationId": "{organization_id}", "name": "Apps"}, {"project_id": "project.id"},
         status=201),
    Step("GET", "/projects/{project_id}"),
    Step("PATCH", "/projects/{project_id}", {"cachingEnabled": True, "cacheDurationSeconds": 60}),
    Step("GET", "/projects/{project_id}/callback-secret"),
    Step("POST", "/projects/{project_id}/callback-secret/roll"),
    Step("POST", "/keys/api", {"description": "CI", "projectId": "{project_id}"}, {"key_id": "apiKey.id"}),
    Step("GET", "/keys/api", query="projectId={project_id}"),
    Step("GET", "/keys/api/{key_id}"),
    Step("PATCH", "/keys/api/{key_id}", {"description": "CI of Apps"}),
    Step("PATCH", "/keys/api/{key_id}", {"status": "inactive"}),
    Step("PATCH", "/keys/api/{key_id}", {"status": "active"}),
    Step("PATCH", "/keys/api/limit/{key_id}", LIMIT),
    Step("PATCH", "/projects/{project_id}/rate-limits", {"requestsPerMinute": 600}),
    Step("GET", "/projects/{project_id}/rate-limits"),
    Step("GET", "/projects/{first_project}/batches", of="/projects/{project_id}/batches"),
    Step("GET", "/projects/{first_project}/batches/{batch_id}", of="/projects/{project_id}/batches/{batch_id}"),
    Step(
        "POST",
        "/projects/{first_project}/batches/{batch_id}/cancel",
        of="/projects/{project_id}/batches/{batch_id}/cancel",
    ),
    Step("GET", "/projects/{first_project}/jobs", of="/projects/{project_id}/jobs"),
    Step("GET", "/projects/{first_project}/jobs/{batch_id}", of="/projects/{project_id}/jobs/{job_id}"),
    Step("GET", "/projects/{first_project}/jobs/{batch_id}/errors", of="/projects/{project_id}/jobs/{job_id}/errors"),
    Step(
        "GET",
        "/projects/{first_project}/jobs/{batch_id}/content",
        query="content=input",
        of="/projects/{project_id}/jobs/{job_id}/content",
    ),
    # The first batch was cancelled by its key, which left no entry to this operation.
    send(
        "/v1/batches",
        {"input_file_id": "{input_file_id}", "endpoint": "/v1/embeddings", "completion_window": "24h"},
        save={"job_id": "id"},
    ),
    Step("POST", "/projects/{first_project}/jobs/{job_id}/cancel", of="/projects/{project_id}/jobs/{job_id}/cancel"),
    Step("GET", "/projects/{first_project}/files", of="/projects/{project_id}/files"),
    Step("GET", "/projects/{first_project}/files/{input_file_id}", of="/projects/{project_id}/files/{file_id}"),
    Step(
        "GET",
        "/projects/{first_project}/files/{input_file_id}/content",
        of="/projects/{project_id}/files/{file_id}/content",
    ),
    Step("GET", "/orgs/{organization_id}/file-usage"),
    Step("DELETE", "/projects/{first_project}/files/{input_file_id}", of="/projects/{project_id}/files/{file_id}"),
    Step("PATCH", "/projects/{project_id}/session-budget", {"sessionBudget": "5"}),
    Step("GET", "/projects/{project_id}/session-budget"),
    Step("PATCH", "/keys/api/{key_id}/session-budget", {"sessionBudget": "0.50", "runBudget": "2"}),
    Step("GET", "/keys/api/{key_id}/session-budget"),
    Step("PUT", "/keys/api/{key_id}/tags", {"tags": {"team": "search"}}),
    Step("GET", "/keys/api/{key_id}/tags"),
    Step("PATCH", "/keys/api/{key_id}/rate-limits", {"requestsPerMinute": 60}),
    Step("GET", "/keys/api/{key_id}/rate-limits"),
    Step("POST", "/keys/api/{key_id}/iam", RULE, {"rule_id": "rule.id"}, status=201),
    Step("GET", "/keys/api/{key_id}/iam"),
    Step("PATCH", "/keys/api/{key_id}/iam/{rule_id}", {"status": "inactive"}),
    Step("DELETE", "/keys/api/{key_id}/iam/{rule_id}"),
    Step("POST", "/keys/api/{key_id}/roll"),
    Step("POST", f"{ORGANIZATION}/workload-identities",
         {"name": "Deployments", "projectId": "{project_id}", "issuer": "https://issuer.example.com",
          "audience": "llm-gateway", "claims": {"sub": "repo:acme/*"}, "attribution": {"user": "actor"}},
         {"workload_identity_id": "workloadIdentity.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/workload-identities"),
    Step("GET", f"{ORGANIZATION}/workload-identities/{{workload_identity_id}}"),
    Step("PATCH", f"{ORGANIZATION}/workload-identities/{{workload_identity_id}}",
         {"claims": {"sub": ["repo:acme/app"]}}),
    Step("POST", f"{ORGANIZATION}/workload-identities/check", {"token": "eyJhbGciOiJSUzI1NiJ9.e30.e30"}),
    Step("DELETE", f"{ORGANIZATION}/workload-identities/{{workload_identity_id}}"),
    Step("DELETE", "/keys/api/{key_id}"),
    Step("GET", f"{ORGANIZATION}/key-caps"),
    Step("PATCH", f"{ORGANIZATION}/key-caps", {"maxKeys": 50}),
    Step("POST", f"{ORGANIZATION}/iam", {**RULE, "scope": "organization", "scopeId": "{organization_id}"},
         {"rule_id": "rule.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/iam"),
    Step("PATCH", f"{ORGANIZATION}/iam/{{rule_id}}", {"status": "inactive"}),
    Step("DELETE", f"{ORGANIZATION}/iam/{{rule_id}}"),
    Step("POST", "/keys/provider",
         {"organizationId": "{organization_id}", "provider": "sandbox", "token": "own-key-of-acme", "name": "Ours"},
         {"key_id": "providerKey.id"}, status=201),
    Step("GET", "/keys/provider", query="organizationId={organization_id}"),
    Step("PATCH", "/keys/provider/{key_id}", {"name": "Ours, still"}),
    Step("POST", "/keys/provider/{key_id}/rotate", {"token": "newer-key-of-acme"}),
    Step("POST", "/keys/provider/{key_id}/test", {"model": "sandbox-echo"}),
    Step("DELETE", "/keys/provider/{key_id}"),
    Step("POST", f"{ORGANIZATION}/custom-providers", {"name": "house", "baseUrl": "https://engine.example.com/v1"},
         status=201),
    Step("GET", f"{ORGANIZATION}/custom-providers"),
    Step("PATCH", f"{ORGANIZATION}/custom-providers/house", {"baseUrl": "https://engine.example.com/v2"},
         of=f"{ORGANIZATION}/custom-providers/{{name}}"),
    Step("DELETE", f"{ORGANIZATION}/custom-providers/house", of=f"{ORGANIZATION}/custom-providers/{{name}}"),
    Step("POST", f"{ORGANIZATION}/alerts", {"url": "https://ops.example.com/hook"}, {"hook_id": "alert.id"},
         status=201),
    Step("GET", f"{ORGANIZATION}/alerts"),
    Step("POST", f"{ORGANIZATION}/alerts/{{hook_id}}/test"),
    Step("POST", f"{ORGANIZATION}/views", {"name": "Spend of people", "query": "measure=spend&groupBy=user"},
         {"view_id": "view.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/views"),
    Step("PATCH", f"{ORGANIZATION}/views/{{view_id}}", {"shared": True}),
    Step("POST", f"{ORGANIZATION}/view-subscriptions",
         {"viewId": "{view_id}", "hookId": "{hook_id}", "weekday": "monday", "hour": 9, "timezone": "Europe/Berlin"},
         {"subscription_id": "subscription.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/view-subscriptions"),
    Step("PATCH", f"{ORGANIZATION}/view-subscriptions/{{subscription_id}}", {"hour": 8}),
    Step("POST", f"{ORGANIZATION}/view-subscriptions/{{subscription_id}}/send"),
    Step("DELETE", f"{ORGANIZATION}/view-subscriptions/{{subscription_id}}"),
    Step("DELETE", f"{ORGANIZATION}/views/{{view_id}}"),
    Step("DELETE", f"{ORGANIZATION}/alerts/{{hook_id}}"),
    Step("DELETE", "/projects/{project_id}"),
)  # fmt: skip
MONEY = (
    Step("GET", f"{ORGANIZATION}/credits"),
    Step("POST", f"{ORGANIZATION}/credits", {"amount": "50", "note": "invoice 17", "reference": "order-4711"}),
    Step("PATCH", f"{ORGANIZATION}/credits", {"unlimited": False}),
    Step("GET", f"{ORGANIZATION}/credits/history"),
    Step("PUT", "/discounts", {"fraction": "0.2", "model": "sandbox-echo"}, {"discount_id": "discount.id"}),
    Step("GET", "/discounts"),
    Step("GET", f"{ORGANIZATION}/discounts"),
    Step("DELETE", "/discounts/{discount_id}"),
    Step(
        "PUT",
        f"{ORGANIZATION}/limits/team-month",
        {
            "subjects": ["each user", "model=sandbox-*"],
            "amount": "100",
            "period": "month",
            "timezone": "Europe/Berlin",
            "actions": ["warn@80", "refuse@100"],
        },
        of=LIMIT_PATH,
    ),
    Step("GET", f"{ORGANIZATION}/limits"),
    Step("GET", f"{ORGANIZATION}/limits/team-month", of=LIMIT_PATH),
    Step("GET", f"{ORGANIZATION}/limits/team-month/simulation", query="days=7", of=f"{LIMIT_PATH}/simulation"),
    Step("POST", f"{ORGANIZATION}/limits/simulation", {"subjects": ["each user"], "amount": "5", "days": 7}),
    Step(
        "PUT",
        f"{ORGANIZATION}/limits/team-month/raise",
        {"amount": "20", "until": "2099-01-01T00:00:00Z"},
        of=f"{LIMIT_PATH}/raise",
    ),
    Step(
        "POST",
        f"{ORGANIZATION}/limits/team-month/requests",
        {"amount": "5", "until": "2099-01-01T00:00:00Z", "note": "A launch"},
        {"request_id": "request.id"},
        status=201,
        of=f"{LIMIT_PATH}/requests",
    ),
    Step("GET", f"{ORGANIZATION}/limits/team-month/requests", of=f"{LIMIT_PATH}/requests"),
    Step(
        "PUT", f"{ORGANIZATION}/limits/team-month/requests/{{request_id}}", of=f"{LIMIT_PATH}/requests/{{request_id}}"
    ),
    Step(
        "POST",
        f"{ORGANIZATION}/limits/team-month/requests",
        {"amount": "5", "until": "2099-01-01T00:00:00Z"},
        {"request_id": "request.id"},
        status=201,
        of=f"{LIMIT_PATH}/requests",
    ),
    Step(
        "DELETE",
        f"{ORGANIZATION}/limits/team-month/requests/{{request_id}}",
        of=f"{LIMIT_PATH}/requests/{{request_id}}",
    ),
    Step("DELETE", f"{ORGANIZATION}/limits/team-month", of=LIMIT_PATH),
    Step("GET", f"{ORGANIZATION}/audit", query="limit=2"),
    Step("GET", f"{ORGANIZATION}/audit/export"),
    Step("GET", f"{ORGANIZATION}/audit/verify"),
    Step("GET", "/audit", query="limit=2"),
    Step("GET", "/audit/verify"),
    Step("PUT", "/rate-limits", {"scope": "model", "subject": "sandbox-echo", "kind": "requests", "amount": 1000000}),
    Step("GET", "/rate-limits"),
    Step("GET", "/installation"),
    Step("GET", "/installation/organizations"),
    Step("GET", "/installation/organizations/{organization_id}"),
    Step("PATCH", "/installation/organizations/{organization_id}", {"status": "active"}),
    Step("DELETE", "/rate-limits/model/sandbox-echo", query="kind=requests", of="/rate-limits/{scope}/{subject}"),
    Step("GET", "/activity", query="projectId={first_project}&groupBy=model"),
    Step("GET", "/activity/explore", query="measure=spend&groupBy=model&splitBy=error&projectId={first_project}"),
    Step("GET", "/activity/explore/export", query="groupBy=user"),
    Step("GET", "/activity/sources", query="projectId={first_project}"),
    Step("GET", "/activity/latency", query="projectId={first_project}&timeRange=24h"),
    Step("GET", "/activity/export", query="projectId={first_project}"),
    Step("GET", "/activity/shares", query="groupBy=person&timeRange=7d"),
    Step("GET", "/activity/shares/export", query="groupBy=tag&tag=user&timeRange=7d"),
    Step("GET", "/activity/forecast"),
    Step("PUT", f"{ORGANIZATION}/outcome-settings", {"comparePeople": True, "holdUnusual": False}),
    Step("GET", f"{ORGANIZATION}/outcome-settings"),
    Step("GET", "/activity/savings", query="timeRange=7d"),
    Step("GET", "/activity/outcomes", query="groupBy=team&timeRange=7d"),
    Step("GET", "/activity/outcomes/export", query="groupBy=team&timeRange=7d"),
    Step("GET", f"{ORGANIZATION}/focus", query="month=2026-11"),
    Step("GET", "/logs", query="projectId={first_project}&limit=2", save={"log_id": "logs.0.id"}),
    Step("GET", "/logs/sessions", query="projectId={first_project}&limit=2"),
    Step("GET", "/logs/sessions/session-of-an-agent", of="/logs/sessions/{agent_session}"),
    Step("GET", "/logs/{log_id}"),
    Step("POST", f"{ORGANIZATION}/shares", {"requestId": "{log_id}"}, {"share_id": "share.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/shares"),
    Step("DELETE", f"{ORGANIZATION}/shares/{{share_id}}"),
    Step("DELETE", "/logs/{log_id}"),
    Step("GET", "/logs/export", query="projectId={first_project}"),
)
DOORS = (
    Step("POST", "/auth/device/code", {"client_id": CLI}, {"device": "device_code", "user_code": "user_code"},
         access="none"),
    Step("GET", "/auth/device", query="user_code={user_code}"),
    Step("POST", "/auth/device/approve", {"userCode": "{user_code}"}),
    Step("POST", "/auth/device/token",
         {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": "{device}", "client_id": CLI},
         access="none"),
    Step("POST", "/auth/device/code", {"client_id": CLI}, {"user_code": "user_code"}, access="none"),
    Step("POST", "/auth/device/deny", {"userCode": "{user_code}"}),
    Step("POST", f"{ORGANIZATION}/identity-providers", {"name": "Acme", "issuer": "https://127-0-0-1.invalid",
         "clientId": "x", "clientSecret": "y"}, {"provider_id": "identityProvider.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/identity-providers"),
    Step("PATCH", f"{ORGANIZATION}/identity-providers/{{provider_id}}", {"groupsClaim": "groups"}),
    Step("POST", f"{ORGANIZATION}/identity-providers/{{provider_id}}/test"),
    Step("POST", f"{ORGANIZATION}/identity-providers/{{provider_id}}/domains", {"domain": "acme.example"},
         {"domain": "identityProvider.domains.0.domain"}, status=201),
    Step("POST", f"{ORGANIZATION}/identity-providers/{{provider_id}}/domains/{{domain}}/verify"),
    Step("DELETE", f"{ORGANIZATION}/identity-providers/{{provider_id}}/domains/{{domain}}"),
    Step("GET", f"{ORGANIZATION}/sso"),
    Step("PUT", f"{ORGANIZATION}/sso", {"required": False}),
    Step("POST", f"{ORGANIZATION}/group-rules", {"group": "engineers", "role": "admin", "limits": LIMIT},
         {"group_rule_id": "groupRule.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/group-rules"),
    Step("POST", f"{ORGANIZATION}/group-rules/preview", {"group": "engineers", "role": "developer"}),
    Step("PATCH", f"{ORGANIZATION}/group-rules/{{group_rule_id}}", {"priority": 5}),
    Step("DELETE", f"{ORGANIZATION}/group-rules/{{group_rule_id}}"),
    Step("POST", f"{ORGANIZATION}/guardrails", {"name": "No cards", "action": "block", "detectors": ["payment_card"]},
         {"guardrail_id": "guardrail.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/guardrails"),
    Step("POST", f"{ORGANIZATION}/guardrails", {"name": "People", "action": "mask", "checker": "presidio",
         "address": "https://presidio.example.com", "settings": ["language=en"], "status": "inactive",
         "onFailure": "pass", "timeoutMs": 100}, {"asking_id": "guardrail.id"}, status=201),
    Step("PATCH", f"{ORGANIZATION}/guardrails/{{asking_id}}", {"timeoutMs": 500, "streaming": "end"},
         of="/orgs/{organization_id}/guardrails/{guardrail_id}"),
    Step("DELETE", f"{ORGANIZATION}/guardrails/{{asking_id}}", of="/orgs/{organization_id}/guardrails/{guardrail_id}"),
    Step("POST", f"{ORGANIZATION}/guardrails/test", {"text": "4111 1111 1111 1111"}),
    Step("GET", f"{ORGANIZATION}/guardrails/findings"),
    Step("PATCH", f"{ORGANIZATION}/guardrails/{{guardrail_id}}", {"action": "mask"}),
    Step("POST", f"{ORGANIZATION}/guardrails/{{guardrail_id}}/replay", {"days": 7}),
    Step("POST", f"{ORGANIZATION}/guardrails/{{guardrail_id}}/exceptions", {"value": "4111 1111 1111 1111"},
         {"fingerprint": "guardrail.exceptions.0.fingerprint"}, status=201),
    Step("DELETE", f"{ORGANIZATION}/guardrails/{{guardrail_id}}/exceptions/{{fingerprint}}"),
    Step("DELETE", f"{ORGANIZATION}/guardrails/{{guardrail_id}}"),
    Step("PUT", f"{ORGANIZATION}/routes/house", {"document": ROUTE_DOCUMENT}, of=ROUTE_PATH),
    Step("GET", f"{ORGANIZATION}/routes"),
    Step("GET", f"{ORGANIZATION}/routes/house", of=ROUTE_PATH),
    Step("POST", f"{ORGANIZATION}/routes/check", {"document": ROUTE_DOCUMENT}),
    Step("POST", f"{ORGANIZATION}/routes/house/publish", {"version": None}, of=f"{ROUTE_PATH}/publish"),
    Step("GET", f"{ORGANIZATION}/routes/house/versions", of=f"{ROUTE_PATH}/versions"),
    Step("GET", f"{ORGANIZATION}/routes/savings"),
    Step("POST", f"{ORGANIZATION}/routes/simulation", {"document": ROUTE_DOCUMENT, "days": 7}),
    Step("DELETE", f"{ORGANIZATION}/routes/house", of=ROUTE_PATH),
    Step("DELETE", f"{ORGANIZATION}/identity-providers/{{provider_id}}"),
    Step("GET", "/auth/identities"),
    Step("DELETE", "/auth/identities/unknown", status=404, of="/auth/identities/{identity_id}"),
    Step("GET", "/auth/second-factor"),
    Step("POST", "/auth/second-factor", {"password": "{password}"}, {"factor": "secret"}),
    Step("POST", "/auth/second-factor/confirm", {"code": "{one_time}"}, {"recovery": "recoveryCodes.0"}),
    Step("POST", "/auth/second-factor/remove", {"password": "{password}", "code": "{recovery}"}),
    Step("POST", f"{ORGANIZATION}/invitations", {"email": ADA}, {"invitation": "invitation.token"}, status=201),
    Step("POST", "/auth/sign-in/email", {"email": ADA, "password": ADAS}, {"ada": "token"}, access="none"),
    Step("POST", "/auth/accept-invitation", {"token": "{invitation}"}, access="ada"),
    Step("POST", "/orgs/{second_organization}/invitations", {"email": ADA}, {"invitation": "invitation.token"},
         status=201, of=f"{ORGANIZATION}/invitations"),
    Step("POST", "/auth/accept-invitation", {"token": "{invitation}"}, access="ada"),
    Step("POST", "/auth/confirm-email"),
    Step("POST", "/auth/change-password", {"currentPassword": "{password}", "newPassword": "{password} again"}),
    Step("GET", f"{ORGANIZATION}/members/{{member_id}}/export"),
    Step("POST", f"{ORGANIZATION}/members/{{member_id}}/erase"),
    Step("POST", "/auth/sign-out-everywhere"),
    Step("POST", "/auth/sign-in/email", {"email": "owner@localhost", "password": "{password} again"},
         {"session": "token"}, access="none"),
    Step("POST", "/auth/sign-out"),
    Step("GET", "/auth/get-session", access="none"),
)  # fmt: skip
SCIM = "/scim/v2"
NEW_USER = {"userName": "grace@example.com", "name": {"givenName": "Grace"}, "emails": [{"value": "grace@example.com"}]}
PATCH_NAME = {"Operations": [{"op": "replace", "path": "displayName", "value": "Compilers"}]}


def provision(method: str, path: str, body: Any = None, save: Mapping[str, str] | None = None, **more: Any) -> Step:
    """Return a step of an identity provider; `path` is below the address of SCIM."""
    return Step(method, SCIM + path, body, save or {}, access="scim_token", **more)


PROVISIONING = (
    Step("POST", f"{ORGANIZATION}/scim/tokens", {"name": "Identity provider"},
         {"scim_token": "token.token", "scim_token_id": "token.id"}, status=201),
    Step("GET", f"{ORGANIZATION}/scim/tokens"),
    provision("GET", "/ServiceProviderConfig"),
    provision("GET", "/ResourceTypes"),
    provision("GET", "/ResourceTypes/User", of=f"{SCIM}/ResourceTypes/{{resource_id}}"),
    provision("GET", "/Schemas"),
    provision("GET", "/Schemas/urn:ietf:params:scim:schemas:core:2.0:User", of=f"{SCIM}/Schemas/{{resource_id}}"),
    provision("POST", "/Users", NEW_USER, {"resource_id": "id"}, status=201),
    provision("GET", "/Users", query='filter=userName eq "grace@example.com"'),
    provision("GET", "/Users/{resource_id}"),
    provision("PUT", "/Users/{resource_id}", NEW_USER),
    provision("PATCH", "/Users/{resource_id}", PATCH_NAME),
    provision("POST", "/Users/.search", {"count": 1}),
    provision("DELETE", "/Users/{resource_id}", status=204),
    provision("POST", "/Groups", {"displayName": "Engineers"}, {"resource_id": "id"}, status=201),
    provision("GET", "/Groups"),
    provision("GET", "/Groups/{resource_id}"),
    provision("PUT", "/Groups/{resource_id}", {"displayName": "Engineers"}),
    provision("PATCH", "/Groups/{resource_id}", PATCH_NAME),
    provision("POST", "/Groups/.search", {"count": 1}),
    provision("POST", "/.search", {"count": 1}),
    provision("DELETE", "/Groups/{resource_id}", status=204),
    Step("DELETE", f"{ORGANIZATION}/scim/tokens/{{scim_token_id}}", of=f"{ORGANIZATION}/scim/tokens/{{token_id}}"),
)  # fmt: skip
WELL_KNOWN = "/.well-known"
CLIENT = {"client_id": "{client}", "client_secret": "{client_secret}"}
APPLICATIONS = (
    *(
        Step(
            "GET", f"{WELL_KNOWN}/{name}{below}", access="none", of=f"{WELL_KNOWN}/{name}{'/{place}' if below else ''}"
        )
        for name in ("oauth-protected-resource", "oauth-authorization-server", "openid-configuration")
        for below in ("", "/mcp")
    ),
    Step("GET", f"/mcp{WELL_KNOWN}/openid-configuration", access="none"),
    Step(
        "POST",
        "/oauth/register",
        {
            "client_name": "An editor",
            "redirect_uris": ["http://localhost:8123/cb"],
            "grant_types": ["authorization_code", "client_credentials"],
        },
        {"client": "client_id", "client_secret": "client_secret"},
        status=201,
        access="key",
    ),
    Step(
        "POST",
        "/oauth/token",
        {"grant_type": "client_credentials", **CLIENT},
        {"access": "access_token"},
        access="none",
    ),
    Step(
        "GET",
        "/oauth/authorize",
        query="response_type=code&client_id={client}&redirect_uri=http://localhost:8123/cb"
        "&code_challenge=" + "a" * 43 + "&code_challenge_method=S256",
        access="none",
    ),
    Step("POST", "/oauth/revoke", {"token": "{access}", **CLIENT}, access="none"),
    Step(
        "POST",
        "/oauth/back-channel-logout/unknown",
        {"logout_token": "x"},
        access="none",
        status=400,
        of="/oauth/back-channel-logout/{provider_id}",
    ),
    Step("POST", "/oauth/device_authorization", {"surface": "claude_code"}, access="none"),
    Step("GET", "/orgs", save={"first_organization": "organizations.0.id"}),
    Step("PUT", "/orgs/{first_organization}/managed-settings", SETTINGS, of=f"{ORGANIZATION}/managed-settings"),
    Step("GET", "/api/oauth/usage", access="key"),
    Step("GET", "/managed/settings", access="key"),
    *(Step("POST", f"/v1/{signal}", {MEMBERS[signal]: []}, access="key") for signal in MEMBERS),
    Step("GET", "/auth/applications", save={"application_id": "applications.0.id"}),
    Step("GET", "/keys/api", query="projectId={first_project}", save={"first_key": "apiKeys.0.id"}),
    Step("GET", "/keys/api/{first_key}/applications", of="/keys/api/{key_id}/applications"),
    Step("DELETE", "/auth/applications/{application_id}"),
)
STEPS = (*PEOPLE, *MODELS, *SERVICE, *WORK, *MONEY, *APPLICATIONS, *PROVISIONING, *DOORS)


class Tour:
    """The steps at a gateway. `known` has the values of variables. `check`: responses must have the expected status."""

    check = True

    def __init__(self, address: str, tokens: Mapping[str, str], password: str) -> None:
        self.address, self.tokens = address, dict(tokens)
        self.known: dict[str, str] = {"password": password, "model": "sandbox-echo"}
        self._web = requests.Session()

    def walk(self) -> Iterator[RecordedResponse]:
        for step in STEPS:
            yield self.take(step)

    def take(self, step: Step) -> RecordedResponse:
        """Run a step. AssertionError for an unexpected response."""
        if "{one_time}" in str(step.body):
            secret = base64.b32decode(self.known["factor"] + "=" * (-len(self.known["factor"]) % 8))
            self.known["one_time"] = code_at(secret, int(time.time()) // STEP_S)
        sent = self._fill(step.body)
        headers = {"Accept": "application/json, text/event-stream", **step.headers}
        if step.access != "none":
            headers["Authorization"] = f"Bearer {self.known.get(step.access) or self.tokens[step.access]}"
        path = self._fill(step.path) + (f"?{self._fill(step.query)}" if step.query else "")
        files = {name: (None, value) if isinstance(value, str) else value for name, value in step.form.items()}
        url = self.address + path
        answer = self._web.request(
            step.method, url, json=sent, files=files or None, headers=headers, timeout=20, allow_redirects=False
        )
        assert not self.check or answer.status_code == step.status, (
            f"{step.operation}: {answer.status_code} {answer.text[:1000]}"
        )
        media = answer.headers.get("Content-Type", "").partition(";")[0]
        response = RecordedResponse(
            step, sent or {name: "…" for name in step.form} or None, step.status, media, answer.content
        )
        for name, where in step.save.items() if self.check else ():
            self.known[name] = str(_look_up(json.loads(answer.content), where))
        return response

    def _fill(self, value: Any) -> Any:
        if isinstance(value, str):
            for name, known in self.known.items():
                value = value.replace(f"{{{name}}}", known)
            return value
        if isinstance(value, dict):
            return {name: self._fill(inner) for name, inner in value.items()}
        return [self._fill(inner) for inner in value] if isinstance(value, list) else value


def _look_up(value: Any, where: str) -> Any:
    for name in where.split("."):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value
