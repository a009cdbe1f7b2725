"""Every surface with every protocol: what the caller sees and what the maker got, compared with reviewed goldens.

After a wanted change: WRITE_GOLDENS=1 pytest tests/contract, then read the difference before it is kept.
"""

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from contract import cases_ai, cases_chat, cases_messages, cases_responses, views
from contract.cases import Case
from contract.makers import MAKERS
from contract.play import play
from contract.stage import Stage

FOLDER = Path(__file__).resolve().parent.parent / "samples" / "contract"
CASES = {
    "chat": cases_chat.CASES,
    "messages": cases_messages.CASES,
    "responses": cases_responses.CASES,
    "ai4": cases_ai.CASES,
}
WAYS = [
    pytest.param(surface, maker, name, id=f"{surface}-{maker}-{name}")
    for surface, cases in CASES.items()
    for maker in MAKERS
    for name in cases
]
Json = dict[str, Any]
STREAMING = ("stream", "stream_options")


def sent(stage: Stage, maker: str) -> list[Json]:
    """What the maker got, each with the path where it tells something."""
    return [views.steady(call.body) for call in stage.heard(maker)]


def check_taken(stage: Stage, maker: str, case: Case) -> None:
    """The strict maker took all that it was sent, unless the caller's own request makes no sense."""
    problems = [call.problem for call in stage.heard(maker) if call.problem]
    assert case.faulty or problems == []


def bare(body: Json | None) -> Any:
    """A maker's request without the wish for a stream."""
    return body and views.plain({name: value for name, value in body.items() if name not in STREAMING})


def told(seen: list[Json]) -> Any:
    """What is seen, without the usage of later turns: the stand-ins count the bytes that they got."""
    return views.plain([{**one, "usage": None} if turn else one for turn, one in enumerate(seen)])


@cache
def goldens(surface: str, maker: str) -> Json:
    path = FOLDER / f"{surface}_{maker}.json"
    return json.loads(path.read_text()) if path.exists() else {}


@pytest.fixture(scope="module", autouse=True)
def written() -> Iterator[None]:
    """Goldens are written when that is asked for."""
    yield
    if os.environ.get("WRITE_GOLDENS"):
        for surface in CASES:
            for maker in MAKERS:
                known = {name: case for name, case in goldens(surface, maker).items() if name in CASES[surface]}
                text = json.dumps(known, indent=1, ensure_ascii=False, sort_keys=True)
                (FOLDER / f"{surface}_{maker}.json").write_text(text + "\n")


@pytest.mark.parametrize(("surface", "maker", "name"), WAYS)
def test_caller_and_maker_get_what_the_golden_says(stage: Stage, surface: str, maker: str, name: str) -> None:
    seen = play(stage, surface, maker, CASES[surface][name])
    found = {"caller": seen, "maker": sent(stage, maker)}
    if os.environ.get("WRITE_GOLDENS"):
        goldens(surface, maker)[name] = found
    check_taken(stage, maker, CASES[surface][name])
    assert found == goldens(surface, maker)[name]


@pytest.mark.parametrize(
    ("surface", "maker", "name"), [way for way in WAYS if CASES[way.values[0]][way.values[2]].streams]
)
def test_a_stream_tells_what_the_whole_answer_tells(stage: Stage, surface: str, maker: str, name: str) -> None:
    case = CASES[surface][name]
    seen = play(stage, surface, maker, case, streamed=True)
    check_taken(stage, maker, case)
    golden = goldens(surface, maker)[name]
    shared = views.unsigned if surface == "messages" else lambda value: value
    assert shared(told(seen)) == shared(told(golden["caller"]))
    assert shared([bare(body) for body in sent(stage, maker)]) == shared([bare(body) for body in golden["maker"]])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", cases_ai.STEPS)
@pytest.mark.parametrize("maker", list(MAKERS))
@pytest.mark.parametrize("surface", list(cases_ai.OLDER))
def test_older_versions_say_and_are_told_what_the_newest_is(
    stage: Stage, surface: str, maker: str, name: str, streamed: bool
) -> None:
    case = cases_ai.OLDER[surface][name]
    if streamed and not case.streams:
        return
    seen = play(stage, surface, maker, case, streamed)
    check_taken(stage, maker, case)
    golden = goldens("ai4", maker)[name]
    assert told(seen) == told(golden["caller"])
    assert [bare(body) for body in sent(stage, maker)] == [bare(body) for body in golden["maker"]]
