import pytest

from gateway.errors import IdentityFailed
from gateway.providers.identities.upstream_identity import refusal, seconds_in
from gateway.transport.upstream_responses import Answer


@pytest.mark.parametrize("given", ["nan", "inf", "-inf", "soon", None, [1]])
def test_a_lifetime_is_a_finite_number(given: object) -> None:
    with pytest.raises(IdentityFailed, match="returned no expires_in"):
        seconds_in("token service", {"expires_in": given}, "expires_in")
    assert seconds_in("token service", {"expires_in": "3599"}, "expires_in") == 3599.0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"error": "invalid_grant", "error_description": "secret"}', "invalid_grant"),
        (b'{"Code": "AssumeRoleUnauthorizedAccess", "Message": "secret"}', "AssumeRoleUnauthorizedAccess"),
        (b'{"code": "AccessDeniedException", "message": "secret"}', "AccessDeniedException"),
        (b'{"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "secret"}}', "PERMISSION_DENIED"),
        (b'{"error": "invalid_client", "error_codes": [7000215]}', "AADSTS7000215"),
        (b"secret", ""),
    ],
)
def test_a_refusal_is_named_by_its_code_alone(body: bytes, code: str) -> None:
    error = refusal("token service", Answer(403, {}, body))
    assert error.message == f"The token service answered 403{f' {code}' if code else ''}."
