"""Application Default Credentials of the host, against fakes of Google's services."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.identity_services import ACCOUNT, AWS_TOKEN, Failure, FakeAwsIdentity, FakeGoogleIdentity

from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.errors import IdentityFailed
from gateway.providers.identities import upstream_identity
from gateway.providers.identities.google_credentials import GoogleIdentity
from gateway.providers.identities.upstream_identity import IdentityCalls
from gateway.transport import Transport


@pytest.fixture
def google() -> Iterator[FakeGoogleIdentity]:
    with FakeGoogleIdentity() as server:
        yield server


@pytest.fixture
def make() -> Callable[..., GoogleIdentity]:
    """A factory of identities with these variables. Private addresses are forbidden for all other calls."""

    def identity(**environment: str) -> GoogleIdentity:
        transport = Transport(Timeouts(5, 5, 5, 1, 2, 1), Security(False, (), ()))
        return GoogleIdentity(IdentityCalls(transport, Clock()), environment)

    return identity


@pytest.fixture
def federated(make, tmp_path: Path) -> Callable[..., GoogleIdentity]:
    """A factory of identities with a configuration file of these values."""

    def identity(values: dict, **environment: str) -> GoogleIdentity:
        path = tmp_path / "credentials.json"
        path.write_text(json.dumps(values))
        return make(GOOGLE_APPLICATION_CREDENTIALS=str(path), **environment)

    return identity


def test_metadata_server_gives_a_token_and_the_project(google, make):
    identity = make(GCE_METADATA_HOST=google.host)
    token = identity.fetch({})
    assert (token.secret, token.lifetime_s, dict(token.settings)) == (google.issued[0], 3600, {"project": "acme"})
    assert identity.fetch({}).secret == google.issued[1]
    assert [path for _, path in google.calls].count("/computeMetadata/v1/project/project-id") == 1
    assert google.problems == []


def test_another_server_at_the_address_of_the_metadata_server_is_refused(google, make):
    google.answer = lambda *given: ({"access_token": "stolen", "expires_in": 3600}, ())
    with pytest.raises(IdentityFailed, match="another server uses its address"):
        make(GCE_METADATA_HOST=google.host).fetch({})


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (Failure(500, {}), "answered 500"),
        (Failure(404, "not found"), "answered 404"),
        (Failure(403, {"error": "access_denied"}), "answered 403 access_denied"),
        (Failure(403, {"error": "the token ya29.secret"}), "answered 403."),
    ],
)
def test_failures_of_the_metadata_server_show_status_and_code(google, make, failure, text):
    google.script(failure)
    with pytest.raises(IdentityFailed, match=text) as caught:
        make(GCE_METADATA_HOST=google.host).fetch({})
    assert "ya29" not in str(caught.value) and google.host not in str(caught.value)


def test_slow_metadata_server_is_not_waited_for(google, make, monkeypatch):
    monkeypatch.setattr(upstream_identity, "CALL_TIMEOUT_S", 0.05)
    google.script(Failure(silence_s=30))
    with pytest.raises(IdentityFailed, match="did not answer"):
        make(GCE_METADATA_HOST=google.host).fetch({})


def test_absent_metadata_server_is_a_clear_error(make):
    with pytest.raises(IdentityFailed, match="The Google metadata server did not answer"):
        make(GCE_METADATA_HOST="127.0.0.1:1").fetch({})


@pytest.mark.parametrize("answer", [{}, {"access_token": "x"}, {"access_token": "a\nb", "expires_in": 1}, [], "text"])
def test_odd_answers_of_the_metadata_server_are_refused(google, make, answer):
    google.answer = lambda *given: (answer, (("Metadata-Flavor", "Google"),))
    with pytest.raises(IdentityFailed):
        make(GCE_METADATA_HOST=google.host).fetch({})


def test_token_file_is_exchanged_and_read_again_after_its_rotation(google, federated, tmp_path):
    path = tmp_path / "token"
    path.write_text("subject-1\n")
    identity = federated(google.federation(credential_source={"file": str(path)}))
    assert identity.fetch({}).secret == google.issued[0]
    google.subjects = {"subject-2"}
    with pytest.raises(IdentityFailed, match="answered 400 invalid_grant") as caught:
        identity.fetch({})
    assert "subject" not in str(caught.value)
    path.write_text("subject-2")
    assert identity.fetch({}).secret == google.issued[1]


def test_wrong_audience_is_reported_by_its_code(google, federated, tmp_path):
    (tmp_path / "token").write_text("subject-1")
    source = {"file": str(tmp_path / "token")}
    with pytest.raises(IdentityFailed, match="Security Token Service answered 400 invalid_target"):
        federated(google.federation(audience="//iam.googleapis.com/other", credential_source=source)).fetch({})


def test_json_at_a_url_is_a_subject_token(google, federated):
    form = {"type": "json", "subject_token_field_name": "access_token"}
    source = {"url": f"{google.address}/subject", "headers": {"Metadata": "true"}, "format": form}
    token = federated(google.federation(credential_source=source)).fetch({})
    assert token.secret == google.issued[0] and "URL" in token.source


def test_federated_token_is_exchanged_for_one_of_a_service_account(google, federated, tmp_path):
    (tmp_path / "token").write_text("subject-1")
    values = google.federation(
        credential_source={"file": str(tmp_path / "token")},
        service_account_impersonation_url=google.impersonation_url,
        quota_project_id="billing",
    )
    token = federated(values).fetch({})
    assert token.secret == google.issued[1] and 3590 < token.lifetime_s <= 3600
    assert dict(token.settings) == {"project": "billing"} and dict(token.headers) == {"x-goog-user-project": "billing"}
    assert ACCOUNT not in token.source


@pytest.mark.parametrize("region", ["eu-west-1", ""])
def test_role_of_aws_is_a_subject_token(google, federated, region):
    with FakeAwsIdentity() as aws:
        google.aws = aws
        source = {
            "environment_id": "aws1",
            "region_url": f"{aws.address}/latest/meta-data/placement/availability-zone",
            "url": f"{aws.address}/latest/meta-data/iam/security-credentials",
            "imdsv2_session_token_url": f"{aws.address}/latest/api/token",
            "regional_cred_verification_url": (
                "https://sts.{region}.amazonaws.com?Action=GetCallerIdentity&Version=2011-06-15"
            ),
        }
        values = google.federation(subject_token_type=AWS_TOKEN, credential_source=source)
        environment = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": aws.address, "AWS_REGION": region}
        assert federated(values, **environment).fetch({}).secret == google.issued[0]
        assert aws.problems == google.problems == []


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"type": "external_account"}, "credential_source"),
        ({"type": "external_account", "credential_source": {"executable": {"command": "/bin/sh"}}}, "needs one of"),
        ({"type": "external_account", "credential_source": {"file": "/missing"}}, "credential_source cannot be read"),
        ({"type": "external_account", "credential_source": {"url": "file:///etc/passwd"}}, "is invalid"),
        ({"type": "gdch_service_account"}, "not supported"),
        ({}, "not supported"),
        ([], "JSON object"),
    ],
)
def test_unusable_files_are_refused_with_the_reason(federated, values, text):
    with pytest.raises(IdentityFailed, match=text):
        federated(values).fetch({})


def test_missing_file_is_an_error_and_no_other_source_is_tried(google, make):
    identity = make(GOOGLE_APPLICATION_CREDENTIALS="/missing/file", GCE_METADATA_HOST=google.host)
    with pytest.raises(IdentityFailed, match="GOOGLE_APPLICATION_CREDENTIALS cannot be read") as caught:
        identity.fetch({})
    assert google.calls == [] and "/missing" not in str(caught.value)


def test_service_account_file_is_passed_to_the_exchange_of_keys(federated):
    values = {"type": "service_account", "project_id": "acme", "client_email": ACCOUNT, "private_key": "…"}
    token = federated(values).fetch({})
    assert json.loads(token.secret) == values and dict(token.settings) == {"project": "acme"}


def test_file_of_gcloud_comes_before_the_metadata_server(google, make, tmp_path):
    values = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}
    (tmp_path / "application_default_credentials.json").write_text(json.dumps(values))
    identity = make(CLOUDSDK_CONFIG=str(tmp_path), GCE_METADATA_HOST=google.host)
    forms = []

    def fetch(place, method, url, headers, body):
        forms.append((url, body))
        return {"access_token": "user-token", "expires_in": 3599}

    identity._calls = type("Calls", (), {"fetch": staticmethod(fetch)})
    assert identity.fetch({}).secret == "user-token"
    expected = b"grant_type=refresh_token&client_id=i&client_secret=s&refresh_token=r"
    assert forms == [("https://oauth2.googleapis.com/token", expected)] and google.calls == []
