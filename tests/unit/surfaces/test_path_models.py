"""A model in the path decides, whatever the body says."""

import orjson
import pytest

from gateway.surfaces.openai.chat_schema import decode
from gateway.surfaces.web.request_targets import set_model

TALK = [{"role": "user", "content": "Hi {}"}]


@pytest.mark.parametrize("spaces", ["", " \r\n\t"])
@pytest.mark.parametrize("own", [{}, {"model": None}, {"model": "other"}])
def test_the_model_of_the_path_decides(spaces: str, own: dict[str, str | None]) -> None:
    body = spaces + "{" + spaces + orjson.dumps(own | {"messages": TALK}).decode()[1:] + spaces
    made = set_model(body.encode(), 'odd/"name"')
    assert orjson.loads(made) == {"model": 'odd/"name"', "messages": TALK}
    assert decode(made).model == 'odd/"name"'


@pytest.mark.parametrize("body", [b"{}", b" { } "])
def test_an_empty_object_gets_one_member(body: bytes) -> None:
    assert orjson.loads(set_model(body, "m")) == {"model": "m"}


@pytest.mark.parametrize("body", [b"", b"[{}]", b'"{}"', b"no {json}", b"}", b'{"a": 1} end'])
def test_another_body_stays_as_it_is(body: bytes) -> None:
    assert set_model(body, "m") == body
