"""Claude Code changes models and vendors in the middle of a session, with sub-agents of further models: each service
takes what the former ones left in the conversation."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents.clients import CLIENTS, Client, Gateway
from agents.upstreams import (
    DONE,
    Endless,
    Job,
    Model,
    ModelAtAnthropic,
    ModelAtCompatible,
    ModelAtGoogle,
    ModelAtOpenAI,
    ModelAtResponses,
    Place,
)
from fakes import anthropic, google, openai, responses
from support.gateways import GatewayProcess

Serve = Callable[..., tuple[GatewayProcess, list[Model]]]
CLAUDE = Place("claude-sonnet-5-5[1m]", "anthropic", ModelAtAnthropic)
OLDER_CLAUDE = Place("claude-haiku-4.5", "anthropic", ModelAtAnthropic)
CODEX = Place("gpt-5.3-codex", "openai", ModelAtResponses)
GEMINI = Place("google-ai-studio/gemini-3.8-flash", "google-ai-studio", ModelAtGoogle)
DEEPSEEK = Place("deepseek-v4-pro", "deepseek", ModelAtCompatible)
STEP = re.compile(r"STEP(\d)")
AGENTS = ("Agent", "Task")  # the names of the client's tool for sub-agents
# Each session: models one after the other, each with the model of its sub-agent.
SESSIONS = {
    "claude first": ((CLAUDE, GEMINI), (CODEX, CLAUDE), (CLAUDE, DEEPSEEK), (GEMINI, CODEX), (OLDER_CLAUDE, CLAUDE)),
    "claude between": ((CODEX, OLDER_CLAUDE), (OLDER_CLAUDE, GEMINI), (DEEPSEEK, CLAUDE), (CLAUDE, CODEX)),
    "claude last": ((GEMINI, DEEPSEEK), (DEEPSEEK, OLDER_CLAUDE), (OLDER_CLAUDE, CODEX), (CLAUDE, GEMINI)),
}


def delegate(model: Model) -> None:
    """Make a model hand each task of the user to a sub-agent, which writes the file."""
    work = model._work

    def answer(body: dict[str, Any]) -> Any:
        text = json.dumps(body)
        steps = STEP.findall(text)
        tool = next((name for name in AGENTS if f'"name": "{name}"' in text), "")
        if not steps or not tool or f"DELEGATED{max(steps)}" in text:
            return numbered(work(body), model)
        task = {"description": "Write a file", "prompt": f"DELEGATED{max(steps)}: write the file."}
        return numbered(call_of(model, tool, {**task, "subagent_type": "general-purpose", "model": "haiku"}), model)

    model._script = Endless(answer, model.calls)


def call_of(model: Model, name: str, arguments: dict[str, Any]) -> Any:
    text = json.dumps(arguments)
    if isinstance(model, ModelAtAnthropic):
        thinking = (model.calls[-1].body.get("thinking") or {}).get("type", "disabled") != "disabled"
        return anthropic.Answer("I delegate.", tools=((name, text),), thinking="Hm." if thinking else "")
    if isinstance(model, ModelAtGoogle):
        return google.Answer(tools=((name, arguments),), thoughts="Hm.")
    if isinstance(model, ModelAtResponses):
        return responses.Answer(responses.thought("Hm."), responses.call(name, text))
    assert isinstance(model, ModelAtOpenAI)
    return openai.Answer(tools=((name, text),))


def numbered(answer: Any, model: Model) -> Any:
    """Give the calls of an answer ids of their own, as the services do; the client leaves out a repeated one."""
    return replace(answer, turn=f"{len(model.calls)}_") if hasattr(answer, "turn") else answer


@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_with_sub_agents_goes_on_with_each_vendor(
    session: str, programs: dict[str, Path], job: Job, serve: Serve
) -> None:
    places = [place for pair in SESSIONS[session] for place in pair]
    gateway, models = serve(*places)
    known = list({id(model): model for model in models}.values())
    for model in known:
        delegate(model)
    user, work = Gateway(gateway.address, gateway.key), Path(job.folder)
    usual = CLIENTS["claude"]
    for number, (main, sub) in enumerate(SESSIONS[session]):
        client = Client(
            lambda home, at, model, sub=sub: {
                **usual.configure(home, at, model),
                "ANTHROPIC_DEFAULT_HAIKU_MODEL": sub.model,
            },
            usual.begin,
            usual.go_on,
        )
        before = sum(len(model.calls) for model in known)
        Path(job.path).unlink(missing_ok=True)
        run = client.run(programs["claude"], work, user, main.model, f"STEP{number}: write the file.", number > 0)
        problems = [f"{type(model).__name__} {call.status} {call.problem}" for model in known for call in model.calls]
        report = "\n".join([f"step {number}: {run.code}", run.out[-1500:], run.err[-2000:], *problems[-8:]])
        assert run.code == 0 and DONE in run.out, report + gateway.log()[-3000:]
        assert all(call.status == 200 for model in known for call in model.calls), report
        served = sum(len(model.calls) for model in known) - before
        assert served >= 3 and Path(job.path).is_file(), report
