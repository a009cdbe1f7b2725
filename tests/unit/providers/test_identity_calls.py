import pytest

from gateway.errors import IdentityFailed
from gateway.providers.identities.identity_calls import seconds_in


@pytest.mark.parametrize("given", ["nan", "inf", "-inf", "soon", None, [1]])
def test_a_lifetime_is_a_finite_number(given: object) -> None:
    with pytest.raises(IdentityFailed, match="returned no expires_in"):
        seconds_in("token service", {"expires_in": given}, "expires_in")
    assert seconds_in("token service", {"expires_in": "3599"}, "expires_in") == 3599.0
