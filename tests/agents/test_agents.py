"""Real coding agents at work through the gateway: each client on every upstream format."""

import json
from pathlib import Path

import pytest
from agents.clients import CLIENTS, PACKAGES, Gateway
from agents.reports import Serve, account
from agents.rows import usage_of
from agents.turns import rewritten
from agents.upstreams import DONE, FURTHER_PLACES, LESSER_PLACES, PLACES, Job, ModelAtResponses, Place

ALL_PLACES = PLACES | LESSER_PLACES | FURTHER_PLACES


@pytest.mark.parametrize("place", ALL_PLACES)
@pytest.mark.parametrize("client", PACKAGES)
def test_a_client_writes_a_file_with_its_own_tools(
    client: str, place: str, programs: dict[str, Path], job: Job, serve: Serve
) -> None:
    where = ALL_PLACES[place]
    gateway, (model,) = serve(where)
    user = Gateway(gateway.address, gateway.key)
    prompt = f"Write the file {job.name} with this text: {job.text}"
    run = CLIENTS[client].run(programs[client], Path(job.folder), user, where.model, prompt, False)
    report = account([model], run, gateway)
    assert run.code == 0, report
    assert Path(job.path).is_file() and Path(job.path).read_text().strip() == job.text, report
    assert DONE in run.out, report
    assert not [call.problem for call in model.calls if call.status != 200], report
    rows = usage_of(gateway)
    assert len(rows) == len(model.calls) >= 2, (rows, report)
    assert all(row[0] == where.provider and row[1] > 0 and row[2] > 0 for row in rows), rows


TRANSITIONS = [
    ("chat", "chat"),
    ("responses", "responses"),
    ("messages", "messages"),
    ("generate", "generate"),
    ("chat", "messages"),
    ("messages", "generate"),
    ("generate", "responses"),
    ("responses", "messages"),
    *((place, place) for place in LESSER_PLACES | FURTHER_PLACES),
    *(("messages", place) for place in FURTHER_PLACES),
]


@pytest.mark.parametrize(("first", "second"), TRANSITIONS)
@pytest.mark.parametrize("client", PACKAGES)
def test_a_session_goes_on_with_the_same_model_and_with_another_vendors(
    client: str, first: str, second: str, programs: dict[str, Path], job: Job, serve: Serve
) -> None:
    places = [ALL_PLACES[first], ALL_PLACES[second]]
    gateway, models = serve(*places)
    user, work = Gateway(gateway.address, gateway.key), Path(job.folder)
    for number, (place, prompt) in enumerate(zip(places, ["Write the file.", "Is it well written?"], strict=True)):
        run = CLIENTS[client].run(programs[client], work, user, place.model, prompt, number > 0)
        report = account(models, run, gateway)
        assert run.code == 0, report
        assert not [call.problem for model in models for call in model.calls if call.status != 200], report
    for model in {id(model): model for model in models}.values():
        assert not rewritten(model.calls), report
    last = json.dumps(models[1].calls[-1].body)
    assert "Write the file." in last and "Is it well written?" in last, report


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("client", PACKAGES)
def test_a_client_gets_over_a_provider_that_is_busy_for_a_moment(
    client: str, place: str, programs: dict[str, Path], job: Job, serve: Serve
) -> None:
    gateway, (model,) = serve(PLACES[place])
    model.script(*[PLACES[place].busy] * 2)
    user = Gateway(gateway.address, gateway.key)
    run = CLIENTS[client].run(
        programs[client], Path(job.folder), user, PLACES[place].model, "Write the file.", going_on=False
    )
    report = account([model], run, gateway)
    assert [call.status for call in model.calls[:2]] == [PLACES[place].busy.status] * 2, report
    assert run.code == 0, report
    assert Path(job.path).is_file(), report


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("client", PACKAGES)
def test_a_client_never_takes_half_an_answer_for_a_whole_one(
    client: str, place: str, programs: dict[str, Path], job: Job, serve: Serve
) -> None:
    gateway, (model,) = serve(PLACES[place])
    model.script(PLACES[place].half)
    user = Gateway(gateway.address, gateway.key)
    run = CLIENTS[client].run(
        programs[client], Path(job.folder), user, PLACES[place].model, "Write the file.", going_on=False
    )
    report = account([model], run, gateway)
    assert model.calls[0].sent > 0, report
    assert run.code != 0 or Path(job.path).is_file(), report


@pytest.mark.parametrize("place", ["chat", "messages", "small"])
def test_codex_within_its_sandbox_is_understood(place: str, programs: dict[str, Path], job: Job, serve: Serve) -> None:
    """Where the machine gives it no sandbox its command fails, and it says so; what it sends is taken all the same."""
    gateway, (model,) = serve(ALL_PLACES[place])
    user, name = Gateway(gateway.address, gateway.key), ALL_PLACES[place].model
    run = CLIENTS["codex in its sandbox"].run(programs["codex"], Path(job.folder), user, name, "Write the file.", False)
    report = account([model], run, gateway)
    assert run.code == 0 and len(model.calls) >= 2, report
    assert not [call.problem for call in model.calls if call.status != 200], report


def test_claude_code_finds_the_gateways_claude_models(programs: dict[str, Path], job: Job, serve: Serve) -> None:
    gateway, _ = serve(PLACES["messages"])
    user, work = Gateway(gateway.address, gateway.key), Path(job.folder)
    run = CLIENTS["claude"].run(programs["claude"], work, user, PLACES["messages"].model, "Write the file.", False)
    assert run.code == 0, run
    found = json.loads((work.parent / "home/.claude/cache/gateway-models.json").read_text())
    assert "claude-sonnet-4-6" in [model["id"] for model in found["models"]]


@pytest.mark.parametrize("place", PLACES)
def test_codex_works_over_a_websocket(place: str, programs: dict[str, Path], job: Job, serve: Serve) -> None:
    where = PLACES[place]
    gateway, (model,) = serve(where)
    user = Gateway(gateway.address, gateway.key)
    work = Path(job.folder)
    for number, prompt in enumerate((f"Write the file {job.name} with this text: {job.text}", "Is it well written?")):
        run = CLIENTS["codex over a socket"].run(programs["codex"], work, user, where.model, prompt, number > 0)
        report = account([model], run, gateway)
        assert run.code == 0, report
        assert not [call.problem for call in model.calls if call.status != 200], report
    assert Path(job.path).is_file() and Path(job.path).read_text().strip() == job.text, report
    answered = [text for text in gateway.log().splitlines() if "/v1/responses" in text]
    assert answered and not [text for text in answered if "POST /v1/responses" in text], report
    assert len(usage_of(gateway)) == len(model.calls) >= 3, report


def test_claude_code_works_without_a_model_name_on_a_gateway_with_only_a_key_of_openai(
    programs: dict[str, Path], job: Job, serve: Serve
) -> None:
    gateway, (model,) = serve(Place("gpt-5.4", "openai", ModelAtResponses))
    user = Gateway(gateway.address, gateway.key)
    prompt = f"Write the file {job.name} with this text: {job.text}"
    run = CLIENTS["claude without a model"].run(programs["claude"], Path(job.folder), user, "", prompt, False)
    report = account([model], run, gateway)
    assert run.code == 0 and DONE in run.out, report
    assert Path(job.path).read_text().strip() == job.text, report
    assert not [call.problem for call in model.calls if call.status != 200], report
    rows = usage_of(gateway)
    assert len(rows) == len(model.calls) >= 2 and {row[0] for row in rows} == {"openai"}, (rows, report)
    assert {call.body["model"] for call in model.calls} == {"gpt-5.4"}, report
