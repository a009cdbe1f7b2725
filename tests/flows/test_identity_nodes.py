"""Changes of people, service accounts and workload identities on every worker of two nodes (PostgreSQL, Redis)."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import requests
import websockets.sync.client
from fakes.issuer import FakeIssuer
from support import postgres
from support.fleet import open_nodes
from support.gateways import GatewayProcess
from support.issuers import Issuer, make_key
from support.scim_client import IdentityProvider
from support.signed_in_owner import PASSWORD, SignedInOwner
from support.spending import until
from support.worker_connections import Line, open_lines

from gateway.accounts.sessions import PREFIX

NODES = WORKERS = 2
EVERY = NODES * WORKERS
PATIENCE_S = 60
RESOURCE = "https://llm.example"
BODY = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ADA, ADAS = "ada@corp.example", "a long enough one"
OFF = {"op": "Replace", "path": "active", "value": "False"}


class Cluster:
    """Two nodes of two workers, an owner and an identity provider at the first, and a connection to each worker."""

    def __init__(self, nodes: list[GatewayProcess]) -> None:
        self.nodes = nodes
        self.owner = SignedInOwner(nodes[0].address)
        self.organization = self.owner("GET", "/orgs")["organizations"][0]["id"]
        self.project = self.owner("GET", f"/orgs/{self.organization}/projects")["projects"][0]["id"]
        scim_token = self.owner("POST", f"/orgs/{self.organization}/scim/tokens", {"name": "Entra ID"})["token"]
        self.provider = IdentityProvider(nodes[0].address, scim_token["token"])
        self.lines: list[Line] = [line for node in nodes for line in open_lines(node)]

    def invite(self, email: str) -> "Person":
        """Let a person join by an invitation."""
        path = f"/orgs/{self.organization}/invitations"
        invitation = self.owner("POST", path, {"email": email, "role": "developer"})["invitation"]["token"]
        body = {"token": invitation, "password": ADAS, "name": "Ada"}
        web = requests.post(f"{self.nodes[1].address}/auth/sign-up/email", json=body, timeout=PATIENCE_S)
        assert web.status_code == 200, web.text
        return Person(self, web.json()["token"])


class Person:
    """A member with a session, an API key and an access token of the key."""

    def __init__(self, cluster: Cluster, session: str) -> None:
        self._cluster = cluster
        self.session = session
        key = {"description": "Ada's", "projectId": cluster.project}
        self.key: str = self.call("POST", "/keys/api", session, key)["apiKey"]["token"]
        grant = "client_credentials"
        registered = self.call("POST", "/oauth/register", self.key, {"client_name": "Editor", "grant_types": [grant]})
        secret = {"client_id": registered["client_id"], "client_secret": registered["client_secret"]}
        self.access: str = self.call("POST", "/oauth/token", "", {"grant_type": grant, **secret})["access_token"]

    def call(self, method: str, path: str, token: str, body: Any = None, node: int = 0) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = self._cluster.nodes[node].address + path
        answer = requests.request(method, url, json=body, headers=headers, timeout=PATIENCE_S)
        assert answer.status_code < 300, (path, answer.status_code, answer.text)
        return answer.json()

    def statuses(self, path: str, body: dict[str, Any], token: str) -> set[int]:
        """Return the statuses that all workers answer."""
        return {line.post(path, body, token)[0] for line in self._cluster.lines}

    def session_statuses(self) -> set[int]:
        headers = {"Authorization": f"Bearer {self.session}"}
        addresses = [node.address for node in self._cluster.nodes]
        return {
            requests.get(f"{address}/user/me", headers=headers, timeout=PATIENCE_S).status_code for address in addresses
        }


@pytest.fixture(scope="module")
def cluster(
    postgres_databases: postgres.Databases, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    environment = {"REDIS_URL": redis_url, "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
    environment["GATEWAY_SERVER_PUBLIC_URL"] = RESOURCE  # access tokens are issued for one address
    environment["GATEWAY_ALLOW_PRIVATE_UPSTREAMS"] = "true"  # issuers of the test
    folder = tmp_path_factory.mktemp("nodes")
    with open_nodes(postgres_databases, folder, NODES, WORKERS, **environment) as nodes:
        yield Cluster(nodes)


def open_sockets(cluster: Cluster, person: Person, stack: ExitStack) -> list[Any]:
    """Open realtime sessions and WebSockets of /v1/responses at both nodes, more than each has workers."""
    sockets = []
    for node in cluster.nodes:
        address = node.address.replace("http", "ws", 1)
        for path in ("/v1/realtime?model=sandbox-realtime", "/v1/responses") * 4:
            headers = {"Authorization": f"Bearer {person.key}"}
            socket = websockets.sync.client.connect(
                address + path, additional_headers=headers, open_timeout=PATIENCE_S, close_timeout=PATIENCE_S
            )
            sockets.append(stack.enter_context(socket))
            if "realtime" in path:
                assert json.loads(socket.recv(PATIENCE_S))["type"] == "session.created"
    return sockets


def last_error(socket: Any) -> str:
    """Return the code of the last error before the gateway closes a socket."""
    code = ""
    with suppress(websockets.ConnectionClosed):
        while True:
            event = json.loads(socket.recv(PATIENCE_S))
            code = event.get("error", {}).get("code", code)
    return code


def test_a_deactivation_ends_keys_tokens_sign_ins_and_open_sessions_everywhere(cluster: Cluster) -> None:
    ada = cluster.invite(ADA)
    (listed,) = cluster.provider.find("Users", f'userName eq "{ADA}"')
    assert ada.session.startswith(PREFIX) and ada.session_statuses() == {200}
    assert ada.statuses("/v1/chat/completions", BODY, ada.key) == {200}
    assert ada.statuses("/mcp", PING, ada.access) == {200}
    with ExitStack() as stack:
        sockets = open_sockets(cluster, ada, stack)
        assert cluster.provider.patch(f"/Users/{listed['id']}", OFF)["active"] is False
        assert ada.statuses("/v1/chat/completions", BODY, ada.key) == {401}
        assert ada.statuses("/mcp", PING, ada.access) == {401}
        assert ada.session_statuses() == {401}
        assert {last_error(socket) for socket in sockets} == {"invalid_api_key"}
    cluster.provider.patch(f"/Users/{listed['id']}", {"op": "Replace", "path": "active", "value": "True"})
    assert ada.statuses("/v1/chat/completions", BODY, ada.key) == {200}
    assert ada.statuses("/mcp", PING, ada.access) == {401}
    cluster.provider("DELETE", f"/Users/{listed['id']}")
    assert ada.statuses("/v1/chat/completions", BODY, ada.key) == {401}


def test_a_revoked_token_is_refused_by_every_worker(cluster: Cluster) -> None:
    path = f"/orgs/{cluster.organization}/scim/tokens"
    token = cluster.owner("POST", path, {"name": "Short-lived"})["token"]
    search = ("/scim/v2/Users/.search", {"count": 1}, token["token"])
    assert {line.post(*search)[0] for line in cluster.lines} == {200}
    cluster.owner("DELETE", f"{path}/{token['id']}")
    assert {line.post(*search)[0] for line in cluster.lines} == {401}


def read_keys(cluster: Cluster, token: str) -> set[int]:
    """Return the statuses of all workers for an operation that requires keys:read."""
    return {line.get("/keys/api", token) for line in cluster.lines}


def test_a_service_account_loses_its_scope_and_its_token_on_every_worker(cluster: Cluster) -> None:
    path = f"/orgs/{cluster.organization}/service-accounts"
    service_account = cluster.owner("POST", path, {"name": "Terraform", "scopes": ["keys:read"]})["serviceAccount"]
    own = f"{path}/{service_account['id']}"
    second = SignedInOwner(cluster.nodes[1].address)
    assert read_keys(cluster, service_account["token"]) == {200}
    cluster.owner("PATCH", own, {"scopes": ["usage:read"]})
    assert read_keys(cluster, service_account["token"]) == {403}
    second("PATCH", own, {"scopes": ["keys:read"]})
    assert read_keys(cluster, service_account["token"]) == {200}
    rolled = second("POST", f"{own}/roll", {})["serviceAccount"]
    assert (read_keys(cluster, service_account["token"]), read_keys(cluster, rolled["token"])) == ({401}, {200})
    cluster.owner("PATCH", own, {"status": "inactive"})
    assert read_keys(cluster, rolled["token"]) == {401}
    second("PATCH", own, {"status": "active"})
    assert read_keys(cluster, rolled["token"]) == {200}
    second("DELETE", own)
    assert read_keys(cluster, rolled["token"]) == {401}


def test_a_workload_identity_changes_and_ends_on_every_worker(cluster: Cluster) -> None:
    issuer = Issuer("https://issuer.example", make_key("one"))
    path = f"/orgs/{cluster.organization}/workload-identities"
    body = {
        "name": "Deployments",
        "projectId": cluster.project,
        "issuer": issuer.url,
        "audience": "gateway",
        "claims": {"sub": "repo:acme/*"},
        "jwks": issuer.key_set(),
    }
    identity = cluster.owner("POST", path, body)["workloadIdentity"]
    own = f"{path}/{identity['id']}"
    token = issuer.sign({"aud": "gateway", "sub": "repo:acme/app", "exp": int(time.time()) + 600})

    def statuses() -> set[int]:
        return {line.post("/v1/chat/completions", BODY, token)[0] for line in cluster.lines}

    second = SignedInOwner(cluster.nodes[1].address)
    assert statuses() == {200}
    second("PATCH", own, {"claims": {"sub": "repo:other/*"}})
    assert statuses() == {401}
    cluster.owner("PATCH", own, {"claims": {"sub": "repo:acme/*"}})
    assert statuses() == {200}
    cluster.owner("PATCH", own, {"jwks": Issuer(issuer.url, make_key("one")).key_set()})
    assert statuses() == {401}
    cluster.owner("PATCH", own, {"jwks": issuer.key_set()})
    second("PATCH", own, {"status": "inactive"})
    assert statuses() == {401}
    second("PATCH", own, {"status": "active"})
    assert statuses() == {200}
    second("PATCH", f"/keys/api/{identity['apiKeyId']}", {"status": "inactive"})
    assert statuses() == {401}
    second("PATCH", f"/keys/api/{identity['apiKeyId']}", {"status": "active"})
    assert statuses() == {200}
    second("DELETE", own)
    assert statuses() == {401}


@pytest.mark.extended
def test_new_keys_of_an_issuer_are_loaded_by_every_worker(cluster: Cluster) -> None:
    with FakeIssuer() as issuer:
        path = f"/orgs/{cluster.organization}/workload-identities"
        body = {
            "name": "Deployments",
            "projectId": cluster.project,
            "issuer": issuer.address,
            "audience": "gateway",
            "claims": {"sub": "repo:acme/*"},
        }
        own = f"{path}/{cluster.owner('POST', path, body)['workloadIdentity']['id']}"

        def statuses(token: str) -> set[int]:
            return {line.post("/v1/chat/completions", BODY, token)[0] for line in cluster.lines}

        def sign(number: int) -> str:
            claims = {"aud": "gateway", "sub": f"repo:acme/{number}", "exp": int(time.time()) + 600}
            return issuer.provider.sign(claims)

        first, unused = sign(1), sign(2)
        assert statuses(first) == {200}
        issuer.key = make_key("two")
        second = sign(3)
        assert until(lambda: statuses(second) == {200}, PATIENCE_S)
        assert statuses(unused) == {401}
        SignedInOwner(cluster.nodes[1].address)("DELETE", own)
        assert statuses(first) == statuses(second) == {401}
