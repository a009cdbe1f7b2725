import random
from datetime import UTC, datetime

import pytest
from fakes.bedrock_checks import ACCESS, expected_signature

from gateway.providers.bedrock.signing import AccessKey, CredentialScope, host_of, read_access_key, sign

KEY = AccessKey(*ACCESS)
AT = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)
SCOPE = CredentialScope("eu-west-1", "bedrock", AT)


def signed(url: str, headers: dict | None = None, body: bytes = b"{}", key: AccessKey = KEY) -> dict[str, str]:
    return sign("POST", url, headers or {"content-type": "application/json"}, body, key, SCOPE)


def by_the_vendor(url: str, headers: dict, body: bytes = b"{}") -> str:
    return expected_signature("POST", url, {**headers, "host": host_of(url)}, body)


@pytest.mark.parametrize(
    "url",
    [
        "https://bedrock-runtime.eu-west-1.amazonaws.com/model/anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse",
        "https://h.example/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Fx/converse-stream",
        "http://127.0.0.1:8080/model/m/converse",
        "https://h.example:443/a~b/c%20d?b=2&a=1&a=0&flag",
        "https://h.example",
    ],
)
def test_signature_is_the_one_that_the_vendors_signer_computes(url):
    headers = signed(url)
    assert headers["authorization"] == by_the_vendor(url, headers)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://h.example:443/x", "h.example"),
        ("http://h.example:80/x", "h.example"),
        ("https://h.example:80/x", "h.example:80"),
        ("https://[::1]:8443/x", "[::1]:8443"),
    ],
)
def test_the_signed_host_has_no_port_that_its_scheme_implies(url: str, host: str) -> None:
    assert host_of(url) == host


def test_signatures_of_many_odd_requests_are_the_vendors():
    dice = random.Random(20260131)
    letters = "abcXYZ019-_.~:/ +%éß"
    for _ in range(200):
        text = "".join(dice.choices(letters, k=dice.randint(1, 40)))
        body = text.encode() * dice.randint(0, 30)
        headers = {"content-type": "application/json", "x-amz-meta": f"  {text.strip()}  {text.count('a')} "}
        ready = signed(
            "https://h.example/model/m%3A0/converse",
            {k: v.encode().decode("latin-1") for k, v in headers.items()},
            body,
        )
        assert ready["authorization"] == by_the_vendor("https://h.example/model/m%3A0/converse", ready, body)


def test_temporary_credentials_send_and_sign_their_session_token():
    headers = signed("https://h.example/x")
    assert headers["x-amz-security-token"] == ACCESS[2]
    assert "x-amz-security-token" in headers["authorization"]
    assert "x-amz-security-token" not in signed("https://h.example/x", key=AccessKey(*ACCESS[:2]))


def test_another_body_another_signature():
    url = "https://h.example/x"
    assert signed(url, body=b"a")["authorization"] != signed(url, body=b"b")["authorization"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("AKIA1:secret/with+signs=", ("AKIA1", "secret/with+signs=", "")),
        ("ASIA1:secret:token", ("ASIA1", "secret", "token")),
        ("AKIA1:secret:", ("AKIA1", "secret", "")),
        ("ABSKQmVkcm9j", None),
        ("AKIA1:", None),
        ("a:b:c:d", None),
    ],
)
def test_access_keys_are_distinguished_from_api_keys(text, parts):
    key = read_access_key(text)
    assert (key and (key.ident, key.secret, key.session)) == parts


def test_secrets_of_a_key_are_not_in_its_text():
    assert ACCESS[1] not in repr(KEY) and ACCESS[2] not in repr(KEY)
