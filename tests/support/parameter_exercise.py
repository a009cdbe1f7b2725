"""Sends chat requests with the parameter `tone` to a gateway of a changed copy of the package, in the folder of
the argument. Prints what callers and providers get as one line of JSON. The copy must come first on Python's path."""

import gevent.monkey

gevent.monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import orjson  # noqa: E402
from fakes.anthropic import FakeAnthropic  # noqa: E402
from fakes.server import FakeServer, send_json  # noqa: E402
from support.gateways import LocalGateway, local_gateway  # noqa: E402

import gateway  # noqa: E402
from gateway.configuration import settings as settings_module  # noqa: E402
from gateway.configuration.settings import Settings  # noqa: E402
from gateway.engine.plan_cache import READ_REQUIREMENTS  # noqa: E402
from gateway.neutral.request import Requirements  # noqa: E402
from gateway.surfaces.openai import chat_reader, chat_schema  # noqa: E402

QUESTION: dict[str, Any] = {"model": "acme-tone", "messages": [{"role": "user", "content": "Hello?"}]}
INPUT: dict[str, Any] = {"model": "acme-tone", "input": "Hello?"}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", QUESTION | {"tone": "formal"}),
    "loose": ("/v1/chat/completions", QUESTION | {"tone": "FORMAL"}),
    "responses": ("/v1/responses", INPUT | {"text": {"tone": "plain"}}),
    "toneless chat": ("/v1/chat/completions", QUESTION | {"model": "acme-toneless", "tone": "plain"}),
    "toneless responses": ("/v1/responses", INPUT | {"model": "acme-toneless", "text": {"tone": "plain"}}),
    "invalid": ("/v1/chat/completions", QUESTION | {"tone": "rude"}),
}


class ToneService(FakeServer):
    """A service of the chat completions format that accepts every field."""

    base = "/v1"

    def serve(self, environ: dict[str, Any], start: Any) -> Any:
        self.calls.append(orjson.loads(environ["wsgi.input"].read()))
        message = {"role": "assistant", "content": "Good day."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        answer = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "acme-tone-1"}
        return send_json(start, 200, answer | {"choices": [choice], "usage": usage})


def send(served: LocalGateway, services: tuple[Any, Any], path: str, body: dict[str, Any]) -> dict[str, Any]:
    for service in services:
        service.calls.clear()
    answer = served.app.flask.test_client().post(path, json=body, headers={"Authorization": f"Bearer {served.key}"})
    sent = [getattr(call, "body", call) for service in services for call in service.calls]
    facts = answer.json.get("metadata") or {}
    if "llmgateway" in answer.json:
        facts = answer.json["llmgateway"]
    return {
        "status": answer.status_code,
        "sent": sent[0] if sent else None,
        "warnings": facts.get("warnings", []),
        "error": answer.json.get("error"),
    }


def requirements_of(tone: str) -> Requirements:
    raw = orjson.dumps(QUESTION | ({"tone": tone} if tone else {}))
    return chat_reader.read_chat(chat_schema.decode(raw), raw).requirements


def main(folder: Path) -> None:
    assert Path(gateway.__file__).is_relative_to(folder), gateway.__file__

    def settings(**environment: str) -> Settings:
        return settings_module.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(folder / "data")} | environment)

    with ToneService() as tones, FakeAnthropic() as messages:
        environment = {
            "GATEWAY_CATALOGUE_PATH": str(folder / "catalogue"),
            "ACME_TONE_KEY": "key",
            "ACME_TONELESS_KEY": "key",
            "LLM_ACME_TONE_BASE_URL": tones.url,
            "LLM_ACME_TONELESS_BASE_URL": messages.url,
        }
        with local_gateway(settings, **environment) as served:
            found: dict[str, Any] = {
                name: send(served, (tones, messages), path, body) for name, (path, body) in REQUESTS.items()
            }
            described = served.app.flask.test_client().get("/openapi.json").json
    operation = described["paths"]["/v1/chat/completions"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    tone_schema = described["components"]["schemas"][schema]["properties"]["tone"]
    found["described"] = sorted(value for part in tone_schema["anyOf"] for value in part.get("enum", ()))
    found["plans differ"] = READ_REQUIREMENTS(requirements_of("plain")) != READ_REQUIREMENTS(requirements_of(""))
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
