"""One whole gateway in this process before all vendors' fakes, and what callers and vendors see of it."""

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from contract.cases import PDF, PNG, WAV
from contract.vendors import FURTHER, VENDORS, Say, Vendor
from support.described_answers import mistakes_of
from support.gateways import LocalGateway, local_gateway
from support.spending import say_in_headers

from gateway.configuration import settings as configuration
from gateway.configuration.settings import Settings
from gateway.providers.registry import make_protocols
from gateway.surfaces import surface_table
from gateway.surfaces.web.http import Inbound
from gateway.surfaces.web.operation_guard import guard
from gateway.transport.upstream_responses import Answer

Json = dict[str, Any]
ALL = VENDORS | FURTHER
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "cohere": "/v2/chat",
    "ai2": "/v1/ai/language-model",
    "ai3": "/v3/ai/language-model",
    "ai4": "/v4/ai/language-model",
    "gemini": "/v1beta/models/<path:model>:generateContent",
    "gemini stream": "/v1beta/models/<path:model>:streamGenerateContent",
}
DIALECTS = dict.fromkeys(("ai2", "ai3", "ai4"), "aisdk") | {
    **{"chat": "openai", "messages": "anthropic", "responses": "responses"},
    **{"gemini": "google", "cohere": "cohere"},
}
ABILITIES = (
    "vision", "audio", "documents", "tools", "parallel_tool_calls", "reasoning", "reasoning_max_tokens", "json_output",
    "json_output_schema", "web_search", "verbosity", "supports_n",
)  # fmt: skip
LIMITS = """context_length = 200000
max_output = 32000
min_cacheable_tokens = 1024
max_n = 8
prices = { prompt = "0.000001", completion = "0.000002", web_search = "0" }
"""
# A model with almost no features: the matrix in test_unsupported_options covers every feature that it lacks.
MIN_LIMITS = """context_length = 8000
max_output = 1000
supported_parameters = ["temperature", "max_tokens", "tools", "tool_choice"]
supported_tool_choices = ["auto", "none"]
prices = { prompt = "0.000001", completion = "0.000002" }
"""


def write_catalogue(folder: Path, vendors: Mapping[str, Vendor] = ALL) -> Path:
    """A provider for each vendor with one able model, `<vendor>-able`, and two that can do little: `<vendor>-plain` can
    call tools, `<vendor>-bare` cannot."""
    (folder / "providers").mkdir(parents=True)
    (folder / "models").mkdir()
    abilities = "".join(f"{name} = true\n" for name in ABILITIES)
    models = ""
    for name, vendor in vendors.items():
        head = f'name = "{name}"\nprotocol = "{vendor.protocol}"\naddress = "https://{name}.invalid"\n{vendor.provider}'
        mapping = (
            f'[[mappings]]\nmodel = "{name}-able"\nexternal_id = "{vendor.model}"\n{LIMITS}{abilities}{vendor.more}'
        )
        for level, tools in (("plain", "true"), ("bare", "false")):
            model = f"{name}-{level}"
            mapping += f'[[mappings]]\nmodel = "{model}"\nexternal_id = "{vendor.model}"\n{MIN_LIMITS}tools = {tools}\n'
            models += f'[[models]]\nid = "{model}"\n'
        (folder / "providers" / f"fake-{name}.toml").write_text(head + mapping)
        models += f'[[models]]\nid = "{name}-able"\ninput_modalities = ["text", "image", "audio", "file"]\n'
    (folder / "models" / "able.toml").write_text(models)
    return folder


FETCHED = {"pdf": PDF, "wav": WAV}


def fetch(url: str, max_bytes: int, **more: Any) -> Answer:
    """Return the file behind an address of the cases."""
    return Answer(200, {}, b64decode(FETCHED.get(url.rpartition(".")[2], PNG)))


def _inbound(surface: str, body: Json, headers: dict[str, str]) -> Inbound:
    """Return a request as the server passes it on."""
    path = PATHS[surface]
    if surface != "gemini":
        return Inbound("POST", path, headers | say_in_headers(path, body), json.dumps(body).encode())
    rest = {name: value for name, value in body.items() if name not in ("model", "stream")}
    streamed = bool(body.get("stream"))
    return Inbound(
        "POST",
        PATHS["gemini stream"] if streamed else path,
        headers,
        json.dumps(rest).encode(),
        query="alt=sse" if streamed else "",
        params={"model": body["model"]},
    )


class ContractGateway:
    """`ask` sends a body to a surface as its handlers get it; `heard` is what the vendor got since `script`."""

    def __init__(self, gateway: LocalGateway, fakes: dict[str, Any], vendors: Mapping[str, Vendor] = ALL) -> None:
        self.gateway = gateway
        self.vendors = vendors
        self.fakes = fakes
        self.headers: dict[str, str] = {}  # of the last answer
        protocols = make_protocols(gateway.services.routing.transport, gateway.services.clock)
        self._dialects = {name: wire.dialect for name, wire in protocols.items()}
        self._dialect = ""  # of the vendor that answers next
        self._handlers = {
            operation.path: guard(gateway.services, operation)
            for operation in surface_table.operations()
            if operation.method == "POST" and operation.path in PATHS.values()
        }

    def script(self, vendor: str, *says: Say, forgets: bool = True) -> None:
        """Set the vendor's next answers, in order, and clear its recorded calls. It `forgets` the signatures that it
        gave."""
        self._dialect = self._dialects[self.vendors[vendor].protocol]
        fake = self.fakes[vendor]
        fake.calls.clear()
        fake._script.clear()
        for kept in ("signatures", "sealed") if forgets else ():
            getattr(fake, kept, set()).clear()
        cooldowns = self.gateway.services.routing.health.cooldowns
        for rest in cooldowns.export():
            cooldowns.clear(rest[0])
        fake.script(*(self.vendors[vendor].script(say) for say in says))

    def send(self, surface: str, body: Json, *, described: bool = True, **headers: str) -> tuple[int, bytes]:
        """Status and whole body of one answer, which is compared with its description unless it repeats odd members of
        the vendor (`described`)."""
        key = {"authorization": f"Bearer {self.gateway.key}", "content-type": "application/json"}
        inbound = _inbound(surface, body, key | headers)
        path = PATHS[surface]
        outbound = self._handlers[inbound.path](inbound)
        self.headers = dict(outbound.headers)
        if isinstance(outbound.body, bytes):
            answered = outbound.body
        else:
            try:
                answered = b"".join(outbound.body)
            finally:
                outbound.body.close()
        if described:
            self._check(f"POST {path}", outbound.status, answered, DIALECTS[surface])
        return outbound.status, answered

    def _check(self, operation: str, status: int, answered: bytes, dialect: str) -> None:
        """Compare an answer with the API description; one that is not relayed has only members that it names."""
        rebuilt = self._dialect != dialect
        media = self.headers["Content-Type"]
        mistakes = mistakes_of(operation, status, media, answered, rebuilt=rebuilt)
        assert not mistakes, "\n".join(mistakes)

    def calls_of(self, vendor: str) -> list[Any]:
        return self.fakes[vendor].calls


@contextmanager
def open_stage(folder: Path, vendors: Mapping[str, Vendor] = ALL, **environment: str) -> Iterator[ContractGateway]:
    """Open a stage that keeps its data and catalogue in `folder`."""

    def settings(**environment_of_settings: str) -> Settings:
        return configuration.load(
            {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(folder / "data")} | environment_of_settings
        )

    with ExitStack() as stack:
        fakes = {name: stack.enter_context(vendor.fake()) for name, vendor in vendors.items()}
        places = {f"LLM_FAKE_{name.upper()}_BASE_URL": fake.url for name, fake in fakes.items()}
        keys = {f"LLM_FAKE_{name.upper()}_API_KEY": vendor.key for name, vendor in vendors.items()}
        catalogue = {
            "GATEWAY_CATALOGUE_PATH": str(write_catalogue(folder / "catalogue", vendors)),
            # Uses beside the model have no price in this catalogue.
            "GATEWAY_ROUTING_UNPRICED_TOOLS": "*",
            "GATEWAY_ROUTING_PROVIDER_OBJECTS": "true",
        }
        gateway = stack.enter_context(local_gateway(settings, **places, **keys, **catalogue, **environment))
        gateway.services.routing.transport.fetch = fetch
        yield ContractGateway(gateway, fakes, vendors)
