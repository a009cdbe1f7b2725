"""A session of an agent with two models: four turns, of which the third goes to the other model."""

import json
from dataclasses import dataclass

from contract.contract_gateway import ContractGateway
from contract.vendors import Say
from sessions.agents import AGENTS, REMINDER, Json
from sessions.declared_tools import DECLARED
from sessions.prefixes import difference

OSLO, ROME, LIMA = (json.dumps({"city": name}) for name in ("Oslo", "Rome", "Lima"))
TOOLS = ("weather", "clock")
CALL = Say(tools=(("weather", OSLO),))
END = Say("It rains.")
# The answers of the models in each turn.
SCRIPTS: dict[str, tuple[Say, ...]] = {
    "text": (END, END, END, END),
    "calls": (CALL, CALL, CALL, END),
    "text and calls": (Say("Let me see.", CALL.tools), Say("And now.", CALL.tools), CALL, END),
    "parallel calls": (Say(tools=(("weather", OSLO), ("clock", ROME), ("weather", LIMA))),) * 3 + (END,),
    "thought": (Say(thinking="Hm.", tools=CALL.tools),) * 3 + (Say("It rains.", thinking="Well."),),
    "thought of one model": (Say(thinking="Hm.", tools=CALL.tools),) * 2 + (CALL, END),
    "thought before text": (Say("It rains.", thinking="Hm."),) * 4,
    "images": (CALL, END, CALL, END),
    "instructions within": (CALL, END, CALL, END),
    "failover": (CALL, CALL, CALL, END),
    "failover with thought": (Say(thinking="Hm.", tools=CALL.tools),) * 2 + (CALL, END),
    "custom tool": (Say(tools=(("patch", '{"input": "*** Begin"}'),)),) * 3 + (END,),
    "custom and function": (Say(tools=(("patch", '{"input": "*** Begin"}'), ("weather", OSLO))),) * 3 + (END,),
    "long names": (Say(tools=((DECLARED, OSLO),)),) * 3 + (END,),
    "question before results": (CALL, CALL, CALL, END),
    "empty answer": (CALL, Say(" "), CALL, END),
}
OTHER_TURN = 2


@dataclass(frozen=True)
class Turn:
    """The end of a turn: the status, the answer, and the reasons of the providers that refused it."""

    status: int
    reply: Json
    problems: list[str]


class Session:
    """A session of an agent: `play` runs all turns and raises AssertionError at the first that fails."""

    def __init__(self, stage: ContractGateway, name: str, feature: str, models: tuple[str, str]) -> None:
        self._stage = stage
        self._feature = feature
        self._models = models
        agent = AGENTS[name]
        self._agent = agent(feature, (agent.long_name,) if feature == "long names" else TOOLS)
        self._sent: dict[str, Json] = {}  # the last request that each model got
        self.differences: list[str] = []

    def play(self, streamed: tuple[bool, ...]) -> None:
        for number, say in enumerate(SCRIPTS[self._feature]):
            turn = self._ask(number, say, streamed[number])
            where = f"turn {number + 1} of {self._models}: {turn.status} {turn.problems}"
            assert turn.status == 200 and not turn.problems and not turn.reply.get("error"), f"{where} {turn.reply}"
            self._agent.take(turn.reply)
            if self._feature == "instructions within" and self._agent.instructs:
                self._agent.instruct(REMINDER)

    def _ask(self, number: int, say: Say, streamed: bool) -> Turn:
        first, other = self._models
        fails = number == OTHER_TURN and self._feature.startswith("failover")
        asked = other if number == OTHER_TURN and not fails else first
        headers = {"x-llmgateway-models": named(other)} if fails else {}
        if fails:
            self._stage.script(first, *(Say(broken=503),) * 4, forgets=False)
        answering = other if fails else asked
        self._stage.script(answering, say, forgets=False)
        self._stage.fakes[answering].turn = f"{number}."
        body = {**self._agent.body, "model": named(asked), **({"stream": True} if streamed else {})}
        status, raw = self._stage.send(self._agent.surface, body, described=False, **headers)
        calls = self._stage.calls_of(answering)
        problems = [call.problem for call in calls if call.problem] or ([] if calls else [f"{answering} was not asked"])
        if fails and first != other and not self._stage.calls_of(first):
            problems.append(f"{first} was not asked first")
        if calls and not problems:
            self._compare(answering, calls[-1].body)
        return Turn(status, self._agent.fold(raw) if raw else {}, problems)

    def _compare(self, model: str, body: Json) -> None:
        """Compare the request with the last one that the model got in this session."""
        before = self._sent.get(model)
        self._sent[model] = body
        if before is not None and (changed := difference(before, body)):
            self.differences.append(f"{model}: {changed}")


def named(model: str) -> str:
    return f"fake-{model}/{model}-able"
