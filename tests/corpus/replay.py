"""A gateway with the product's own providers and their quirks, all of which are one server that answers given bytes.

Each provider of a chat protocol sells the model `<provider>/corpus`, which has every ability, so that no answer depends
on the models of the day.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from contract.contract_gateway import ABILITIES, LIMITS
from fakes.server import FakeServer, Start, headers_of
from support.gateways import LocalGateway, local_gateway

from gateway.catalogue import loader
from gateway.configuration import settings as configuration
from gateway.configuration.settings import Settings

Json = dict[str, Any]
PROTOCOLS = ("openai", "openai-responses", "anthropic", "google", "bedrock", "cohere")
# The names by which providers recognize the family of a model; others have any name.
NAMES = {
    "anthropic": "claude-sonnet-4-5",
    "vertex-anthropic": "claude-sonnet-4-5",
    "azure-anthropic": "claude-sonnet-4-5",
    "aws-bedrock": "anthropic.claude-sonnet-4-5-v1:0",
    "google-ai-studio": "gemini-3-flash",
    "google-vertex": "gemini-3-flash",
    "cohere": "command-a-reasoning",
}


@dataclass(frozen=True)
class Bytes:
    """An answer, sent as it is."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Heard:
    """A request as the upstream got it."""

    path: str
    headers: dict[str, str]
    body: bytes


class Playback(FakeServer):
    """Answers each request with the next `Bytes` of the script; the last one stays. `calls` are `Heard`."""

    def serve(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        self.calls.append(Heard(environ["PATH_INFO"], headers_of(environ), environ["wsgi.input"].read()))
        answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        start(f"{answer.status} Scripted", [*answer.headers.items()])
        return [answer.body]


class Replay:
    """`play` sends a request to the gateway; `upstream.calls` are those that it caused."""

    def __init__(self, gateway: LocalGateway, upstream: Playback) -> None:
        self.gateway = gateway
        self.upstream = upstream

    def play(self, path: str, body: Any, answers: Iterable[Bytes], **headers: str) -> httpx.Response:
        cooldowns = self.gateway.services.routing.health.cooldowns
        for rest in cooldowns.export():
            cooldowns.clear(rest[0])
        self.upstream.calls.clear()
        self.upstream._script[:] = answers
        named = {"authorization": f"Bearer {self.gateway.key}", "content-type": "application/json", **headers}
        with httpx.Client(timeout=60) as http:
            return http.post(self.gateway.address + path, headers=named, content=json.dumps(body).encode())


def write_catalogue(folder: Path) -> list[str]:
    """Add the model `corpus` to every provider of a chat protocol and return their names."""
    (folder / "providers").mkdir(parents=True)
    (folder / "models").mkdir()
    (folder / "models" / "corpus.toml").write_text(
        '[[models]]\nid = "corpus"\ninput_modalities = ["text", "image", "audio", "file"]\n'
    )
    abilities = "".join(f"{name} = true\n" for name in ABILITIES)
    names = [name for name, provider in loader.load().providers.items() if provider.protocol in PROTOCOLS]
    for name in names:
        mapping = f'[[mappings]]\nmodel = "corpus"\nexternal_id = "{NAMES.get(name, name)}"\n{LIMITS}{abilities}'
        (folder / "providers" / f"{name}.toml").write_text(mapping)
    return names


@contextmanager
def open_replay(folder: Path) -> Iterator[Replay]:
    """Open a gateway that keeps its data in `folder`."""

    def settings(**environment: str) -> Settings:
        return configuration.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(folder / "data")} | environment)

    with Playback() as upstream:
        names = write_catalogue(folder / "catalogue")
        environment = {"GATEWAY_CATALOGUE_PATH": str(folder / "catalogue"), "GOOGLE_CLOUD_PROJECT": "test"}
        for name in names:
            stem = "LLM_" + name.upper().replace("-", "_").replace(".", "_")
            environment |= {f"{stem}_BASE_URL": upstream.address, f"{stem}_API_KEY": "key-upstream"}
        with local_gateway(settings, **environment) as gateway:
            yield Replay(gateway, upstream)
