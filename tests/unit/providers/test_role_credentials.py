"""Temporary credentials of AWS roles, against a fake of STS and of the metadata services."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.identity_services import OTHER_ROLE, ROLE, Failure, FakeAwsIdentity

from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.errors import IdentityFailed
from gateway.providers.bedrock.signing import read_access_key
from gateway.providers.identities.role_credentials import AwsIdentity, sts_address
from gateway.providers.identities.upstream_identity import IdentityCalls
from gateway.transport import Transport


@pytest.fixture
def aws() -> Iterator[FakeAwsIdentity]:
    with FakeAwsIdentity() as server:
        yield server


@pytest.fixture
def make(aws: FakeAwsIdentity) -> Callable[..., AwsIdentity]:
    """A factory of identities with these variables, whose services are the fake."""

    def identity(**environment: str) -> AwsIdentity:
        hosts = {"AWS_ENDPOINT_URL_STS": aws.address, "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{aws.address}/"}
        transport = Transport(Timeouts(5, 5, 5, 1, 2, 1), Security(False, (), ()))
        return AwsIdentity(IdentityCalls(transport, Clock()), hosts | environment)

    return identity


def key_of(token: Any) -> tuple[str, str, str]:
    key = read_access_key(token.secret)
    return key.ident, key.secret, key.session


def test_instance_role_is_read_with_the_second_version_of_the_service(aws, make):
    token = make().fetch({})
    assert key_of(token) == aws.keys["ASIA-1"] and 3590 < token.lifetime_s <= 3600
    roles = "/latest/meta-data/iam/security-credentials/"
    assert aws.calls == [("PUT", "/latest/api/token"), ("GET", roles), ("GET", f"{roles}gateway-role")]


def test_instance_without_a_role_or_with_a_failure_is_a_clear_error(aws, make):
    aws.role_name = ""
    with pytest.raises(IdentityFailed, match="has no role"):
        make().fetch({})
    aws.role_name = "gateway-role"
    aws._credentials = lambda: {"Code": "AssumeRoleUnauthorizedAccess", "Message": "secret"}
    with pytest.raises(IdentityFailed, match="answered 200 AssumeRoleUnauthorizedAccess") as caught:
        make().fetch({})
    assert "secret" not in str(caught.value)


def test_instance_metadata_can_be_forbidden(aws, make):
    with pytest.raises(IdentityFailed, match="AWS_EC2_METADATA_DISABLED"):
        make(AWS_EC2_METADATA_DISABLED="true").fetch({})
    assert aws.calls == []


def test_container_gives_credentials_for_its_token_file(aws, make, tmp_path: Path):
    (tmp_path / "token").write_text("container-1\n")
    environment = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{aws.address}/v1/credentials"}
    token = make(AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(tmp_path / "token"), **environment).fetch({})
    assert key_of(token) == aws.keys["ASIA-1"]
    assert key_of(make(AWS_CONTAINER_AUTHORIZATION_TOKEN="container-1", **environment).fetch({})) == aws.keys["ASIA-2"]
    with pytest.raises(IdentityFailed, match="answered 401 Unauthorized"):
        make(**environment).fetch({})


@pytest.mark.parametrize("address", ["http://10.0.0.1/x", "http://attacker.example/x", "http://169.254.170.2.nip.io/x"])
def test_container_token_is_not_sent_to_another_host(make, address):
    with pytest.raises(IdentityFailed, match="must be https"):
        make(AWS_CONTAINER_CREDENTIALS_FULL_URI=address, AWS_CONTAINER_AUTHORIZATION_TOKEN="t").fetch({})


@pytest.mark.parametrize("host", ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "localhost", "127.0.0.1"])
def test_container_token_is_sent_to_ecs_eks_and_this_host(host):
    asked: list[tuple[str, str]] = []

    class Calls:
        def fetch(self, place: str, method: str, url: str, headers: dict[str, str]) -> dict[str, Any]:
            asked.append((url, headers["authorization"]))
            raise IdentityFailed("asked")

    environment = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{host}/v1", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "t"}
    with pytest.raises(IdentityFailed, match="asked"):
        AwsIdentity(Calls(), environment).fetch({})
    assert asked == [(f"http://{host}/v1", "t")]


def test_web_identity_is_exchanged_and_read_again_after_its_rotation(aws, make, tmp_path: Path):
    path = tmp_path / "token"
    path.write_text("web-1")
    identity = make(AWS_WEB_IDENTITY_TOKEN_FILE=str(path), AWS_ROLE_ARN=ROLE)
    assert key_of(identity.fetch({"region": "eu-west-1"})) == aws.keys["ASIA-1"]
    aws.tokens = {"web-2"}
    with pytest.raises(IdentityFailed, match="answered 400 ExpiredTokenException") as caught:
        identity.fetch({})
    assert "web-1" not in str(caught.value)
    path.write_text("web-2")
    assert key_of(identity.fetch({})) == aws.keys["ASIA-2"]


def test_another_role_is_denied_by_its_code(make, tmp_path: Path):
    (tmp_path / "token").write_text("web-1")
    with pytest.raises(IdentityFailed, match="answered 403 AccessDenied"):
        make(AWS_WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token"), AWS_ROLE_ARN=f"{ROLE}x").fetch({})
    with pytest.raises(IdentityFailed, match="AWS_ROLE_ARN is needed"):
        make(AWS_WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token")).fetch({})


def test_role_of_the_instance_assumes_another_role(aws, make):
    token = make().fetch({"role_arn": OTHER_ROLE, "external_id": "ext-1"})
    assert key_of(token) == aws.keys["ASIA-2"] and token.source.startswith("assumed role, by")
    with pytest.raises(IdentityFailed, match="AccessDenied"):
        make().fetch({"role_arn": OTHER_ROLE})


def test_odd_answers_are_refused(aws, make):
    aws.script(Failure(200, {}))
    with pytest.raises(IdentityFailed, match="returned no AccessKeyId"):
        make().fetch({})


@pytest.mark.parametrize(
    ("region", "address"),
    [("eu-west-1", "https://sts.eu-west-1.amazonaws.com"), ("cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn")],
)
def test_sts_is_called_in_the_region(region, address):
    assert sts_address(region) == address


@pytest.mark.parametrize(
    ("status", "kind", "rejected"),
    [
        (403, "ExpiredTokenException:http://internal.amazon.com/coral", True),
        (403, "UnrecognizedClientException", True),
        (403, "InvalidClientTokenId", True),
        (403, "AccessDeniedException", False),
        (401, "", True),
        (500, "ExpiredTokenException", False),
    ],
)
def test_only_errors_of_the_key_ask_for_another_key(make, status, kind, rejected):
    reply = type("Reply", (), {"status": status, "headers": {"x-amzn-errortype": kind}})
    assert make().is_rejected(reply) is rejected
