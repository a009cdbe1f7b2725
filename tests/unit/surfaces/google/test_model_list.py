"""The list of models in the format of Gemini."""

import pytest

from gateway.surfaces.google.model_list import METHODS, shows_itself
from gateway.surfaces.google.routes import SURFACE
from gateway.surfaces.web.http import Inbound


def test_a_model_is_listed_with_the_methods_that_are_served() -> None:
    served = {operation.path.rpartition(":")[2] for operation in SURFACE.operations if operation.method == "POST"}
    assert {method for methods in METHODS.values() for method in methods} == served


@pytest.mark.parametrize("header", ["x-goog-api-key", "x-goog-api-client"])
def test_clients_of_the_format_are_recognized_by_their_headers(header: str) -> None:
    assert shows_itself(Inbound("GET", "/v1/models", {header: "x"}))
    assert not shows_itself(Inbound("GET", "/v1/models", {"authorization": "Bearer x"}))
