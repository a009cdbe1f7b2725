"""Bodies of the management API: long validation is bounded, and runs off the event loop."""

from collections.abc import Callable

import orjson
import pytest
from gevent.monkey import get_original
from marshmallow import fields

from gateway.errors import InvalidRequest
from gateway.surfaces.visitors import validation_schemas as validation_schemas_module
from gateway.surfaces.visitors.validation_schemas import (
    MAX_PARTS,
    THREAD_BYTES,
    Body,
    QueryInteger,
    Usd,
    read_body,
    read_fields,
)
from gateway.surfaces.web.http import Inbound

thread_id: Callable[[], int] = get_original("_thread", "get_ident")


class Item(Body):
    name = fields.String(load_default="")


class Parts(Body):
    items = fields.List(fields.Nested(Item), load_default=list)


def ask(body: object) -> dict:
    return read_body(Parts, Inbound("POST", "/x", {"content-type": "application/json"}, orjson.dumps(body)))


def test_more_parts_than_a_body_may_have_are_refused_before_any_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation_schemas_module, "_load", None)
    with pytest.raises(InvalidRequest) as caught:
        ask({"items": [{}] * (MAX_PARTS // 2 + 1)})
    assert caught.value.code == "request_too_complex"


def test_a_text_full_of_commas_has_one_part() -> None:
    assert ask({"items": [{"name": ",{[" * MAX_PARTS}]})["items"][0]["name"].startswith(",{[")


@pytest.mark.parametrize("size", [1, THREAD_BYTES])
def test_a_long_body_is_checked_in_a_thread(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    threads: list[int] = []
    load = validation_schemas_module._load
    monkeypatch.setattr(validation_schemas_module, "_load", lambda *given: threads.append(thread_id()) or load(*given))
    assert ask({"items": [{"name": "x" * size}]})["items"] == [{"name": "x" * size}]
    assert (threads == [thread_id()]) is (size == 1)
    with pytest.raises(InvalidRequest) as caught:
        ask({"items": [{"name": ["x" * size]}]})
    assert caught.value.param == "items.0.name"


class Limit(Body):
    limit = Usd()


@pytest.mark.parametrize("given, said", [
    ("0.0000000001", "nine decimal places"), ("9999999999", "limit is 999999999 dollars"), (1e30, "limit is 999999999"),
    ("-5", "non-negative"), ("1e3", "non-negative"), ("twelve", "non-negative"), ("5.", "non-negative"),
], ids=str)  # fmt: skip
def test_an_invalid_amount_of_dollars_is_explained(given: object, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        read_body(Limit, Inbound("POST", "/x", {"content-type": "application/json"}, orjson.dumps({"limit": given})))


class Page(Body):
    limit = QueryInteger(1, 100)


@pytest.mark.parametrize("text", ["１２", "٣", "1²", "1_0", "²", "1e1", "9" * 30], ids=str)
def test_digits_of_other_scripts_are_no_number(text: str) -> None:
    for schema in (Page, Limit):
        with pytest.raises(InvalidRequest):
            read_fields(schema, {"limit": text})
    assert read_fields(Page, {"limit": " 12"}) == {"limit": 12}
