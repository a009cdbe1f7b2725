"""A day of Claude Code, Codex and OpenCode at work under `smart`: what it costs, and how much comes from prompt caches.

The agents are the real ones; the model, the person and the time are simulated. A task is one of the labelled turns,
with commands that read sources, some of which fail, and sub-agents. Long conversations are compacted, and the person
pauses.
"""

import json
import math
import random
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.clients import CLIENTS, Client, Gateway
from agents.upstreams import Job, ModelAtAnthropic
from agents.working_model import DELEGATED, WorkingModel
from fakes.prompt_cache import PromptCache
from support import shared
from support.clock import FakeClock
from support.gateways import local_gateway
from support.simulated_time import simulate_pauses

TURNS, SEED = 400, 68
LARGEST = "claude-opus-5-5"
COMPACTED_FROM = 60_000  # tokens of a conversation
PAUSE_S = 110.0  # the median
FAILURES, DELEGATIONS = 0.08, 0.04
SHARES = {"claude": 5, "codex": 3, "opencode": 2}
LEVELS = ("small", "medium", "large")
LABELLED = tomllib.loads((Path(__file__).parents[1] / "samples" / "labelled_turns.toml").read_text())["held_out"]
SOURCE = "".join(
    f"def read_{number}(path: str) -> int:\n    return len(path) + {number}\n\n\n" for number in range(4_000)
)
CREDITS_NUSD = 10**15
RUN_S = 600.0  # one task has up to 26 turns


@dataclass
class DayFigures:
    """The sums of a day, and how many turns of each kind and model it had."""

    turns: int = 0
    input: int = 0
    read: int = 0
    cost_nusd: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)

    @property
    def cached(self) -> float:
        return self.read / self.input


def compacting(name: str) -> Client:
    """Return a client that compacts a conversation of COMPACTED_FROM tokens; Claude Code does it on request."""
    usual = CLIENTS[name]

    def configure(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
        environment = usual.configure(home, gateway, model)
        if name == "codex":
            path = home / ".codex" / "config.toml"
            path.write_text(f"model_auto_compact_token_limit = {COMPACTED_FROM}\n{path.read_text()}")
        if name == "opencode":
            path = home / ".config" / "opencode" / "opencode.json"
            content = json.loads(path.read_text())
            limit = {"context": COMPACTED_FROM + 40_000, "output": 32_000}
            content["provider"]["llmgateway"]["models"][model]["limit"] = limit
            path.write_text(json.dumps(content))
        return environment

    return Client(configure, usual.begin, usual.go_on)


class Person:
    """Gives tasks to agents, one session after the other."""

    def __init__(self, model: WorkingModel, clock: FakeClock, chance: random.Random) -> None:
        self._model = model
        self._clock = clock
        self._chance = chance
        self._task = 0

    def work(self, folder: Path, programs: dict[str, Path], user: Gateway, called: str) -> None:
        """Play one session."""
        chance = self._chance
        name = chance.choices(list(SHARES), list(SHARES.values()))[0]
        client = compacting(name)
        work = folder / "work"
        (work / "src").mkdir(parents=True)
        (work / "src" / "main.py").write_text(SOURCE)
        (work / "src" / "small.py").write_text(SOURCE[:2_000])
        for number in range(chance.randint(4, 9)):
            prompts = [self._next_task(first=number == 0)]
            if name == "claude" and self._model.tokens > COMPACTED_FROM:
                prompts.insert(0, "/compact")
            for prompt in prompts:
                run = client.run(programs[name], work, user, called, prompt, number > 0, RUN_S)
                assert run.code == 0, run
            self._clock.advance(chance.lognormvariate(math.log(PAUSE_S), 1.4))

    def _next_task(self, first: bool) -> str:
        chance = self._chance
        level = chance.choices(LEVELS, (25, 50, 25) if first else (45, 40, 15))[0]
        text = chance.choice(LABELLED[level]).removeprefix("> ").removeprefix("! ")
        self._task += 1
        steps = [self._next_step() for _ in range(min(25, 1 + int(chance.expovariate(1 / 8))))]
        return f"{text} {self._model.begin(self._task, steps)}"

    def _next_step(self) -> str:
        chance = self._chance
        kind = chance.random()
        if kind < DELEGATIONS:
            return DELEGATED
        if kind < DELEGATIONS + FAILURES:
            return "python3 -c 'assert 1 == 2'"
        size = min(20_000, 20 + int(chance.lognormvariate(math.log(1_500), 1.2)))
        return f"tail -c +{chance.randrange(100_000)} src/main.py | head -c {size}"


def play(called: str, turns: int, folder: Path, programs: dict[str, Path]) -> DayFigures:
    """Play the day with agents that call a model by this name."""
    clock = FakeClock()
    clock.freeze()
    chance, pauses = random.Random(SEED), random.Random(SEED)
    fake = ModelAtAnthropic(Job(str(folder), "none", ""))
    fake.prompt_cache = PromptCache(clock, minimum=512)

    def size_answer() -> int:
        clock.advance(pauses.uniform(4, 30))  # the model writes, and a command runs
        return int(pauses.uniform(60, 600))

    model = WorkingModel(fake, size_answer)
    figures = DayFigures()
    with fake:
        environment = {"LLM_ANTHROPIC_API_KEY": "sk-ant-up", "LLM_ANTHROPIC_BASE_URL": fake.url}

        def settings(**more: str) -> Any:
            return shared.load(folder / "data", **environment, **more)

        with local_gateway(settings) as gateway:
            services = gateway.services
            services.billing.ledger.grant(gateway.organization_id, CREDITS_NUSD, "day")
            simulate_pauses(services, clock)
            person = Person(model, clock, chance)
            number = 0
            while len(model.answered) < turns:
                number += 1
                person.work(folder / f"{number}", programs, Gateway(gateway.address, gateway.key), called)
                assert not [call.problem for call in fake.calls if call.status != 200]
                fake.calls[:-1] = []
            for row in shared.usage_of(gateway):
                figures.turns += 1
                figures.input += row.input + row.cache_read + row.cache_write
                figures.read += row.cache_read
                figures.cost_nusd += row.cost_nusd
                figures.models[row.served] += 1
    figures.kinds = Counter(kind for kind, _ in model.answered)
    return figures


def test_a_day_under_smart_costs_a_third_less_and_keeps_its_cache(tmp_path: Path, programs: dict[str, Path]) -> None:
    pinned = play(LARGEST, TURNS, tmp_path / "pinned", programs)
    routed = play("smart", TURNS, tmp_path / "routed", programs)
    saved = 1 - routed.cost_nusd / routed.input / (pinned.cost_nusd / pinned.input)
    report = f"{saved:.1%} less, {routed.cached - pinned.cached:+.2%} from caches\n{pinned}\n{routed}"
    print(report)
    assert routed.turns >= TURNS and {"main", "sub", "summary"} <= set(routed.kinds), report
    assert saved >= 0.3, report
    assert routed.cached >= pinned.cached - 0.02, report
