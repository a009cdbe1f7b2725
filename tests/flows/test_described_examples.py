"""Each example of the API description is executed as it stands, on a gateway with the sandbox as its provider."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import npm
from support.every_operation import RecordedResponse, Step, Tour, write_png, write_wav
from support.gateways import LocalGateway, local_gateway
from support.shared import load
from support.signed_in_owner import PASSWORD

from gateway.accounts.members import list_members
from gateway.surfaces import surface_table
from gateway.surfaces.description import code_samples as code_samples_module
from gateway.surfaces.description import openapi as openapi_module
from gateway.surfaces.description.code_samples import CREDENTIALS, read_request

METRICS_TOKEN = "an operator's token of some length"
DOCUMENT = openapi_module.describe(surface_table.described())
SAMPLED = code_samples_module.with_samples(DOCUMENT)
KEY = "LLMGATEWAY_API_KEY"
# Paths that name something that the reader has made before: what they are called with is the test of their subject.
NAMES = re.compile(r"/[A-Z_]{2,}")
NAMED = {"/v1/batches"}  # their body names a file that the reader has stored before
# The programs use fetch, FormData and openAsBlob.
OLDEST_NODE = 20
HEX = re.compile(r"[0-9a-f]{32}|0{32,}")


def samples_of(key: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield method, path and operation of each request that a program sends with a key or without, and that needs
    nothing which was made before."""
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            request = read_request(method, path, operation)
            if request.credential in (key, "") and not NAMES.search(request.path) and method in ("get", "post"):
                yield method, path, operation


def is_model_operation(operation: dict[str, Any], method: str) -> bool:
    schemes = [name for choice in operation["security"] for name in choice]
    return method == "post" and any(CREDENTIALS.get(name) == KEY for name in schemes)


CALLS = [
    (method, path)
    for method, path, operation in samples_of(KEY)
    if is_model_operation(operation, method) and not path.startswith("/oauth") and path not in NAMED
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    folder = tmp_path_factory.mktemp("examples")
    environment = {"GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD, "GATEWAY_METRICS_TOKEN": METRICS_TOKEN}
    with local_gateway(lambda **given: load(folder, **given), **environment) as gateway:
        yield gateway


@pytest.fixture
def workplace(gateway: LocalGateway, tmp_path: Path) -> dict[str, Any]:
    """A folder with the files that the examples name, and the environment that they read."""
    (tmp_path / "audio.mp3").write_bytes(write_wav())
    (tmp_path / "image.png").write_bytes(write_png())
    environment = {**os.environ, code_samples_module.ADDRESS: gateway.address, KEY: gateway.key}
    return {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 120}


def sample(method: str, path: str, label: str) -> str:
    samples = SAMPLED["paths"][path][method]["x-codeSamples"]
    return next(one["source"] for one in samples if one["label"] == label)


def test_the_operations_that_call_models_are_among_the_executed() -> None:
    paths = {path for _, path in CALLS}
    assert {"/v1/chat/completions", "/v1/ocr", "/v1/audio/transcriptions", "/v4/ai/language-model", "/mcp"} <= paths
    assert len(paths) > 30


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_printed_command_works(workplace: dict[str, Any], method: str, path: str) -> None:
    source = sample(method, path, "curl").replace("curl ", "curl --silent --show-error --fail-with-body ", 1)
    done = subprocess.run(["/bin/sh", "-c", source], **workplace)
    assert done.returncode == 0, source + done.stdout + done.stderr


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_a_printed_python_program_works(
    workplace: dict[str, Any], method: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (code_samples_module.ADDRESS, KEY):
        monkeypatch.setenv(name, workplace["env"][name])
    monkeypatch.chdir(workplace["cwd"])
    exec(compile(sample(method, path, "Python"), path, "exec"), {"print": lambda *shown: None})


def test_a_printed_typescript_program_works(workplace: dict[str, Any]) -> None:
    node = npm.machine_node(OLDEST_NODE)
    for number, (method, path) in enumerate(CALLS):
        source = sample(method, path, "TypeScript").replace("console.log(response.status, ", "check(response.status, ")
        source += "\nfunction check(status, text) { if (status >= 300) throw new Error(`${status} ${text}`); }\n"
        (workplace["cwd"] / f"{number}.mjs").write_text(source)
    runs = "".join(f'await import("./{number}.mjs");\n' for number in range(len(CALLS)))
    (workplace["cwd"] / "all.mjs").write_text(runs)
    done = subprocess.run([node, "all.mjs"], **workplace)
    assert done.returncode == 0, done.stdout + done.stderr


# Members of which the gateway of the test has others than the examples: accounts, and a provider that answers here.
GIVEN = {
    "client_id",
    "client_secret",
    "code",
    "currentPassword",
    "email",
    "newPassword",
    "password",
    "provider",
    "token",
    "userCode",
    "user_code",
}
# Operations with an example that is right for most readers, and would end the tour or call a provider of the internet.
INSTEAD = {
    "PATCH /projects/{project_id}": {"retention"},
    "POST /oauth/register": {"grant_types"},
    "POST /keys/provider": {"allowedModels"},
    "PATCH /keys/provider/{key_id}": {"allowedModels"},
    "POST /keys/provider/{key_id}/test": {"model"},
}

# Members that an example has not: the gateway of the test sends no mail.
ADDED = {"POST /orgs/{organization_id}/view-subscriptions": ("hookId",)}


MODEL_PATHS = ("/v1", "/v2", "/v3", "/v4", "/mcp")


class ExampleTour(Tour):
    """The steps of the tour with the bodies of the description's examples, except for what only exists here."""

    def __init__(self, address: str, tokens: dict[str, str]) -> None:
        super().__init__(address, tokens, PASSWORD)
        self.sent: set[str] = set()

    def take(self, step: Step) -> RecordedResponse:
        method, _, path = step.operation.partition(" ")
        contents = DOCUMENT["paths"][path][method.lower()].get("requestBody", {}).get("content", {})
        example = next((content.get("example") for media, content in contents.items() if media.endswith("json")), None)
        if example is None or step.body is None or path.startswith(MODEL_PATHS):
            return super().take(step)
        self.sent.add(step.operation)
        body = adopt(example, step.body, GIVEN | INSTEAD.get(step.operation, set()))
        body |= {name: step.body[name] for name in ADDED.get(step.operation, ())}
        return super().take(replace(step, body=body))


def adopt(example: Any, given: Any, names: set[str]) -> Any:
    """Return the example with the values of `given` for ids and for the members `names`; those that are not given are
    left out."""
    if not isinstance(example, dict) or not isinstance(given, dict):
        return example
    adopted = {}
    for name, value in example.items():
        is_id = isinstance(value, str | list) and HEX.search(json.dumps(value))
        if name in names or is_id or (isinstance(given.get(name), str) and "{" in given[name]):
            if name in given:
                adopted[name] = given[name]
        else:
            adopted[name] = adopt(value, given.get(name), names)
    return adopted


def test_every_example_of_management_is_accepted(gateway: LocalGateway) -> None:
    services = gateway.services
    owner = list_members(services.store.database)[0]
    session = services.management.sessions.open(owner.user_id).token
    tour = ExampleTour(gateway.address, {"key": gateway.key, "session": session, "operator": METRICS_TOKEN})
    for _ in tour.walk():
        pass
    described = {
        f"{method.upper()} {path}"
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        if any(content.get("example") for content in operation.get("requestBody", {}).get("content", {}).values())
        and not path.startswith(MODEL_PATHS)
    }
    assert described <= tour.sent and len(described) > 50
