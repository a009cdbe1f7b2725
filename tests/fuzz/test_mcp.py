"""Messages and arguments of tools as nobody would write them: read, or refused with what is wrong."""

import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError
from gateway.settings import load
from gateway.surfaces.mcp import messages, schemas
from gateway.surfaces.mcp.saving import check_name

LIMITS = load({}).limits
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.fixed_dictionaries(
    {}, optional={"jsonrpc": st.just("2.0") | JSON, "id": JSON, "method": st.just("ping") | JSON, "params": JSON}
)
KINDS = (
    schemas.NoArguments,
    schemas.UsageArguments,
    schemas.BreakdownArguments,
    schemas.ChatArguments,
    schemas.ImageArguments,
    schemas.AltImageArguments,
    schemas.ListArguments,
    schemas.AnyArguments,
)


def read(raw: bytes) -> None:
    """Whatever is read can be answered; whatever is refused is the caller's fault."""
    try:
        call = messages.read(LIMITS, raw)
    except GatewayError as error:
        assert 400 <= error.status < 500 and orjson.dumps(messages.error_body(error, ""))
    else:
        assert call is None or orjson.dumps(messages.result_of(call, {}))


@given(MESSAGES | JSON)
def test_any_json_is_a_message_or_refused(body: Any) -> None:
    read(json.dumps(body).encode())


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_read(raw: bytes) -> None:
    read(raw)


def test_what_is_nested_too_deeply_is_refused() -> None:
    read(b'{"a":' * 100_000)


@given(st.sampled_from(KINDS), st.data())
def test_any_arguments_are_taken_or_told_what_is_wrong(kind: type, data: st.DataObject) -> None:
    known = st.dictionaries(st.sampled_from([*schemas.schema_of(kind)["properties"], "other"]), JSON, max_size=5)
    try:
        schemas.read(kind, data.draw(known | JSON))
    except GatewayError as error:
        assert error.status == 400 and error.message


@given(st.text(alphabet="ab./\\:\x00-é \n", max_size=12))
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    try:
        check_name(name)
    except GatewayError:
        return
    assert "/" not in name and "\\" not in name and "\x00" not in name and not name.startswith(".")
