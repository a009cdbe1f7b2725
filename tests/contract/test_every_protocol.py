"""Every surface with every protocol: what the caller sees and what the vendor got, compared with reviewed goldens.

After a wanted change: WRITE_GOLDENS=1 pytest tests/contract, then read the difference before it is kept.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from contract import cases_ai, cases_chat, cases_messages, cases_responses, goldens, views
from contract.cases import Case
from contract.contract_gateway import ContractGateway
from contract.run_case import play
from contract.vendors import CORE, FURTHER, VENDORS

CASES = {
    "chat": cases_chat.CASES,
    "messages": cases_messages.CASES,
    "responses": cases_responses.CASES,
    "ai4": cases_ai.CASES,
}
WAYS = [
    pytest.param(surface, vendor, name, id=f"{surface}-{vendor}-{name}")
    for surface, cases in CASES.items()
    for vendor in (*VENDORS, *FURTHER)
    for name in cases
    if vendor in VENDORS or (surface != "ai4" and name in CORE)
]
PATHS = [goldens.path_of(*way.values) for way in WAYS]
Json = dict[str, Any]
STREAMING = ("stream", "stream_options")
WRITING = bool(os.environ.get("WRITE_GOLDENS"))
# This vendor reports no positions of citations. Streams of chat completions cannot compute them, as whole answers do.
UNPLACED = ("chat", "anthropic")


def sent(stage: ContractGateway, vendor: str) -> list[Json]:
    """Return the requests that the vendor received, each with its path where the path carries information."""
    return [views.steady(call.body) for call in stage.calls_of(vendor)]


def check_taken(stage: ContractGateway, vendor: str, case: Case) -> None:
    """The strict vendor took all that it was sent, unless the caller's own request makes no sense."""
    problems = [call.problem for call in stage.calls_of(vendor) if call.problem]
    assert case.faulty or problems == []


def bare(body: Json | None) -> Any:
    """Return a vendor's request without its streaming options."""
    return body and views.plain({name: value for name, value in body.items() if name not in STREAMING})


def warnings_of(turns: list[Json]) -> Any:
    """Return the caller's view without the usage of later turns, because the fakes count the bytes that they got."""
    return views.plain([{**one, "usage": None} if turn else one for turn, one in enumerate(turns)])


@pytest.fixture(scope="module", autouse=True)
def only_cases() -> Iterator[None]:
    """Goldens that no case has, and equal ones, are removed when goldens are written."""
    yield
    if WRITING:
        goldens.store_once(PATHS)


def test_each_case_has_its_golden_and_each_golden_its_case() -> None:
    assert len(set(PATHS)) == len(PATHS)
    assert WRITING or (goldens.stored() | goldens.equal_to().keys() == set(PATHS))


def test_no_golden_is_stored_twice() -> None:
    texts = [path.read_text() for path in goldens.stored()]
    assert WRITING or (len(set(texts)) == len(texts) and not goldens.stored() & goldens.equal_to().keys())


@pytest.mark.parametrize(("surface", "vendor", "name"), WAYS)
def test_caller_and_vendor_get_what_the_golden_says(
    stage: ContractGateway, surface: str, vendor: str, name: str
) -> None:
    turns = goldens.thin(surface, play(stage, surface, vendor, CASES[surface][name]))
    found = {"caller": turns, "maker": sent(stage, vendor)}
    if WRITING:
        goldens.write(surface, vendor, name, found)
    check_taken(stage, vendor, CASES[surface][name])
    assert found == goldens.read(surface, vendor, name)


@pytest.mark.parametrize(
    ("surface", "vendor", "name"), [way for way in WAYS if CASES[way.values[0]][way.values[2]].streams]
)
def test_a_stream_shows_the_same_as_the_whole_answer(
    stage: ContractGateway, surface: str, vendor: str, name: str
) -> None:
    case = CASES[surface][name]
    turns = goldens.thin(surface, play(stage, surface, vendor, case, streamed=True))
    check_taken(stage, vendor, case)
    golden = goldens.read(surface, vendor, name)
    shared = views.plain
    if surface == "messages":
        shared = views.unsigned
    if (surface, vendor) == UNPLACED:
        shared = views.unplaced
    assert shared(warnings_of(turns)) == shared(warnings_of(golden["caller"]))
    assert shared([bare(body) for body in sent(stage, vendor)]) == shared([bare(body) for body in golden["maker"]])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", cases_ai.STEPS)
@pytest.mark.parametrize("vendor", list(VENDORS))
@pytest.mark.parametrize("surface", list(cases_ai.OLDER))
def test_older_versions_carry_the_same_content_as_the_newest(
    stage: ContractGateway, surface: str, vendor: str, name: str, streamed: bool
) -> None:
    case = cases_ai.OLDER[surface][name]
    if streamed and not case.streams:
        return
    turns = goldens.thin("ai4", play(stage, surface, vendor, case, streamed))
    check_taken(stage, vendor, case)
    golden = goldens.read("ai4", vendor, name)
    assert warnings_of(turns) == warnings_of(golden["caller"])
    assert [bare(body) for body in sent(stage, vendor)] == [bare(body) for body in golden["maker"]]
