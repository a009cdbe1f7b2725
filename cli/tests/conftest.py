from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from harness.fake_agents import FakeAgents
from harness.fake_service import FakeService
from support.shared import ModuleShare, Share

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def module_share(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleShare]:
    shared = ModuleShare(tmp_path_factory.mktemp)
    yield shared
    shared.close()


@pytest.fixture
def share(module_share: ModuleShare, request: pytest.FixtureRequest) -> Share:
    """Gateways that are started once for the module: share.gateway({…})."""
    return Share(module_share, request.node.nodeid)


@pytest.fixture
def account(share: Share) -> Account:
    """A new organization with credits on the module's gateway, which has the sandbox's models; its owner's session."""
    return Account(share.gateway({"GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}))


@pytest.fixture
def signed_out(account: Account, tmp_path: Path) -> Client:
    """A client that knows the gateway's address only."""
    return Client(tmp_path / "home", {"LLMGATEWAY_API_URL": account.address})


@pytest.fixture
def client(account: Account, signed_out: Client) -> Client:
    """A client that is signed in as the organization's owner."""
    signed_out.configure(sessionToken=account.token, sessionApiUrl=account.address, sessionEmail=account.email)
    return signed_out


@pytest.fixture
def user(account: Account, signed_out: Client) -> Client:
    """A client with an API key in the environment."""
    signed_out.environment["LLMGATEWAY_API_KEY"] = account.key
    return signed_out


@pytest.fixture
def agents(tmp_path: Path) -> FakeAgents:
    return FakeAgents(tmp_path / "programs")


@pytest.fixture
def service() -> Iterator[FakeService]:
    """A compatible service on another port and path."""
    with FakeService() as running:
        yield running


@pytest.fixture
def service_client(service: FakeService, tmp_path: Path) -> Client:
    """A client that is signed in at the fake service."""
    client = Client(tmp_path / "home", {"LLMGATEWAY_API_URL": service.url})
    client.configure(sessionToken="secret-session", sessionApiUrl=service.url, sessionEmail="al@example.com")
    return client
