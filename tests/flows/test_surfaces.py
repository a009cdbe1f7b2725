"""A surface is one folder: what it states in its table is all that the rest of the product needs to know of it."""

from urllib.error import HTTPError
from urllib.request import Request, urlopen

import orjson
import pytest
from support.gateways import local_gateway

from gateway.errors import InvalidRequest
from gateway.surfaces import model_surfaces, surface_table
from gateway.surfaces.description.openapi import describe
from gateway.surfaces.web.http import ErrorFormat, Operation, Outbound, Surface
from gateway.surfaces.web.http_responses import json_reply

TOY_ERRORS = ErrorFormat(
    "toy",
    lambda error, request_id: {"oops": error.message, "id": request_id},
    {"type": "object", "required": ["oops"], "properties": {"oops": {"type": "string"}}},
    id_header="toy-id",
)


def shout(services, inbound) -> Outbound:
    """Say it louder."""
    said = orjson.loads(inbound.body).get("say")
    if not isinstance(said, str):
        raise InvalidRequest("Say something.", param="say")
    return json_reply({"said": said.upper()}, inbound.shown_id)


TOY = Surface("toy", TOY_ERRORS, (Operation("POST", "/toy/shout", shout, body="json", hot=True),), prefixes=("/toy",))


@pytest.fixture(params=["true", "false"], ids=["express", "flask"])
def toy(monkeypatch, settings, request):
    """A function that calls a gateway with one more line in its table of surfaces, and nothing else."""
    monkeypatch.setattr(model_surfaces, "SURFACES", (*model_surfaces.SURFACES, TOY))
    monkeypatch.setattr(surface_table, "SURFACES", surface_table.SURFACES)  # the application adds the line above

    def call(method, path, body=None):
        data = None if body is None else orjson.dumps(body)
        request = Request(gateway.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=10) as answer:
                return answer.status, answer.headers, orjson.loads(answer.read())
        except HTTPError as error:
            return error.code, error.headers, orjson.loads(error.read())

    with local_gateway(settings, GATEWAY_SERVER_EXPRESS_LANE=request.param) as gateway:
        yield call


@pytest.mark.parametrize("path", ["/toy/shout", "/toy/shout/"])
def test_a_surface_is_served_by_its_line_in_the_table(toy, path):
    status, _, body = toy("POST", path, {"say": "hello"})
    assert (status, body) == (200, {"said": "HELLO"})


def test_its_errors_are_reported_in_its_own_format(toy):
    status, headers, body = toy("POST", "/toy/shout", {})
    assert (status, body["oops"]) == (400, "Say something.")
    assert headers["toy-id"] == headers["x-request-id"] == body["id"]


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/toy/whisper", 404), ("DELETE", "/toy/shout", 405)])
def test_errors_of_the_framework_have_the_format_of_the_prefix(toy, method, path, status):
    answered, _, body = toy(method, path)
    assert (answered, set(body)) == (status, {"oops", "id"})


def test_a_path_that_only_begins_like_it_is_not_its_own(toy):
    assert set(toy("POST", "/toyshop", {})[2]) == {"error"}


def test_it_is_described_with_its_own_errors():
    document = describe(TOY.operations)
    assert document["paths"]["/toy/shout"]["post"]["summary"]
    assert document["components"]["schemas"]["error.toy"] == TOY_ERRORS.schema


def test_the_longest_prefix_decides_how_errors_are_reported(monkeypatch):
    inner = Surface("inner", TOY_ERRORS, (), prefixes=("/v1/messages/toy",))
    monkeypatch.setattr(surface_table, "SURFACES", (*surface_table.SURFACES, inner))
    assert surface_table.errors_at("/v1/messages/toy/x").name == "toy"
    assert surface_table.errors_at("/v1/messages/batches").name == "anthropic"
    assert surface_table.errors_at("/v1/messagesx").name == "openai"


def test_no_two_surfaces_claim_one_prefix_or_one_operation():
    prefixes = [prefix for surface in surface_table.SURFACES for prefix in surface.prefixes]
    operations = [
        (operation.method, operation.path) for operation in surface_table.operations() if operation.chosen is None
    ]
    assert len(set(prefixes)) == len(prefixes) and len(set(operations)) == len(operations)
