"""Pages that are shown when a request fails."""

from typing import Any

import pytest

from gateway.errors import Forbidden, GatewayError, Gone, NotFound, RateLimited, Unauthenticated, Unavailable
from gateway.surfaces.console.visits import as_page
from gateway.surfaces.web.http import Inbound, Outbound


@pytest.mark.parametrize("kind", [Unauthenticated, Forbidden, NotFound, Gone, RateLimited, Unavailable])
def test_the_page_of_an_error_has_a_title_of_its_own(kind: type[GatewayError]) -> None:
    def view(services: Any, inbound: Inbound) -> Outbound:
        raise kind("It failed.")

    services: Any = None
    answer = as_page(view)(services, Inbound("GET", "/console/keys", {}))
    assert answer.status == kind.status and isinstance(answer.body, bytes)
    assert b"It failed." in answer.body and b"Something went wrong" not in answer.body


def test_the_page_of_a_rate_limit_says_when_to_try_again() -> None:
    def view(services: Any, inbound: Inbound) -> Outbound:
        raise RateLimited("Too many.", retry_after=7.2)

    services: Any = None
    answer = as_page(view)(services, Inbound("GET", "/console/keys", {}))
    assert dict(answer.headers)["Retry-After"] == "8"
