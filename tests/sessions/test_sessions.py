"""Agents that change the model, and with it the vendor and its protocol, within a session: no session gets stuck.

Each session has four turns: two with the first model, one with the other (which also answers for a first model that
fails), and one with the first again. Each pair of models plays a third of the features on each surface, whole and
streamed; with EVERY_SESSION=1 (`make sessions`) all of them.
"""

import os
from collections.abc import Iterator

import pytest
from contract.contract_gateway import ContractGateway
from sessions.agents import AGENTS
from sessions.session import SCRIPTS, Session
from sessions.vendors import pairs

pytestmark = pytest.mark.extended
TURNS = 4
SHARE = 1 if os.environ.get("EVERY_SESSION") else 3  # one of this many pairs is played in each way


def _ways() -> Iterator[tuple[str, str]]:
    for name, agent in AGENTS.items():
        for feature in SCRIPTS:
            if feature.startswith("custom") and not agent.custom:
                continue
            if feature == "instructions within" and not agent.instructs:
                continue
            if agent.features and feature not in agent.features:
                continue
            yield name, feature


def _streamed(number: int) -> tuple[bool, ...]:
    """Return which turns are streamed: each of the sixteen combinations in its turn."""
    return tuple(bool((number * 7 >> place) & 1) for place in range(TURNS))


WAYS = list(_ways())


@pytest.mark.parametrize(("agent", "feature"), WAYS)
def test_a_session_goes_on_with_every_other_model(
    stage: ContractGateway, agent: str, feature: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck = []
    rewritten = []
    first = WAYS.index((agent, feature)) % SHARE
    played = list(enumerate(pairs()))[first::SHARE]
    for number, models in played:
        session = Session(stage, agent, feature, models)
        try:
            session.play(_streamed(number))
        except AssertionError as failure:
            stuck.append(str(failure)[:1000])
        rewritten += session.differences
    with capsys.disabled():
        print(f"\n{len(played)} sessions: {feature} on {agent}")
    assert not stuck, f"{len(stuck)} sessions got stuck: " + "\n".join(stuck)
    assert not rewritten, "a provider's prompt cache is lost: " + "\n".join(rewritten)
