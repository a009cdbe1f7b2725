"""Codex changes models and vendors in the middle of a session, with its free-text tool, parallel calls, a search over
tools of an MCP server, code mode and compaction: each service takes what the former ones left in the conversation."""

from collections.abc import Callable
from pathlib import Path

import pytest
from agents import codex_worlds
from agents.clients import Gateway
from agents.codex_models import file_of, play
from agents.upstreams import (
    DONE,
    Job,
    Model,
    ModelAtAnthropic,
    ModelAtCompatible,
    ModelAtGoogle,
    ModelAtMistral,
    ModelAtResponses,
    Place,
)
from fakes import mistral
from support.gateways import GatewayProcess

Serve = Callable[..., tuple[GatewayProcess, list[Model]]]
PLAIN = Place(codex_worlds.PLAIN, "openai", ModelAtResponses)
PROGRAMMING = Place(codex_worlds.PROGRAMMING, "openai", ModelAtResponses)
CLAUDE = Place("claude-sonnet-5-5[1m]", "anthropic", ModelAtAnthropic)
CLAUDE_PROGRAMMING = Place("claude-haiku-4-5", "anthropic", ModelAtAnthropic)
GEMINI = Place("google-ai-studio/gemini-3.8-flash", "google-ai-studio", ModelAtGoogle)
DEEPSEEK = Place("deepseek-v4-pro", "deepseek", ModelAtCompatible)
MISTRAL = Place("mistral/codestral-latest", "mistral", ModelAtMistral, key=mistral.KEY)
# Models of other vendors, by Codex' model whose tools they get.
COPIES = {
    CLAUDE.model: codex_worlds.PLAIN,
    CLAUDE_PROGRAMMING.model: codex_worlds.PROGRAMMING,
    GEMINI.model: codex_worlds.PLAIN,
    DEEPSEEK.model: codex_worlds.PLAIN,
    MISTRAL.model: codex_worlds.PLAIN,
}
SESSIONS = {
    "openai first": (PLAIN, CLAUDE, PLAIN, GEMINI, DEEPSEEK, MISTRAL, PLAIN),
    "claude first": (CLAUDE, PROGRAMMING, CLAUDE_PROGRAMMING, PLAIN, CLAUDE, GEMINI),
    "programs": (PROGRAMMING, CLAUDE_PROGRAMMING, PROGRAMMING, CLAUDE_PROGRAMMING),
    "others": (GEMINI, MISTRAL, CLAUDE, DEEPSEEK, GEMINI, PROGRAMMING),
}


BY_SERVER = "compacted by the server"


@pytest.mark.parametrize("compacting", ["whole", "compacted", BY_SERVER])
@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_of_codex_continues_with_each_vendor(
    session: str, compacting: str, programs: dict[str, Path], job: Job, serve: Serve, tmp_path: Path
) -> None:
    places = SESSIONS[session]
    gateway, models = serve(*places)
    known = list({id(model): model for model in models}.values())
    for model in known:
        play(model)
    home = tmp_path / "home"
    home.mkdir()
    listed = codex_worlds.catalogue(programs["codex"], home, COPIES)
    client = codex_worlds.client(
        listed,
        compacting=compacting != "whole",
        name="OpenAI" if compacting == BY_SERVER else "llmgateway",
    )
    user, work = Gateway(gateway.address, gateway.key), Path(job.folder)
    for number, place in enumerate(places):
        run = client.run(programs["codex"], work, user, place.model, f"STEP{number}: write the file.", number > 0)
        problems = [f"{type(model).__name__} {call.status} {call.problem}" for model in known for call in model.calls]
        report = "\n".join([f"step {number}: {run.code}", run.out[-1500:], run.err[-2000:], *problems[-8:]])
        assert run.code == 0 and DONE in run.out, report + gateway.log()[-3000:]
        assert all(call.status == 200 for model in known for call in model.calls), report
        assert (work / file_of(str(number))).read_text() == f"Written in step {number}.\n", report
