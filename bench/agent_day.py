"""A day of coding agents, replayed against a fake provider: what it costs, and how much of it comes from prompt caches.

python -m bench.agent_day                                   a table for each setting of the project's cache markers
python -m bench.agent_day --model M [--baseline B]          the same for M, and the difference from B

The day is made anew from a seed, always the same: sessions of Claude Code, Codex and OpenCode in the formats that they
speak, with side calls, sub-agents, results of tools, compactions, and pauses of the people in front of them. Time is
simulated. The provider is the strict fake of Anthropic, which counts its prompt cache as the documentation describes.
"""

# ruff: noqa: E402
from gevent import monkey

monkey.patch_all()  # gateway, provider and agents share this process

import argparse
import heapq
import json
import math
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.agent_bodies import CODE, text
from bench.pairs import import_from_tests
from gateway.accounts.projects import ProjectChange, update_project
from gateway.billing.reconciliation import doctor

Body = dict[str, Any]
MODEL = "anthropic/claude-opus-5"
SEED, TURNS = 68, 1_000
DAY_S = 9 * 3600.0
PAUSE_S = 110.0
MARK = {"type": "ephemeral"}
BYTES_PER_TOKEN = 4
COMPACT_TOKENS = 60_000
COMPACT = "Write a summary of all that was done and of what is left, for the next agent."
MAX_RESULT = 30_000  # characters
# Names of the tools that an agent has, and those of its sub-agents.
TOOLS = [f"tool_{number}" for number in range(18)]
SUB_TOOLS = TOOLS[:8]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}
ABOUT = {name: text(700) for name in TOOLS}
SYSTEM = {"main": text(12_000), "sub-agent": text(5_000), "side call": text(400)}


@dataclass
class Talk:
    """A conversation of an agent. `kind` is main, sub-agent or side call; `said` are its turns in their format."""

    session: str
    kind: str
    said: list[Body] = field(default_factory=list)

    path = ""
    client = ""

    @property
    def tools(self) -> list[str]:
        return {"main": TOOLS, "sub-agent": SUB_TOOLS}.get(self.kind, [])

    def ask(self, words: str) -> None:
        self.said.append({"role": "user", "content": words})

    def headers(self) -> dict[str, str]:
        raise NotImplementedError

    def body(self) -> Body:
        raise NotImplementedError

    def take(self, reply: Body, results: list[str]) -> None:
        """Add an answer, with the results of its calls."""
        raise NotImplementedError


class ClaudeCode(Talk):
    """Messages, with marks on the instructions and on the last message."""

    path = "/v1/messages"
    client = "Claude Code"

    def headers(self) -> dict[str, str]:
        named = {"X-Claude-Code-Session-Id": self.session, "User-Agent": "claude-cli/2.1.332 (external, cli)"}
        return named | ({"X-Claude-Code-Agent-Id": f"{id(self):x}"} if self.kind == "sub-agent" else {})

    def ask(self, words: str) -> None:
        blocks = [{"type": "text", "text": words}]
        if self.said and self.said[-1]["role"] == "user":
            self.said[-1] = {"role": "user", "content": [*self.said[-1]["content"], *blocks]}
        else:
            self.said.append({"role": "user", "content": blocks})

    def body(self) -> Body:
        *before, last = self.said
        marked = {**last, "content": [*last["content"][:-1], {**last["content"][-1], "cache_control": MARK}]}
        tools = [{"name": name, "description": ABOUT[name], "input_schema": SCHEMA} for name in self.tools]
        system = [{"type": "text", "text": SYSTEM[self.kind], "cache_control": MARK}]
        limits: Body = {"max_tokens": 32_000, "system": system}
        if tools:
            limits |= {"thinking": {"type": "adaptive"}, "tools": tools}
        return {"messages": [*before, marked], **limits}

    def take(self, reply: Body, results: list[str]) -> None:
        self.said.append({"role": "assistant", "content": reply["content"]})
        calls = [block["id"] for block in reply["content"] if block["type"] == "tool_use"]
        if calls:
            found = zip(calls, results, strict=True)
            blocks = [{"type": "tool_result", "tool_use_id": ident, "content": result} for ident, result in found]
            self.said.append({"role": "user", "content": blocks})


class OpenCode(Talk):
    """Chat completions, without marks."""

    path = "/v1/chat/completions"
    client = "OpenCode"

    def headers(self) -> dict[str, str]:
        named = {"X-OpenCode-Session": self.session, "User-Agent": "opencode/1.18.33"}
        return named | ({"X-Parent-Session-Id": self.session} if self.kind == "sub-agent" else {})

    def body(self) -> Body:
        functions = [{"name": name, "description": ABOUT[name], "parameters": SCHEMA} for name in self.tools]
        tools = {"tools": [{"type": "function", "function": each} for each in functions]} if functions else {}
        return {
            "messages": [{"role": "system", "content": SYSTEM[self.kind]}, *self.said],
            "max_tokens": 32_000,
            **tools,
        }

    def take(self, reply: Body, results: list[str]) -> None:
        message = reply["choices"][0]["message"]
        self.said.append({name: value for name, value in message.items() if value is not None})
        for call, result in zip(message.get("tool_calls") or (), results, strict=True):
            self.said.append({"role": "tool", "tool_call_id": call["id"], "content": result})


class Codex(Talk):
    """The Responses API, with a prompt cache key."""

    path = "/v1/responses"
    client = "Codex"

    def headers(self) -> dict[str, str]:
        named = {"Session-Id": self.session, "User-Agent": "codex_cli_rs/0.171.0"}
        return named | ({"X-OpenAI-Subagent": "collab_spawn"} if self.kind == "sub-agent" else {})

    def body(self) -> Body:
        tools = [
            {"type": "function", "name": name, "description": ABOUT[name], "parameters": SCHEMA, "strict": False}
            for name in self.tools
        ]
        own = {"store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": self.session}
        return {"instructions": SYSTEM[self.kind], "input": [*self.said], "tools": tools, **own}

    def take(self, reply: Body, results: list[str]) -> None:
        self.said += reply["output"]
        calls = [item["call_id"] for item in reply["output"] if item["type"] == "function_call"]
        for ident, result in zip(calls, results, strict=True):
            self.said.append({"type": "function_call_output", "call_id": ident, "output": result})


CLIENTS: tuple[tuple[type[Talk], int], ...] = ((ClaudeCode, 5), (Codex, 3), (OpenCode, 2))  # and their shares


class Day:
    """The sessions of a day, which take turns by the simulated clock until there were enough turns."""

    def __init__(self, send: Callable[[Talk, Any], Body], seed: int, pause_s: float) -> None:
        self._send = send
        self._pause_s = pause_s
        self._chance = random.Random(seed)
        self._answer = import_from_tests("anthropic", "fakes").Answer
        self._session = 0

    def play(self, turns: int, clock: Any) -> None:
        chance = self._chance
        waiting: list[tuple[float, int, Iterator[float]]] = []
        sent = Counter[str]()
        self._count = sent
        for number in range(math.ceil(turns / 60)):
            heapq.heappush(waiting, (chance.uniform(0, DAY_S / 2), number, self._person()))
        now = 0.0
        while sum(sent.values()) < turns:
            at, number, person = heapq.heappop(waiting)
            clock.advance(max(0.0, at - now))
            now = max(now, at)
            wait_s = next(person, None)
            if wait_s is None:  # the next session begins
                person, wait_s = self._person(), 60.0
            heapq.heappush(waiting, (now + wait_s, number, person))

    def _person(self) -> Iterator[float]:
        """A session of one person: prompts, and pauses between them, in seconds."""
        chance = self._chance
        kinds, shares = zip(*CLIENTS, strict=True)
        make = chance.choices(kinds, shares)[0]
        self._session += 1
        session = f"{self._session:08d}-57a1-4c43-a745-e3036a3ecc33"
        title = make(session, "side call")
        title.ask(f"A title for: {text(300)}")
        self._turn(title, 0, 40)
        talk = make(session, "main")
        for number in range(chance.randint(3, 9)):
            talk.ask(f"Task {self._session}.{number}. {text(chance.randint(100, 3000))}")
            for _ in range(min(40, 1 + int(chance.expovariate(1 / 8)))):
                tokens = self._turn(talk, self._calls(), chance.randint(60, 900))
                yield self._tool_s()
                if chance.random() < 0.06:
                    yield from self._sub_agents(make, session)
                if tokens > COMPACT_TOKENS:
                    talk = self._compact(make, talk)
            self._turn(talk, 0, chance.randint(100, 1200))
            yield chance.lognormvariate(math.log(self._pause_s), 1.4)  # the person reads, thinks, has lunch

    def _sub_agents(self, make: type[Talk], session: str) -> Iterator[float]:
        """The main agent waits for sub-agents, which work at the same time."""
        chance = self._chance
        talks = []
        for _ in range(chance.randint(1, 3)):
            sub = make(session, "sub-agent")
            sub.ask(f"Find out {text(chance.randint(300, 1500))}")
            talks.append((sub, chance.randint(4, 12)))
        for number in range(max(turns for _, turns in talks)):
            for sub, turns in talks:
                if number < turns:
                    self._turn(sub, self._calls() if number + 1 < turns else 0, chance.randint(60, 600))
            yield self._tool_s()

    def _compact(self, make: type[Talk], talk: Talk) -> Talk:
        talk.ask(COMPACT)
        self._turn(talk, 0, 1500)
        after = make(talk.session, "main")
        after.ask(f"The conversation so far, in short: {text(6000)} Go on.")
        return after

    def _turn(self, talk: Talk, calls: int, output: int) -> int:
        """Send a turn and return the tokens of its prompt, about."""
        chance = self._chance
        names = [(name, '{"path": "src/main.py"}') for name in chance.sample(talk.tools, calls)] if calls else []
        reply = self._send(talk, self._answer(text(min(output, 400)), tuple(names), output=output))
        talk.take(reply, [self._result() for _ in range(calls)])
        self._count[talk.kind] += 1
        return len(json.dumps(talk.said)) // BYTES_PER_TOKEN

    def _calls(self) -> int:
        return self._chance.choices((1, 2, 3, 6), (75, 15, 7, 3))[0]

    def _result(self) -> str:
        length = min(MAX_RESULT, int(self._chance.lognormvariate(math.log(1500), 1.2)) + 20)
        begin = self._chance.randrange(len(CODE))
        return (CODE[begin:] + CODE * (length // len(CODE) + 1))[:length]

    def _tool_s(self) -> float:
        """How long a model's turn and its tools take: mostly seconds, sometimes a build."""
        slow = self._chance.random()
        if slow < 0.015:
            return self._chance.uniform(360, 900)
        return self._chance.uniform(60, 200) if slow < 0.06 else self._chance.uniform(4, 30)


@dataclass
class Sums:
    """Tokens and nano-dollars of the turns of one kind."""

    turns: int = 0
    input: int = 0
    read: int = 0
    written: int = 0
    output: int = 0
    cost: int = 0

    def add(self, row: Any) -> None:
        self.turns += 1
        self.input += row.input + row.cache_read + row.cache_write
        self.read += row.cache_read
        self.written += row.cache_write
        self.output += row.output
        self.cost += row.cost_nusd

    def line(self, name: str) -> str:
        shares = [f"{100 * count / max(1, self.input):.1f} %" for count in (self.read, self.written)]
        return f"| {name} | {self.turns:,} | {self.input:,} | {shares[0]} | {shares[1]} | {self.cost / 1e9:.2f} |"


def replay(model: str, policy: str, turns: int, seed: int, pause_s: float) -> tuple[dict[str, Sums], Counter[str]]:
    """Play the day with this model and setting of cache markers, in a separate gateway. Return the sums by kind of
    turn, and the number of turns by the model that answered."""
    gateways = import_from_tests("gateways")
    shared = import_from_tests("shared")
    clock = import_from_tests("clock").FakeClock()
    clock.freeze()
    vendor = import_from_tests("anthropic", "fakes").FakeAnthropic()
    vendor.prompt_cache = import_from_tests("prompt_cache", "fakes").PromptCache(clock, minimum=512)
    models: Counter[str] = Counter()
    asked: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, vendor:
        environment = {"LLM_ANTHROPIC_API_KEY": "sk-ant-up", "LLM_ANTHROPIC_BASE_URL": vendor.url}

        def settings(**more: str) -> Any:
            return shared.load(Path(folder), **environment, **more)

        with gateways.local_gateway(settings) as gateway, httpx.Client(timeout=120) as http:
            services = gateway.services
            services.billing.ledger.grant(gateway.organization_id, 10**15, "bench")
            import_from_tests("simulated_time").simulate_pauses(services, clock)
            change = ProjectChange(cache_markers=policy)
            update_project(services.store.database, services.store.control, gateway.project_id, change, actor="bench")

            def send(talk: Talk, answer: Any) -> Body:
                vendor._script[:] = [answer]
                headers = {"Authorization": f"Bearer {gateway.key}", **talk.headers()}
                reply = http.post(gateway.address + talk.path, headers=headers, json={"model": model, **talk.body()})
                asked.append(talk.kind)
                vendor.calls.clear()
                if reply.status_code != 200:
                    raise SystemExit(f"{talk.client}, {talk.kind}: {reply.status_code} {reply.text[:500]}")
                answered: Body = reply.json()
                return answered

            Day(send, seed, pause_s).play(turns, clock)
            sums = {kind: Sums() for kind in (*SYSTEM, "all")}
            for kind, row in zip(asked, shared.usage_of(gateway), strict=True):
                sums[kind].add(row)
                sums["all"].add(row)
                models[row.served] += 1
            services.store.journal.flush(60)
            services.billing.settlements.reap()
            services.billing.spending.maintain(idle_s=-1.0, keep_s=-1.0)
            if wrong := doctor(services.store.database):
                raise SystemExit(f"the books disagree: {wrong[0]}")
    return sums, models


def main(arguments: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.agent_day", description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=TURNS, help="turns of the day (default %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="of the day (default %(default)s)")
    parser.add_argument(
        "--pause", type=float, default=PAUSE_S, help="seconds, the median between prompts (%(default)s)"
    )
    parser.add_argument("--model", default=MODEL, help="the model that agents ask for (default %(default)s)")
    parser.add_argument("--baseline", default="", help="another model, whose cost and cache hits are compared")
    options = parser.parse_args(arguments)
    runs = [(options.baseline, "automatic")] if options.baseline else [(options.model, "client")]
    totals = []
    for model, policy in (*runs, (options.model, "automatic")):
        sums, models = replay(model, policy, options.turns, options.seed, options.pause)
        print(f"\n{model}, cache markers {policy}\n")
        print(
            "| Turns | Number | Input tokens | Read from the cache | Written to it | USD |\n|---|---|---|---|---|---|"
        )
        print("\n".join(each.line(kind) for kind, each in sums.items()))
        print(f"\nserved by {', '.join(f'{name} {count:,}' for name, count in models.most_common())}", flush=True)
        totals.append(sums["all"])
    before, after = totals
    hits = 100 * (after.read / after.input - before.read / before.input)
    print(f"\ncost {100 * (after.cost / before.cost - 1):+.1f} %, cache hits {hits:+.1f} points")
    return 0


if __name__ == "__main__":
    sys.exit(main())
