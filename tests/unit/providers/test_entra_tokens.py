"""Tokens of Microsoft Entra, against a fake of its token endpoint and of managed identities."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.identity_services import CLIENT, TENANT, Failure, FakeEntra

from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.errors import IdentityFailed
from gateway.providers.identities.entra_tokens import EntraIdentity
from gateway.providers.identities.upstream_identity import IdentityCalls
from gateway.transport import Transport


@pytest.fixture
def entra() -> Iterator[FakeEntra]:
    with FakeEntra() as server:
        yield server


@pytest.fixture
def make(entra: FakeEntra) -> Callable[..., EntraIdentity]:
    """A factory of identities with these variables, whose services are the fake."""

    def identity(**environment: str) -> EntraIdentity:
        hosts = {"AZURE_AUTHORITY_HOST": f"{entra.address}/", "AZURE_POD_IDENTITY_AUTHORITY_HOST": entra.address}
        transport = Transport(Timeouts(5, 5, 5, 1, 2, 1), Security(False, (), ()))
        return EntraIdentity(IdentityCalls(transport, Clock()), hosts | environment)

    return identity


@pytest.fixture
def workload(make, tmp_path: Path) -> EntraIdentity:
    """An identity with the variables that the webhook of AKS sets."""
    (tmp_path / "token").write_text("federated-1")
    path = str(tmp_path / "token")
    return make(AZURE_FEDERATED_TOKEN_FILE=path, AZURE_CLIENT_ID=CLIENT, AZURE_TENANT_ID=TENANT)


def test_federated_token_is_exchanged_and_read_again_after_its_rotation(entra, workload, tmp_path):
    token = workload.fetch({})
    assert (token.secret, token.lifetime_s) == (entra.issued[0], 3600)
    entra.assertions = {"federated-2"}
    with pytest.raises(IdentityFailed, match="Entra token service answered 401 AADSTS700024") as caught:
        workload.fetch({})
    assert "federated" not in str(caught.value)
    (tmp_path / "token").write_text("federated-2\n")
    assert workload.fetch({}).secret == entra.issued[1]


def test_client_secret_comes_before_the_other_sources(entra, make):
    names = {"AZURE_CLIENT_ID": CLIENT, "AZURE_TENANT_ID": TENANT, "AZURE_FEDERATED_TOKEN_FILE": "/missing"}
    assert make(AZURE_CLIENT_SECRET=entra.secret, **names).fetch({}).secret == entra.issued[0]
    with pytest.raises(IdentityFailed, match="AADSTS7000215"):
        make(AZURE_CLIENT_SECRET="wrong", **names).fetch({})


def test_unknown_application_is_reported_by_its_code(entra, make):
    with pytest.raises(IdentityFailed, match="answered 400 AADSTS700016"):
        make(AZURE_CLIENT_SECRET=entra.secret, AZURE_CLIENT_ID="other", AZURE_TENANT_ID=TENANT).fetch({})


@pytest.mark.parametrize("client", [CLIENT, ""])
def test_virtual_machine_gives_a_token_of_its_managed_identity(entra, make, client):
    token = make(AZURE_CLIENT_ID=client).fetch({})
    assert (token.secret, token.lifetime_s) == (entra.issued[0], 3600)
    assert entra.calls == [("GET", "/metadata/identity/oauth2/token")] and entra.problems == []


def test_busy_managed_identity_service_is_called_again(entra, make):
    for status in (404, 410, 429, 500):  # those that Azure documents as temporary
        entra.script(Failure(status, {}))
        assert make().fetch({}).secret == entra.issued[-1], status
    entra.script(Failure(500, {}), Failure(500, {}))
    with pytest.raises(IdentityFailed, match="managed identity service of Azure answered 500"):
        make().fetch({})


def test_machine_without_the_identity_is_a_clear_error(make):
    with pytest.raises(IdentityFailed, match="answered 400 invalid_request"):
        make(AZURE_CLIENT_ID="another").fetch({})


def test_app_service_gives_a_token_with_its_header(entra, make):
    environment = {"IDENTITY_ENDPOINT": f"{entra.address}/msi/token"}
    token = make(IDENTITY_HEADER=entra.identity_header, **environment).fetch({})
    assert token.secret == entra.issued[0] and 3590 < token.lifetime_s <= 3600
    with pytest.raises(IdentityFailed, match="answered 401"):
        make(IDENTITY_HEADER="wrong", **environment).fetch({})


def test_another_scope_of_the_provider_is_used(entra, make):
    with pytest.raises(IdentityFailed, match="invalid_resource"):
        make().fetch({"token_scope": "https://ai.azure.com/.default"})


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"AZURE_FEDERATED_TOKEN_FILE": "/missing"}, "AZURE_FEDERATED_TOKEN_FILE cannot be read"),
        ({"AZURE_CLIENT_SECRET": "s"}, "AZURE_CLIENT_ID and AZURE_TENANT_ID are needed with AZURE_CLIENT_SECRET"),
    ],
)
def test_incomplete_variables_are_named(make, environment, text):
    with pytest.raises(IdentityFailed, match=text):
        make(**environment).fetch({})


@pytest.mark.parametrize("content", ["", "two\nlines", "\x00", "ü"])
def test_file_without_a_token_is_refused(make, tmp_path, content):
    (tmp_path / "token").write_text(content)
    names = {"AZURE_CLIENT_ID": CLIENT, "AZURE_TENANT_ID": TENANT}
    with pytest.raises(IdentityFailed, match="AZURE_FEDERATED_TOKEN_FILE"):
        make(AZURE_FEDERATED_TOKEN_FILE=str(tmp_path / "token"), **names).fetch({})
