"""Marked secrets go through every surface and fault; then logs, errors, metrics, traces, alerts, stores and files are
searched."""

import json
import secrets as random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import requests
from fakes.openai import Answer, FakeOpenAI
from fakes.otlp import FakeCollector
from fakes.server import FakeServer, send_json
from support.gateways import GatewayProcess
from support.leaking_upstream import LeakingUpstream
from support.spending import BODIES, FORMS, SECOND_OF_SOUND, STREAMED, say_in_headers, until, with_model, write_mint

pytestmark = pytest.mark.extended

OWNER = "owner@localhost"
CANARY = "a-label-that-is-no-secret"
MODEL = "openai/gpt-4o-mini"
LARGE = 1_200_000  # bytes of a file that lies on the disk while its request runs


def mark(name: str) -> str:
    return f"MARK{name}{random.token_hex(12)}"


class Marks:
    """Every secret of the installation and of its people, each findable."""

    def __init__(self) -> None:
        self.hash_secret, self.encryption_key = mark("hash"), mark("encryption")
        self.password, self.wrong_password, self.new_password = mark("password"), mark("wrong"), mark("new")
        self.upstream_key, self.own_key = "sk-" + mark("upstream"), "sk-" + mark("own")
        self.api_key = "llmgtwy_" + mark("key")
        self.prompt, self.answer, self.idempotency_key = mark("prompt"), mark("answer"), mark("idempotency")
        self.unknown_key, self.unknown_session = "llmgtwy_" + mark("unknown"), "llmgses_" + mark("unknown")
        self.media_key, self.media_answer = "mint-" + mark("media"), mark("said") + "AAA"  # letters of base64
        self.sound, self.filename = mark("sound"), mark("filename")
        self.echo = mark("echo")  # what an upstream says of a request: its sender and those who read the log may see it
        self.metrics_token = mark("metrics")
        self.code, self.invitation = mark("code"), "llmginv_" + mark("invitation")
        self.learnt: dict[str, str] = {}

    def every(self) -> dict[str, str]:
        return {name: value for name, value in vars(self).items() if isinstance(value, str)} | self.learnt


class Receiver(FakeServer):
    """Takes alerts: `calls` are their headers and bodies."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        self.calls.append(f"{environ} {environ['wsgi.input'].read().decode()}")
        return send_json(start, 200, {})


class Walk:
    """Uses the gateway in every way that has to do with a secret, and keeps the answers."""

    def __init__(self, gateway: GatewayProcess, marks: Marks, upstream: FakeOpenAI, media: LeakingUpstream) -> None:
        self.gateway, self.marks, self.upstream, self.media_upstream = gateway, marks, upstream, media
        self.errors: list[str] = []
        self.session = self.organization = ""

    def send(
        self, method: str, path: str, token: str, body: Any = None, form: Any = None, **headers: str
    ) -> requests.Response:
        """The answer; errors are kept, since they must hold none of the marks."""
        sent = {"Authorization": f"Bearer {token}", **{name.replace("_", "-"): text for name, text in headers.items()}}
        content = {"json": body} if form is None else form
        answer = requests.request(method, self.gateway.address + path, headers=sent, timeout=30, **content)
        if answer.status_code >= 400:
            self.errors.append(f"{method} {path} {answer.status_code} {answer.headers} {answer.text}")
        return answer

    def manage(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.send(method, path, self.session, body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def accounts(self) -> None:
        marks, learnt = self.marks, self.marks.learnt
        self.send("POST", "/auth/sign-in/email", "", {"email": OWNER, "password": marks.wrong_password})
        self.send("POST", "/auth/sign-in/email", "", {"email": marks.wrong_password, "password": marks.wrong_password})
        signed = self.send("POST", "/auth/sign-in/email", "", {"email": OWNER, "password": marks.password})
        self.session = learnt["session"] = signed.json()["token"]
        learnt["device cookie"] = signed.cookies["llmgateway.device"]
        organization = self.manage("GET", "/orgs")["organizations"][0]["id"]
        self.organization = organization
        project = self.manage("GET", f"/orgs/{organization}/projects")["projects"][0]["id"]
        key = self.manage("POST", "/keys/api", {"description": "CI", "projectId": project})["apiKey"]
        learnt["made key"] = key["token"]
        learnt["rolled key"] = self.manage("POST", f"/keys/api/{key['id']}/roll")["apiKey"]["token"]
        provider_key = {"organizationId": organization, "provider": "openai", "token": marks.own_key}
        self.manage("POST", "/keys/provider", provider_key)
        invitation = {"email": "guest@example.com", "role": "developer"}
        learnt["invitation"] = self.manage("POST", f"/orgs/{organization}/invitations", invitation)["invitation"][
            "token"
        ]
        callback = self.manage("POST", f"/projects/{project}/callback-secret/roll")
        learnt["callback secret"] = next(value for value in callback.values() if isinstance(value, str))
        grant = self.send("POST", "/auth/device/code", "", {"client_id": "llmgateway-cli"}).json()
        learnt["device code"] = grant["device_code"]
        factor = self.manage("POST", "/auth/second-factor", {"password": marks.password})
        learnt["second factor"] = factor["secret"]
        self.send("POST", "/auth/second-factor/confirm", self.session, {"code": marks.code})
        change = {"currentPassword": marks.wrong_password, "newPassword": marks.new_password}
        self.send("POST", "/auth/change-password", self.session, change)
        for path, body in (
            ("/auth/invitation", {"token": marks.invitation}),
            ("/auth/sign-up/email", {"token": marks.invitation, "password": marks.new_password, "name": "x"}),
            ("/auth/device/token", {"client_id": "llmgateway-cli", "device_code": marks.code, "grant_type": "x"}),
            ("/orgs", {"name": "x"}),
        ):
            self.send("POST", path, marks.unknown_session, body)

    def generation(self, faults: int = 6) -> None:
        marks = self.marks
        messages = [{"role": "user", "content": marks.prompt}]
        for path, body in bodies_of(marks.prompt):
            for fault in self.faults()[:faults]:
                self.upstream.script(*[fault] * 4)
                self.send_model_call(path, marks.api_key, body, x_debug="true")
                self.upstream._script.clear()
            self.upstream.script(*[Answer(marks.answer, piece=1000)] * 4)
            key = marks.idempotency_key + path.replace("/", "-") + str(body.get("stream", ""))
            for _ in range(2):
                answer = self.send_model_call(path, marks.api_key, body, Idempotency_Key=key, x_request_id=CANARY)
                # A summary is sealed for the request that continues with it.
                assert answer.status_code == 200 and (marks.answer in answer.text or "compact" in path), answer.text
            self.send_model_call(
                path, marks.api_key, body, x_debug="true"
            )  # answered by the cache, where that is possible
            self.upstream._script.clear()
            self.send_model_call(path, marks.unknown_key, body)
            self.send_model_call(
                path, marks.api_key, {**body, "max_tokens": -1, "max_output_tokens": -1, "prompt": [[]]}
            )
            self.send_model_call(path, marks.api_key, {**body, "model": "no-such-model"})
        for path, body in (
            ("/v1/messages/count_tokens", {"model": MODEL, "messages": messages}),
            ("/v1/responses/input_tokens", {"model": MODEL, "input": marks.prompt}),
            ("/v1/route/explain", {"model": MODEL, "messages": messages}),
        ):
            self.send_model_call(path, marks.api_key, body)
            self.send_model_call(path, marks.unknown_key, body)
            self.send_model_call(path, marks.api_key, {**body, "model": "no-such-model", "messages": 5})

    def media(self, faults: int = 5) -> None:
        """Every operation that does not chat: its faults, its answer twice under one key, and what is refused."""
        marks = self.marks
        for path in (*(path for path in BODIES if "model" in BODIES[path]("")), *FORMS):
            for fault in self.media_faults()[:faults]:
                self.media_upstream.script(*[fault] * 4)
                self.ask_media(path, x_debug="true")
                self.media_upstream._script.clear()
            key = marks.idempotency_key + path.replace("/", "-")
            for _ in range(2):
                answer = self.ask_media(path, Idempotency_Key=key, x_request_id=CANARY, x_debug="true")
                assert answer.status_code == 200, answer.text
            self.ask_media(path, key=marks.unknown_key)
            self.ask_media(path, model="no-such-model")
            self.ask_media(path, model={"a": marks.prompt} if path not in FORMS else "coin")

    def ask_media(self, path: str, key: str = "", **more: Any) -> Any:
        """Send one request; a model among `more` replaces the good one."""
        headers = {name: text for name, text in more.items() if name != "model"}
        changed = {name: text for name, text in more.items() if name == "model"}
        key = key or self.marks.api_key
        if path not in FORMS:
            return self.send("POST", path, key, BODIES[path](self.marks.prompt) | changed, **headers)
        sound = SECOND_OF_SOUND + self.marks.sound.encode() + bytes(LARGE)
        form = {
            "data": FORMS[path] | changed | {"prompt": self.marks.prompt},
            "files": {"file": (f"{self.marks.filename}.wav", sound)},
        }
        return self.send("POST", path, key, form=form, **headers)

    def media_faults(self) -> list[tuple[int, bytes]]:
        said = f"Bad key {self.marks.media_key} and Bearer {self.marks.own_key} for {self.marks.echo}"
        body = json.dumps({"error": {"message": said, "type": "x", "param": None, "code": said}}).encode()
        return [(status, body) for status in (401, 500, 429)] + [(200, said.encode()), (200, body)]

    def send_model_call(self, path: str, key: str, body: Any, **headers: str) -> Any:
        return self.send("POST", path, key, body, **headers, **say_in_headers(path, body))

    def keep_all(self) -> None:
        """The project keeps payloads and answers, so that what is kept is there to be searched."""
        project = self.manage("GET", f"/orgs/{self.organization}/projects")["projects"][0]["id"]
        self.gateway.manage("projects", "set", project, "--retention", "retain", "--cache")

    def faults(self) -> list[Answer]:
        """Return the faults that a provider may have; their texts repeat the key that it received."""
        said = f"Bad key {self.marks.upstream_key} and Bearer {self.marks.own_key} for this"
        error = {"error": {"message": said, "type": "x", "param": None, "code": "x"}}
        return [
            Answer(status=401, error=error),
            Answer(status=400, error=error),
            Answer(status=500, error=error),
            Answer(status=429, error=error),
            Answer("Hello.", cut=20),
            Answer(raw=said.encode()),
        ]


def quotes_upstreams(place: str) -> bool:
    """Whether the text of a provider's error belongs there: errors, the request line and usage rows."""
    return place in ("errors", "log") or place.startswith(("table usage", "file gateway.db", "file journal"))


def bodies_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    """A good body for each paid operation that chats, and one for its stream."""
    chats = [path for path in BODIES if "model" not in BODIES[path](text)]  # the others name a model of their own
    plain = [(path, with_model(path, BODIES[path](text), MODEL)) for path in chats]
    streamed = [(path, {**body, "stream": True}) for path, body in plain if path in STREAMED]
    return plain + streamed


def dump(url: str) -> dict[str, str]:
    """All tables of a PostgreSQL database as text; bytes as the text that they may be."""
    dumps: dict[str, str] = {}
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (table,) in tables:
            rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()  # type: ignore[call-overload]
            cells = [cell for row in rows for cell in row]
            dumps[f"table {table}"] = "\n".join(
                bytes(cell).decode("latin-1") if isinstance(cell, bytes | memoryview) else str(cell) for cell in cells
            )
    return dumps


def dump_redis(url: str) -> str:
    client, found = redis.Redis.from_url(url), []
    for key in client.scan_iter("*"):
        kind = client.type(key)
        value = client.get(key) if kind == b"string" else client.hgetall(key) if kind == b"hash" else b""
        found.append(f"{key!r} {value!r}")
    return "\n".join(found)


@pytest.fixture
def upstream() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture(params=["sqlite", "postgresql and redis"])
def stores(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "sqlite":
        return {}
    return {
        "DATABASE_URL": request.getfixturevalue("postgresql_url"),
        "REDIS_URL": request.getfixturevalue("redis_url"),
    }


@pytest.fixture
def collector() -> Iterator[FakeCollector]:
    with FakeCollector() as fake:
        yield fake


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as fake:
        yield fake


@pytest.fixture
def marks() -> Marks:
    return Marks()


@pytest.fixture
def parrot(marks: Marks) -> Iterator[LeakingUpstream]:
    with LeakingUpstream(marks.media_answer) as fake:
        yield fake


def test_no_secret_is_found_outside_of_its_place(
    process: Callable[..., GatewayProcess],
    upstream: FakeOpenAI,
    parrot: LeakingUpstream,
    collector: FakeCollector,
    receiver: Receiver,
    marks: Marks,
    tmp_path: Path,
    stores: dict[str, str],
) -> None:
    catalogue = write_mint(tmp_path / "catalogue", parrot.url) | {"MINT_KEY": marks.media_key}
    gateway = process(
        workers=1,
        GATEWAY_API_KEY_HASH_SECRET=marks.hash_secret,
        GATEWAY_ENCRYPTION_KEY=marks.encryption_key,
        GATEWAY_BOOTSTRAP_PASSWORD=marks.password,
        GATEWAY_BOOTSTRAP_API_KEY=marks.api_key,
        LLM_OPENAI_API_KEY=marks.upstream_key,
        LLM_OPENAI_BASE_URL=upstream.url,
        LLM_OPENAI_USE_RESPONSES_API="false",  # it speaks chat completions alone
        GATEWAY_METRICS_TOKEN=marks.metrics_token,
        GATEWAY_BOOTSTRAP_CREDITS_USD="100000",
        GATEWAY_LOG_REQUESTS="json",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.address,
        **catalogue,
        **stores,
    )
    walk = Walk(gateway, marks, upstream, parrot)
    walk.accounts()
    marks.learnt["alert secret"] = gateway.manage("alerts", "add", receiver.url).split()[2]
    walk.generation()
    walk.media(faults=5 if stores else 1)
    walk.keep_all()
    marks.idempotency_key += "-again"
    walk.generation(faults=1)
    walk.media(faults=1)
    assert f"Bearer {marks.media_key}" in parrot.credentials
    assert any(marks.upstream_key in json.dumps(call.headers) for call in upstream.calls)
    scraper = {"Authorization": f"Bearer {marks.metrics_token}"}
    outputs = {
        "errors": "\n".join(walk.errors),
        "metrics": requests.get(f"{gateway.address}/metrics", headers=scraper, timeout=20).text,
        "health": requests.get(gateway.address, timeout=20).text,
        "operator": gateway.manage("audit", "list") + gateway.manage("provider-keys", "list", walk.organization),
    }
    assert until(lambda: bool(receiver.calls))
    gateway.stop()
    outputs["log"], outputs["alerts"] = gateway.log(), "\n".join(receiver.calls)
    outputs["traces"] = "\n".join(map(str, [*collector.spans, *collector.metrics, *collector.resources]))
    assert "POST /v1/ocr" in outputs["traces"] and "POST /mcp" in outputs["traces"] and CANARY in outputs["log"]
    for path in gateway.data.rglob("*"):
        if path.is_file():
            outputs[f"file {path.relative_to(gateway.data)}"] = path.read_bytes().decode("latin-1")
    if stores:
        outputs |= dump(stores["DATABASE_URL"]) | {"redis": dump_redis(stores["REDIS_URL"])}
        assert "response" in outputs["redis"]
    where = "table" if stores else "file"
    assert len(walk.errors) > 30 and "llmgateway_" in outputs["metrics"]
    assert any(CANARY in text for name, text in outputs.items() if name.startswith(where))  # the search does find
    found = {(name, where) for name, value in marks.every().items() for where, text in outputs.items() if value in text}
    assert {place for name, place in found if name == "echo"} <= {place for place in outputs if quotes_upstreams(place)}
    assert {name for name, _ in found} <= {"echo"}
