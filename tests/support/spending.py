"""A model with a round price per output token, callers that spend on it, and queries of the accounts.

`BODIES` has a valid body for each paid operation with the given text, `JOBS` for each operation that starts a job, and
`FORMS` the fields of forms. A new operation needs a line there.
"""

import http.client
import json
import sqlite3
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gevent
import psycopg
from support.gateways import ROOT, GatewayProcess
from support.prepared import SECRETS as SECRETS

from gateway.providers.sandbox import speech
from gateway.providers.sandbox.images import png

TOKEN_NUSD = 300_000  # per output token; input is free, so a call with 100 tokens costs 0.03 USD
PROVIDER = """name = "FakeUpstream"
protocol = "openai"
address = "{address}"
credential = ["MINT_KEY"]
quirks = ["compatible"]

[[mappings]]
model = "coin"
external_id = "coin"
context_length = 1000000
max_output = {maximum}
prices = {{ prompt = "0", completion = "0.0003" }}

[[mappings]]
model = "book"
external_id = "book"
context_length = 1000000
max_output = 1000
vision = true
audio = true
documents = true
prices = {{ prompt = "0.000002", completion = "0.000008" }}

[[mappings]]
model = "epic"
external_id = "epic"
context_length = 100000
prices = {{ prompt = "0", completion = "0.0003" }}

[[mappings]]
model = "leaf"
external_id = "leaf"
operations = ["embeddings"]
context_length = 1000000
prices = {{ prompt = "0.0003" }}

[[mappings]]
model = "horn"
external_id = "horn"
operations = ["speech"]
prices = {{ character = "0.0003" }}

[[mappings]]
model = "ear"
external_id = "ear"
operations = ["transcriptions", "translations"]
prices = {{ input_audio_hour = "108" }}

[[mappings]]
model = "scale"
external_id = "scale"
operations = ["rerank", "moderations", "ocr", "decisions"]
context_length = 1000000
prices = {{ prompt = "0.0003", ocr_page = "0.03" }}

[[mappings]]
model = "brush"
external_id = "brush"
operations = ["images", "image_edits"]
prices = {{ per_image = {{ default = "0.03" }} }}

[[mappings]]
model = "reel"
external_id = "reel"
operations = ["videos"]
prices = {{ per_second = {{ default = "0.0075" }} }}
"""
MODEL = "".join(
    f'[[models]]\nid = "{one}"\nname = "{one}"\nfamily = "test"\n'
    for one in ("coin", "book", "epic", "leaf", "horn", "ear", "scale", "brush", "reel")
)


def write_mint(folder: Path, address: str, maximum: int = 100_000) -> dict[str, str]:
    """Write a catalogue with the model `coin` at this address and return the environment of a gateway that uses it."""
    for name, text in (("providers", PROVIDER.format(address=address, maximum=maximum)), ("models", MODEL)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "mint.toml").write_text(text)
    return {"GATEWAY_CATALOGUE_PATH": str(folder), "MINT_KEY": "mint-key", "GATEWAY_CATALOGUE_SANDBOX": "false"}


Json = dict[str, Any]
TOOLS = "/mcp"  # a refusal is in the result of a tool
PICTURE = "data:image/png;base64," + b64encode(png(1, 1, "")).decode()


def _talk(text: str) -> list[Json]:
    return [{"role": "user", "content": text}]


def _prompt(text: str) -> Json:
    """Return call options of the AI SDK, which sends the model in a header."""
    return {"prompt": [{"role": "user", "content": [{"type": "text", "text": text}]}], "maxOutputTokens": 100}


BODIES: dict[str, Callable[[str], Json]] = {
    "/v1/chat/completions": lambda text: {"messages": _talk(text), "max_tokens": 100},
    "/v1/completions": lambda text: {"prompt": text, "max_tokens": 100},
    "/v1/fim/completions": lambda text: {"prompt": text, "max_tokens": 100},
    "/v1/messages": lambda text: {"messages": _talk(text), "max_tokens": 100},
    "/v1/responses": lambda text: {"input": text, "max_output_tokens": 100},
    "/v2/chat": lambda text: {"messages": _talk(text), "max_tokens": 100},
    "/v1/chat": lambda text: {"message": text, "max_tokens": 100},
    # As many bytes as the bound of its tokens requires.
    "/v1/embeddings": lambda text: {"model": "mint/leaf", "input": f"{text:<120}"},
    "/v1/embed": lambda text: {"model": "mint/leaf", "texts": [f"{text:<120}"]},
    "/v2/embed": lambda text: {"model": "mint/leaf", "texts": [f"{text:<120}"]},
    "/v1/audio/speech": lambda text: {"model": "mint/horn", "input": f"{text:<100}", "voice": "alloy"},
    "/v1/images/generations": lambda text: {"model": "mint/brush", "prompt": text},
    "/v1/images/edits": lambda text: {"model": "mint/brush", "prompt": text, "images": [{"image_url": PICTURE}]},
    "/v1/rerank": lambda text: {"model": "mint/scale", "query": "q", "documents": [f"{text:<120}"]},
    "/v1/moderations": lambda text: {"model": "mint/scale", "input": f"{text:<120}"},
    "/v1/ocr": lambda text: {
        "model": "mint/scale",
        "document": {"type": "image_url", "image_url": f"https://x/ {text}"},
    },
    "/v1/systemone": lambda text: {
        "model": "mint/scale",
        "state": f"{text:<120}",
        "questions": {"a": {"type": "noul", "instructions": "Is it?"}},
    },
    "/v1/responses/compact": lambda text: {"input": text},
    TOOLS: lambda text: {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "chat", "arguments": {"model": "mint/coin", "messages": _talk(text), "max_tokens": 100}},
    },
    "/v1/ai/language-model": _prompt,
    "/v3/ai/language-model": _prompt,
    "/v4/ai/language-model": _prompt,
}
# Gemini's methods, with the model in their paths.
GEMINI: dict[str, Callable[[str], Json]] = {}
for _prefix in ("/v1/models/mint", "/v1beta/models/mint", "/v1beta/mint"):
    for _method in ("generateContent", "streamGenerateContent"):
        GEMINI[f"{_prefix}/coin:{_method}"] = lambda text: {
            "contents": [{"parts": [{"text": text}]}],
            "generationConfig": {"maxOutputTokens": 100},
        }
    GEMINI[f"{_prefix}/leaf:embedContent"] = lambda text: {"content": {"parts": [{"text": f"{text:<120}"}]}}
    GEMINI[f"{_prefix}/leaf:batchEmbedContents"] = lambda text: {
        "requests": [{"content": {"parts": [{"text": f"{text:<120}"}]}}]
    }
# Operations that start a job; the usage row is written at its end.
JOBS: dict[str, Callable[[str], Json]] = {"/v1/videos": lambda text: {"model": "mint/reel", "prompt": text}}
# Operations with a form that contains a file; a second of audio costs as much as 100 tokens.
FORMS = {f"/v1/audio/{name}": {"model": "mint/ear"} for name in ("transcriptions", "translations")}
SECOND_OF_SOUND = speech.make("wav", 1.0)
STREAMED = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/fim/completions",
    "/v1/messages",
    "/v1/responses",
    "/v2/chat",
    "/v1/chat",
    "/v4/ai/language-model",
)
# Paths with the same handler; one of them is enough for tests that do not depend on the path.
ALIKE = ("/v1/ai/language-model", "/v3/ai/language-model")
TALK = {*STREAMED, *ALIKE, TOOLS, "/v1/responses/compact"}
BESIDE_CHAT = sorted({*BODIES, *FORMS} - TALK)


def with_model(path: str, body: Json, model: str) -> Json:
    """Return the body with another model."""
    if path == TOOLS:
        body["params"]["arguments"]["model"] = model
        return body
    return {**body, "model": model}


def sent_to(path: str, text: str) -> Json:
    """Return httpx's arguments for the body of a valid request to a paid operation."""
    if path in FORMS:
        return {"data": FORMS[path] | {"prompt": text}, "files": {"file": ("a.wav", SECOND_OF_SOUND)}}
    return {"json": {"model": "mint/coin"} | (BODIES | JOBS | GEMINI)[path](text)}


def say_in_headers(path: str, body: Json) -> dict[str, str]:
    """Return the headers that the AI SDK surface requires."""
    if "/ai/" not in path:
        return {}
    stream = "true" if body.get("stream") else "false"
    return {"ai-language-model-id": body["model"], "ai-language-model-streaming": stream}


# Run with the environment of an installation: makes a key for each limit (nano-dollars) and prints the tokens.
KEYS = """
import sys
from gevent import monkey
monkey.patch_all()
from gateway.accounts import keys
from gateway.accounts.members import list_members
from gateway.accounts.projects import list_projects
from gateway.limits.budgets import Budgets, Limits
from gateway.operator.installation_commands import opened

with opened() as one:
    [project] = list_projects(one.database)
    owner = list_members(one.database, project.organization_id)[0]
    draft = keys.Draft(project.id, owner.id, "limited")
    budgets = Budgets(one.database, one.control)
    for nusd in sys.argv[1:]:
        made = keys.create(one.database, one.control, one.secrets.hash_keys, draft, actor="operator")
        limits = Limits(total_nusd=int(nusd))
        one.database.write(lambda: budgets.write_limits("key", made.info.id, limits))
        print(made.token)
    one.control.confirm()
"""


class PaymentResult(NamedTuple):
    """The response to a caller; status 0 when the connection broke."""

    status: int
    code: str = ""
    body: Any = None


def pay(gateway: Any, mark: str = "", words: str = "", key: str = "", **body: Any) -> PaymentResult:
    """Call `coin` over a new connection, for 100 tokens by default."""
    payload = {"model": "mint/coin", "max_tokens": 100} | body
    payload["messages"] = [{"role": "user", "content": f"mark:{mark} {words}"}]
    headers = {"Authorization": f"Bearer {key or gateway.key}", "Content-Type": "application/json"}
    if mark:
        headers["x-request-id"] = mark
    host = gateway.address.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(payload), headers)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException):
        return PaymentResult(0)
    finally:
        connection.close()
    if payload.get("stream"):
        return PaymentResult(answer.status, "error" if b"event: error" in text else "", text)
    parsed = json.loads(text)
    return PaymentResult(answer.status, parsed.get("error", {}).get("code", ""), parsed)


def at_once(count: int, work: Callable[[int], Any], seconds: float = 120) -> list[Any]:
    """Run `work` in `count` greenlets and return the results. All must finish within `seconds`."""
    running = [gevent.spawn(work, number) for number in range(count)]
    gevent.joinall(running, timeout=seconds)
    return [one.get(block=False) for one in running]


def make_keys(gateway: GatewayProcess, limits: list[int]) -> list[str]:
    """Create a key for each total limit in nano-dollars and return their tokens."""
    command = [sys.executable, "-c", KEYS, *map(str, limits)]
    done = subprocess.run(command, cwd=ROOT, env=gateway.environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def query(gateway: GatewayProcess, sql: str) -> list[tuple]:
    """Return rows as another process sees them."""
    url = gateway.environment.get("DATABASE_URL", "")
    if url.startswith("postgres"):
        with psycopg.connect(url) as database:
            return database.execute(sql).fetchall()
    with sqlite3.connect(gateway.data / "gateway.db", timeout=20) as database:
        return database.execute(sql).fetchall()


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether the condition became true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        gevent.sleep(0.1)
    return True


def reserved_nusd(gateway: GatewayProcess) -> int:
    return int(query(gateway, "SELECT COALESCE(SUM(leased_nusd), 0) FROM budget")[0][0])


def settled_nusd(gateway: GatewayProcess) -> int:
    """Return the cost of all usage rows."""
    return int(query(gateway, "SELECT COALESCE(SUM(cost_nusd), 0) FROM usage")[0][0])


def settled_rows(gateway: Any, count: int, seen: int) -> list[tuple[int, int, Json]]:
    """Wait until `count` calls of a gateway's organization are settled after its first `seen` rows; return cost, flags
    and details of their rows."""
    database = gateway.services.store.database
    organization = bytes.fromhex(gateway.organization_id.removeprefix("org_"))
    query = "SELECT cost_nusd, flags, extra FROM usage WHERE organization = ? ORDER BY posted_at"
    found: list[Any] = []

    def settled() -> bool:
        found[:] = database.read(lambda: database.execute(query, (organization,)).fetchall())[seen:]
        details = [json.loads(extra or "{}") for _, _, extra in found]
        return sum(one.get("units", {}).get("calls", 1) for one in details) >= count

    assert until(settled, 20), (count, found)
    return [(cost, flags, json.loads(extra or "{}")) for cost, flags, extra in found]
