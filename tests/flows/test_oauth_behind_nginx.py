"""Real clients' ways to a token, request by request, through a real nginx with TLS: below a path, and at the root."""

import re
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gevent
import httpx
import pytest
from support.certificates import write_certificate
from support.gateways import GatewayProcess, free_port
from support.oauth import PASSWORD, App, Person, parameters
from support.programs import find_program
from support.shared import Share, Tenant
from support.signed_in_owner import EMAIL

PREFIX = "/llm"
BEGIN = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a client", "version": "1"}},
}
CONFIGURATION = """
worker_processes 1; daemon off; user root; pid {folder}/nginx.pid;
events {{ worker_connections 64; }}
http {{
    access_log off;
    {temporary}
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {certificate};
        ssl_certificate_key {certificate};
        proxy_set_header Host $http_host;
        proxy_set_header X-Forwarded-Proto $scheme;
        proxy_set_header X-Forwarded-For $remote_addr;
        {locations}
    }}
}}
"""
AT_ROOT = "location / {{ proxy_pass {gateway}; }}"
# As docs/mcp.md says it.
BELOW_A_PATH = """
        location /llm/ {{ proxy_pass {gateway}/; }}
        location ~ ^/\\.well-known/(oauth-|openid-).*/llm(/|$) {{ proxy_pass {gateway}; }}
        location / {{ return 404 "<h1>Another site</h1>"; }}"""


@dataclass(frozen=True)
class Walk:
    """How a client finds its way: addresses of the two documents in the order in which it tries them. {base} is the
    origin, {path} the path of the issuer, {mcp} that of the resource; "challenge" the address that the 401 names."""

    name: str
    resource: tuple[str, ...]
    server: tuple[str, ...]
    metadata: dict[str, Any] = field(default_factory=dict)
    back: str = "http://localhost:51234/callback"
    headers: dict[str, str] = field(default_factory=dict)


KNOWN_AT = "{base}/.well-known/"


SDK_RESOURCE = ("challenge", KNOWN_AT + "oauth-protected-resource{mcp}", KNOWN_AT + "oauth-protected-resource")
SDK_SERVER = (
    KNOWN_AT + "oauth-authorization-server{path}",
    KNOWN_AT + "openid-configuration{path}",
    "{base}{path}/.well-known/openid-configuration",
)
# The Rust SDK: the server's document below the resource's path first, then at the root.
RUST_SERVER = (KNOWN_AT + "oauth-authorization-server{mcp}", KNOWN_AT + "oauth-authorization-server")
PUBLIC = {"token_endpoint_auth_method": "none", "response_types": ["code"]}
CODES = {"grant_types": ["authorization_code", "refresh_token"]}
DEVICES = {"grant_types": [*CODES["grant_types"], "urn:ietf:params:oauth:grant-type:device_code"]}
VS_CODE = [
    *("https://insiders.vscode.dev/redirect", "https://vscode.dev/redirect", "http://localhost/", "http://127.0.0.1/"),
    *("http://localhost:33418/", "http://127.0.0.1:33418/"),
]
WALKS = [
    Walk(
        "Claude",
        SDK_RESOURCE,
        SDK_SERVER,
        {**CODES, "token_endpoint_auth_method": "client_secret_post", "scope": "mcp:tools"},
        "https://claude.ai/api/mcp/auth_callback",
    ),
    Walk("Claude Code", SDK_RESOURCE, SDK_SERVER, {**PUBLIC, **CODES}),
    Walk("Cursor", SDK_RESOURCE[1:], SDK_SERVER, {**PUBLIC, **CODES}, "cursor://anysphere.cursor-mcp/oauth/callback"),
    Walk(
        "VS Code",
        SDK_RESOURCE,
        SDK_SERVER,
        {**PUBLIC, **DEVICES, "redirect_uris": VS_CODE},
        "http://127.0.0.1:33418/",
    ),
    Walk(
        "ChatGPT",
        SDK_RESOURCE[1:],
        SDK_SERVER[:2],
        {**CODES, "token_endpoint_auth_method": "client_secret_basic"},
        "https://chatgpt.com/connector_platform_oauth_redirect",
    ),
    Walk("Codex", (), RUST_SERVER, PUBLIC, "http://127.0.0.1:1455/callback", {"MCP-Protocol-Version": "2024-11-05"}),
]


class Front:
    """nginx with TLS before a gateway; `tls` trusts its certificate."""

    def __init__(self, folder: Path, port: int, gateway: str, locations: str) -> None:
        certificate = write_certificate(folder / "front.pem", "localhost")
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        text = CONFIGURATION.format(
            folder=folder,
            port=port,
            certificate=certificate,
            temporary=" ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds),
            locations=locations.format(gateway=gateway),
        )
        (folder / "front.conf").write_text(text)
        self.base = f"https://localhost:{port}"
        self.tls = ssl.create_default_context(cafile=str(certificate))
        command = [
            find_program("nginx", "nginx-light"),
            "-c",
            str(folder / "front.conf"),
            "-e",
            str(folder / "error.log"),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 10
        while True:
            try:
                httpx.get(f"{self.base}/nothing", verify=self.tls, timeout=60)
                return
            except httpx.ConnectError:
                assert time.monotonic() < until and self._process.poll() is None, (folder / "error.log").read_text()
                gevent.sleep(0.05)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


@dataclass
class Place:
    """A gateway as its callers see it."""

    base: str
    person: Person
    tls: ssl.SSLContext


@pytest.fixture(scope="module")
def fronts() -> Iterator[dict[str, Front]]:
    running: dict[str, Front] = {}
    yield running
    for running_gateway in running.values():
        running_gateway.stop()


PORT = free_port()


@pytest.fixture
def below(share: Share, fronts: dict[str, Front], tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Below a path of another site's origin."""
    find_program("nginx", "nginx-light")
    base = f"https://localhost:{PORT}{PREFIX}"
    gateway: Tenant = share.gateway({"GATEWAY_SERVER_PUBLIC_URL": base + "/", "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD})
    gateway.services.store.database.write(lambda: gateway.services.store.database.execute("DELETE FROM attempt"))
    if "below" not in fronts:
        fronts["below"] = Front(tmp_path_factory.mktemp("below"), PORT, gateway.address, BELOW_A_PATH)
    tls = fronts["below"].tls
    return Place(base, Person(base, EMAIL, PASSWORD, tls), tls)


def walk(place: Place, client: Walk) -> None:
    """Everything that the client asks, in its order; each answer is what it needs to go on."""
    own = urlsplit(place.base)
    base, path = f"{own.scheme}://{own.netloc}", own.path
    named = {"base": base, "path": path, "mcp": f"{path}/mcp"}
    both = {"Accept": "application/json, text/event-stream", **client.headers}
    with httpx.Client(verify=place.tls, timeout=20) as web:
        refused = web.post(f"{place.base}/mcp", json=BEGIN, headers=both)
        assert refused.status_code == 401, refused.text
        challenge = re.search(r'resource_metadata="([^"]+)"', refused.headers["www-authenticate"]).group(1)

        def first(addresses: tuple[str, ...]) -> dict[str, Any]:
            for address in addresses:
                where = challenge if address == "challenge" else address.format(**named)
                answer = web.get(where, headers={"Accept": "application/json", **client.headers})
                assert answer.status_code in (200, 404), (where, answer.status_code)
                if answer.status_code == 200:
                    return answer.json()
            raise AssertionError(f"{client.name} found none of {addresses}")

        if client.resource:
            resource = first(client.resource)
            assert resource["resource"] == f"{place.base}/mcp" and resource["authorization_servers"] == [place.base]
        server = first(client.server)
        assert server["issuer"] == place.base and "S256" in server["code_challenge_methods_supported"]
        app = App(
            place.base, place.tls, **{"client_name": client.name, "redirect_uris": [client.back], **client.metadata}
        )
        assert server["registration_endpoint"] == f"{place.base}/oauth/register" and app.answer.status_code == 201
        address = app.address(redirect_uri=client.back, scope="mcp:tools", state=f"of {client.name}")
        assert address.startswith(server["authorization_endpoint"] + "?")
        location = place.person.decide(address)
        redirect = parameters(location)
        assert (
            location.startswith(client.back)
            and redirect["iss"] == place.base
            and redirect["state"] == f"of {client.name}"
        )
        answer = app.exchange(redirect["code"], redirect_uri=client.back, resource=f"{place.base}/mcp")
        assert answer.status_code == 200 and server["token_endpoint"] == str(answer.url), answer.text
        bearer = {**both, "Authorization": f"Bearer {answer.json()['access_token']}"}
        response = web.post(f"{place.base}/mcp", json=BEGIN, headers=bearer)
        assert response.status_code == 200 and response.json()["result"]["serverInfo"]["name"] == "llmgateway"
        listed = web.post(f"{place.base}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=bearer)
        assert len(listed.json()["result"]["tools"]) == 8
        again = app.refresh(answer.json()["refresh_token"])
        assert again.status_code == 200 and again.json()["access_token"] != answer.json()["access_token"]


@pytest.mark.parametrize("client", WALKS, ids=lambda client: client.name)
def test_a_client_gets_a_token_in_one_pass_below_a_path(below: Place, client: Walk) -> None:
    walk(below, client)


def test_behind_tls_at_the_root_no_public_address_needs_to_be_named(
    process: Callable[..., GatewayProcess], tmp_path: Path
) -> None:
    find_program("nginx", "nginx-light")
    gateway = process(GATEWAY_BOOTSTRAP_PASSWORD=PASSWORD)
    front = Front(tmp_path, free_port(), gateway.address, AT_ROOT)
    try:
        for client in WALKS:
            walk(Place(front.base, Person(front.base, EMAIL, PASSWORD, front.tls), front.tls), client)
        # A caller that is not one of our proxies cannot declare TLS, and any page may read the documents.
        with httpx.Client(verify=front.tls, timeout=60) as web:
            for path in ("oauth-protected-resource/mcp", "oauth-authorization-server", "openid-configuration"):
                page = {"Origin": "https://inspector.example"}
                answer = web.get(f"{front.base}/.well-known/{path}", headers=page)
                assert answer.headers["access-control-allow-origin"] == "*" and answer.status_code == 200
                headers = {**page, "Access-Control-Request-Method": "GET"}
                assert web.options(f"{front.base}/.well-known/{path}", headers=headers).status_code == 204
            assert web.get(f"{front.base}/.well-known/oauth-authorization-server/elsewhere").status_code == 404
    finally:
        front.stop()
