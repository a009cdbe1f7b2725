"""Routes in the agents: each calls one by its name, and its sub-agents, titles and compactions are recognized."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from agents.clients import CLIENTS, PACKAGES, Client, Gateway
from agents.reports import Serve, account
from agents.upstreams import Job, ModelAtAnthropic, Place
from agents.working_model import DELEGATED, WorkingModel
from support.gateways import GatewayProcess

CLAUDE = Place("claude-opus-5-5", "anthropic", ModelAtAnthropic)
# The model of each kind of turn.
MODELS = {
    "main": "claude-opus-5-5",
    "sub": "claude-haiku-5-5",
    "side": "claude-sonnet-5",
    "summary": "claude-sonnet-5-5",
}
ROUTE = {
    "rules": [
        {"name": "summary", "when": {"turns": ["summary"]}, "use": MODELS["summary"]},
        {"name": "sub", "when": {"agent": "sub"}, "use": MODELS["sub"]},
        {"name": "title", "when": {"turns": ["title"]}, "use": MODELS["side"]},
    ],
    "otherwise": MODELS["main"],
    "keepSession": False,
}
# The names by which each agent calls it; Claude Code lists only names of one vendor.
NAMES = {"claude": "claude-house-latest", "codex": "dynamic/house", "opencode": "dynamic/house"}
# The kinds of turns that each agent had. OpenCode's conversation is too short here for a compaction.
KINDS = {
    "claude": {"main", "sub", "summary"},
    "codex": {"main", "sub", "summary"},
    "opencode": {"main", "sub", "side"},
}
COMPACTED_FROM = {"codex": 6_000, "opencode": 24_000}  # tokens


def with_compactions(name: str) -> Client:
    """Return a client that compacts a short conversation by itself; Claude Code does it on request."""
    usual = CLIENTS[name]

    def configure(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
        environment = usual.configure(home, gateway, model)
        if name == "codex":
            path = home / ".codex" / "config.toml"
            path.write_text(f"model_auto_compact_token_limit = {COMPACTED_FROM[name]}\n{path.read_text()}")
        if name == "opencode":
            path = home / ".config" / "opencode" / "opencode.json"
            content = json.loads(path.read_text())
            content["provider"]["llmgateway"]["models"][model]["limit"] = {
                "context": COMPACTED_FROM[name],
                "output": 1000,
            }
            path.write_text(json.dumps(content))
        return environment

    return Client(configure, usual.begin, usual.go_on)


def served_by_route(gateway: GatewayProcess, name: str) -> Counter[str]:
    """Return how often each model served requests for the name, without those that the agent cancelled."""
    store = sqlite3.connect(f"file:{gateway.data}/gateway.db?mode=ro", uri=True)
    rows = store.execute('SELECT served, asked, extra FROM "usage" WHERE error IS NULL').fetchall()
    store.close()
    assert all(asked == name and json.loads(extra)["route"] for _, asked, extra in rows), rows
    return Counter(served for served, _, _ in rows)


@pytest.mark.parametrize("hints", [False, True], ids=["without headers for gateways", "with headers for gateways"])
def test_claude_codes_turns_are_recognized(hints: bool, programs: dict[str, Path], job: Job, serve: Serve) -> None:
    usual = CLIENTS["claude"]
    more = {"CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1"} if hints else {}
    client = Client(lambda *place: {**usual.configure(*place), **more}, usual.begin, usual.go_on)
    check_turns("claude", client, ["Fix the bug.", "Is it fixed?", "/compact"], programs, job, serve)


@pytest.mark.parametrize("name", ["codex", "opencode"])
def test_an_agents_turns_are_recognized(name: str, programs: dict[str, Path], job: Job, serve: Serve) -> None:
    prompts = ["Fix the bug.", "Is it fixed?", "Are there others?"]
    check_turns(name, with_compactions(name), prompts, programs, job, serve)


def check_turns(
    name: str, client: Client, prompts: list[str], programs: dict[str, Path], job: Job, serve: Serve
) -> None:
    """Let an agent work with sub-agents until it compacts, and compare the models with the kinds of its turns."""
    gateway, (fake,) = serve(CLAUDE)
    gateway.manage("routes", "set", "house", json.dumps(ROUTE), "--alias", NAMES["claude"])
    gateway.manage("routes", "publish", "house")
    model, work = WorkingModel(fake), Path(job.folder)
    (work / "src").mkdir()
    (work / "src" / "small.py").write_text("x = 1\n" * 500)
    user = Gateway(gateway.address, gateway.key)
    for number, prompt in enumerate(prompts):
        steps = (
            ["ls", DELEGATED, "exit 1", "cat src/small.py"] if not number else ["cat src/small.py", "cat src/small.py"]
        )
        text = prompt if prompt.startswith("/") else f"{prompt} {model.begin(number, steps)}"
        run = client.run(programs[name], work, user, NAMES[name], text, number > 0)
        assert run.code == 0, account([fake], run, gateway)
    assert not [call.problem for call in fake.calls if call.status != 200]
    kinds = Counter(kind for kind, _ in model.answered)
    assert set(kinds) == KINDS[name], kinds
    asked = Counter({MODELS[kind]: count for kind, count in kinds.items()})
    # Codex ends its sub-agents with itself, in the middle of an answer.
    assert asked - served_by_route(gateway, NAMES[name]) <= Counter({MODELS["sub"]: 1}), kinds


@pytest.mark.parametrize("name", PACKAGES)
def test_smart_serves_each_agent(name: str, programs: dict[str, Path], job: Job, serve: Serve) -> None:
    gateway, (fake,) = serve(CLAUDE)
    model, work = WorkingModel(fake), Path(job.folder)
    user = Gateway(gateway.address, gateway.key)
    called = "claude-smart" if name == "claude" else "smart"
    prompts = ["Fix the typo in the readme.", "Investigate why the workers deadlock under load, and design a fix."]
    for number, prompt in enumerate(prompts):
        run = CLIENTS[name].run(
            programs[name], work, user, called, f"{prompt} {model.begin(number, ['ls'])}", number > 0
        )
        assert run.code == 0, account([fake], run, gateway)
    assert not [call.problem for call in fake.calls if call.status != 200]
    served = served_by_route(gateway, called)
    # Claude Code sends a high effort to models that it does not know.
    assert served["claude-opus-5-5"] and len(served) > 1, served


def test_claude_code_lists_the_names_of_routes_that_it_accepts(
    programs: dict[str, Path], job: Job, serve: Callable[..., tuple[GatewayProcess, list[ModelAtAnthropic]]]
) -> None:
    gateway, (fake,) = serve(CLAUDE)
    gateway.manage("routes", "set", "house", json.dumps(ROUTE), "--alias", NAMES["claude"])
    gateway.manage("routes", "publish", "house")
    model, work = WorkingModel(fake), Path(job.folder)
    user = Gateway(gateway.address, gateway.key)
    run = CLIENTS["claude"].run(programs["claude"], work, user, NAMES["claude"], model.begin(0, ["ls"]), False)
    assert run.code == 0, account([fake], run, gateway)
    found = json.loads((work.parent / "home/.claude/cache/gateway-models.json").read_text())
    assert {NAMES["claude"], "claude-smart"} <= {entry["id"] for entry in found["models"]}
