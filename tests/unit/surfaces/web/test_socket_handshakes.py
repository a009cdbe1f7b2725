import pytest

from gateway.errors import InvalidRequest
from gateway.surfaces.web.socket_handshakes import check_query


def test_a_credential_in_the_address_of_a_socket_is_refused() -> None:
    """Addresses are kept in logs and histories."""
    for name in ("token", "api_key", "client_secret"):
        with pytest.raises(InvalidRequest) as caught:
            check_query({"model": "m", name: "secret"})
        assert (caught.value.code, caught.value.param) == ("credential_in_query", name)
        assert "secret" not in caught.value.message.replace("client_secret", "")
    check_query({"model": "m"})
