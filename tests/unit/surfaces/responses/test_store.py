from types import SimpleNamespace

import pytest

from gateway.callers.vault import Vault
from gateway.configuration.settings import Responses
from gateway.engine.stored_responses import PastTurn, StoredResponse, StoredResponses
from gateway.errors import InvalidRequest, MethodNotAllowed, NotFound
from gateway.runtime.threads import Threads
from gateway.store.conversation_turns import Turns
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.surfaces.responses import routes, schema, store
from gateway.surfaces.web.http import Inbound

HEX = "1" * 32
ANSWER = f"resp_{HEX}"
MESSAGE = {"id": f"msg_{HEX}_0", "type": "message", "role": "assistant", "content": []}


def caller(project: str = "p", kind: str = "user", key: str = "k") -> SimpleNamespace:
    return SimpleNamespace(organization_id="org_1", project_id=project, key_kind=kind, key_id=key, rules=())


def body(**fields) -> schema.CompactBody:
    return schema.CompactBody(model="m", **fields)


@pytest.fixture
def empty(database: Database, threads: Threads) -> StoredResponses:
    return StoredResponses(Turns(database), Documents(database), Vault(["k"]), b"s", threads, Responses(1, 1, 0))


@pytest.fixture
def kept(empty: StoredResponses) -> StoredResponses:
    own = [{"type": "message", "role": "user", "content": "Hi"}]
    empty.keep(caller(), StoredResponse({"id": ANSWER, "output": [MESSAGE]}, [], own))
    return empty


def test_a_turn_continues_the_whole_conversation(kept: StoredResponses) -> None:
    history, own, _ = store.gather(
        body(previous_response_id=ANSWER, input="More"), kept, caller(), kept.load_for(caller())
    )
    assert [item["id"] for item in history] == [f"msg_{HEX}_i0", f"msg_{HEX}_0"]
    assert own[0]["content"][0]["text"] == "More"


@pytest.mark.parametrize(
    "other", [caller("q"), caller(kind="customer"), caller(kind="customer", key="z"), caller("p/k")]
)
def test_another_caller_does_not_find_it(kept: StoredResponses, other: SimpleNamespace) -> None:
    with pytest.raises(NotFound):
        kept.find(other, ANSWER, kept.load_for(other))
    with pytest.raises(NotFound):
        kept.delete(other, ANSWER)
    with pytest.raises(NotFound) as caught:
        store.gather(body(previous_response_id=ANSWER), kept, other, kept.load_for(other))
    assert caught.value.code == "previous_response_not_found"


def test_a_customers_key_finds_its_own_only(empty: StoredResponses) -> None:
    stored = empty
    stored.keep(caller(kind="customer"), StoredResponse({"id": ANSWER, "output": []}, [], []))
    assert (
        stored.find(caller(kind="customer"), ANSWER, stored.load_for(caller(kind="customer"))).response["id"] == ANSWER
    )
    with pytest.raises(NotFound):
        stored.find(caller(kind="customer", key="other"), ANSWER, stored.load_for(caller(kind="customer", key="other")))


def test_a_deleted_response_is_not_found(kept: StoredResponses) -> None:
    kept.delete(caller(), ANSWER)
    with pytest.raises(NotFound):
        kept.find(caller(), ANSWER, kept.load_for(caller()))


@pytest.mark.parametrize("ident", [f"msg_{HEX}_0", f"msg_{HEX}_i0"])
def test_a_reference_stands_for_its_item(kept: StoredResponses, ident: str) -> None:
    for reference in ({"type": "item_reference", "id": ident}, {"id": ident}):
        _, (item,), _ = store.gather(body(input=[reference]), kept, caller(), kept.load_for(caller()))
        assert item["id"] == ident and item["type"] == "message"


@pytest.mark.parametrize("ident", [f"msg_{HEX}_9", f"msg_{'2' * 32}_0", "msg_1", "rs_from_elsewhere"])
def test_a_reference_to_nothing_is_named(kept: StoredResponses, ident: str) -> None:
    with pytest.raises(NotFound) as caught:
        store.gather(body(input=[{"type": "item_reference", "id": ident}]), kept, caller(), kept.load_for(caller()))
    assert caught.value.param == "input.0.id"


def test_a_referenced_item_counts_once_per_reference(empty: StoredResponses) -> None:
    own = [{"type": "message", "role": "user", "content": "x" * 20_000}]
    empty.keep(caller(), StoredResponse({"id": ANSWER, "output": []}, [], own))
    reference = {"type": "item_reference", "id": f"msg_{HEX}_i0"}
    _, items, size = store.gather(body(input=[reference] * 50), empty, caller(), empty.load_for(caller()))
    assert len(items) == 50 and size > 1_000_000
    with pytest.raises(InvalidRequest) as caught:
        store.gather(body(input=[reference] * 60), empty, caller(), empty.load_for(caller()))
    assert caught.value.code == "conversation_too_long"


def test_bytes_read_for_references_are_bounded(empty: StoredResponses) -> None:
    for number in range(3):
        own = [{"type": "message", "role": "user", "content": f"{number}" * 400_000}]
        ident = f"resp_{number}{'a' * 31}"
        empty.keep(caller(), StoredResponse({"id": ident, "output": [MESSAGE | {"id": f"msg_{ident[5:]}_0"}]}, [], own))
    named = [{"type": "item_reference", "id": f"msg_{number}{'a' * 31}_0"} for number in range(3)]
    assert len(store.gather(body(input=named[:2]), empty, caller(), empty.load_for(caller())).own) == 2
    with pytest.raises(InvalidRequest) as caught:
        store.gather(body(input=named), empty, caller(), empty.load_for(caller()))
    assert caught.value.code == "conversation_too_long"


def listing(count: int) -> StoredResponse:
    asked = [{"id": f"msg_{place}", "type": "message", "role": "user", "content": []} for place in range(count)]
    return StoredResponse({"id": ANSWER, "output": []}, [PastTurn("resp_0", asked[:1], [])], asked[1:])


def test_the_list_is_newest_first_and_pages_on() -> None:
    first = store.list_items(listing(3), {"limit": "2"}, sealed=False)
    assert ([item["id"] for item in first.data], first.has_more) == (["msg_2", "msg_1"], True)
    rest = store.list_items(listing(3), {"limit": "2", "after": first.last_id}, sealed=False)
    assert ([item["id"] for item in rest.data], rest.has_more) == (["msg_0"], False)


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "101"}, {"limit": "x"}, {"order": "up"}, {"after": "?"}])
def test_a_list_that_cannot_be_is_refused(query: dict) -> None:
    with pytest.raises(InvalidRequest):
        store.list_items(listing(3), query, sealed=False)


def test_only_a_websocket_is_opened_by_get() -> None:
    with pytest.raises(MethodNotAllowed):
        routes.connect(None, Inbound("GET", "/v1/responses", {}))


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        *[("message", "msg"), ("reasoning", "rs"), ("compaction", "cmp"), ("image_generation_call", "ig")],
        *[("function_call", "fc"), ("function_call_output", "fco")],
        *[("custom_tool_call", "ctc"), ("custom_tool_call_output", "ctco")],
        *[("web_search_call", "ws"), ("file_search_call", "fs"), ("code_interpreter_call", "ci")],
        *[("computer_call", "cu"), ("local_shell_call", "lsh"), ("shell_call", "sh"), ("shell_call_output", "sho")],
        *[("apply_patch_call", "apc"), ("apply_patch_call_output", "apco")],
        *[("mcp_call", "mcp"), ("mcp_list_tools", "mcpl"), ("mcp_approval_request", "mcpr")],
        *[("tool_search_call", "tsc"), ("tool_search_output", "tso")],
    ],
)
def test_an_item_has_an_id_that_openai_takes_back(kind: str, prefix: str) -> None:
    """OpenAI refuses an item if its id begins with the prefix of another kind."""
    assert store.item_id(kind, ANSWER, 2) == f"{prefix}_{HEX}_2"
