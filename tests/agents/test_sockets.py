"""Conversations over WebSockets of the Responses API, with the OpenAI SDK for Node and with Codex: on one node with
SQLite, and on two nodes with PostgreSQL and Redis that restart one after the other."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gevent
import psycopg
import pytest
from agents.clients import CLIENTS, Gateway, Run
from agents.rows import usage_of
from agents.upstreams import DONE, Job, ModelAtCompatible, Place
from fakes import openai
from support import npm
from support.fleet import Fleet, wait_until
from support.gateways import GatewayProcess
from support.postgres import Databases
from support.prepared import SECRETS

HERE = Path(__file__).parent
PACKAGES = {"openai": "7.57.0", "ws": "8.23.0"}
TURNS = 20
WORKERS = 2  # of each node
RESTARTS = (6, 13)  # the turns in which a node begins its restart
RUN_S = 300
PROVIDER = "groq"
MODEL = f"{PROVIDER}/gpt-oss-120b"


class ModelOfManyTurns(ModelAtCompatible):
    """Calls the client's shell until there were TURNS turns. `before` is called with the number of each turn."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.before: Callable[[int], None] = lambda number: None

    def _work(self, body: dict[str, Any]) -> openai.Answer:
        number = sum(message["role"] == "assistant" for message in body["messages"])
        self.before(number)
        if "tools" not in body:
            return openai.Answer(f"Answer {number}.", prompt=100, completion=10)
        command = f"echo {number} >> {self._job.path}"
        calls = () if number == TURNS - 1 else (("exec_command", json.dumps({"cmd": command})),)
        return openai.Answer("" if calls else DONE, tools=calls, prompt=1000, completion=20)


PLACE = Place(MODEL, PROVIDER, ModelOfManyTurns)


@pytest.fixture
def model(job: Job) -> Iterator[ModelOfManyTurns]:
    with ModelOfManyTurns(job) as fake:
        yield fake


@pytest.fixture
def fleet(
    tmp_path: Path, postgres_databases: Databases, redis_url: str, model: ModelOfManyTurns
) -> Iterator["RestartingFleet"]:
    """Two nodes behind nginx, with PostgreSQL and Redis."""
    url = postgres_databases.take()
    environment = SECRETS | PLACE.environment(model.url) | {"DATABASE_URL": url, "REDIS_URL": redis_url}
    (tmp_path / "nodes").mkdir()
    running = Fleet(tmp_path / "nodes", 2, WORKERS, GATEWAY_LOG_REQUESTS="json", **environment)
    try:
        yield RestartingFleet(running, url)
    finally:
        running.stop()
        postgres_databases.give(url)


class RestartingFleet:
    """Restarts one node after the other; a node that leaves finishes its turns."""

    def __init__(self, fleet: Fleet, url: str) -> None:
        self.fleet = fleet
        self.url = url
        self._restarts: list[gevent.Greenlet[..., None]] = []

    def restart_at(self, number: int) -> None:
        """Begin the next node's restart if the turn is one of RESTARTS: its workers begin no further turn. The former
        node is up again before."""
        if number in RESTARTS[len(self._restarts) :]:
            gevent.joinall(self._restarts, raise_error=True)
            node = self.fleet.nodes[len(self._restarts)]
            node.terminate()
            self._restarts.append(gevent.spawn(self._start_again, node))
            wait_until(lambda: node.log().count("Worker shuts down") >= WORKERS)

    def _start_again(self, node: GatewayProcess) -> None:
        node.wait(60)
        node.start()

    def wait(self) -> None:
        gevent.joinall(self._restarts, raise_error=True)
        assert len(self._restarts) == len(RESTARTS)

    def costs(self) -> list[int]:
        """Return the price of each turn."""
        sql = "SELECT cost_nusd FROM usage WHERE provider = %s ORDER BY at"
        with closing(psycopg.connect(self.url)) as connection:
            return [row[0] for row in connection.execute(sql, [PROVIDER])]

    def upgrades(self) -> int:
        """Return how many WebSockets nginx passed on."""
        access = (self.fleet.nodes[0].data.parent / "access.log").read_text()
        return access.count('"GET /v1/responses" 101')

    def check(self, turns: int) -> None:
        """Each turn has one row with its price, and the ledger agrees."""
        self.wait()
        wait_until(lambda: len(self.costs()) >= turns)
        assert len(self.costs()) == turns and 0 not in self.costs()
        assert "The books agree." in self.fleet.nodes[0].manage("doctor")


def run_node(cache: Path, address: str, key: str, store: bool) -> dict[str, Any]:
    folder = cache / "openai"
    npm.install(folder, PACKAGES)
    command = [npm.node(cache), HERE / "sockets.mjs", folder, address, key, MODEL, TURNS, str(store).lower()]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("store", [True, False])
def test_the_sdk_for_node_holds_a_chain_of_twenty_turns(
    store: bool, cache: Path, serve: Callable[..., tuple[GatewayProcess, list[ModelOfManyTurns]]]
) -> None:
    gateway, (model,) = serve(PLACE)
    result = run_node(cache, gateway.address, gateway.key, store)
    assert result["texts"] == [f"Answer {number}." for number in range(TURNS)]
    assert result["reconnects"] == 0 and result["streams"] == ["Answer 0."] * 2
    last = model.calls[TURNS - 1].body["messages"]
    assert [message["content"] for message in last[-3:]] == ["Question 18", "Answer 18.", "Question 19"]
    rows = usage_of(gateway)
    assert len(rows) == len(model.calls) == TURNS + 2 and {row[1] for row in rows} == {110}


@pytest.mark.parametrize("store", [True, False])
def test_the_sdk_for_node_holds_a_chain_through_a_rolling_restart_of_two_nodes(
    store: bool, cache: Path, model: ModelOfManyTurns, fleet: RestartingFleet
) -> None:
    model.before = fleet.restart_at
    result = run_node(cache, fleet.fleet.address, fleet.fleet.key, store)
    assert result["texts"] == [f"Answer {number}." for number in range(TURNS)]
    assert result["reconnects"] >= 1 and fleet.upgrades() == result["reconnects"] + 1
    assert len(model.calls) == TURNS + 2
    fleet.check(len(model.calls))


def run_codex(program: Path, job: Job, model: ModelOfManyTurns, address: str, key: str) -> Run:
    """Let Codex run a command in each turn but the last one, and check that each ran once and in order."""
    user = Gateway(address, key)
    run = CLIENTS["codex over a socket"].run(program, Path(job.folder), user, MODEL, "Count.", False)
    assert run.code == 0 and DONE in run.out, run
    assert Path(job.path).read_text().split() == [str(number) for number in range(TURNS - 1)], run
    assert not [call.problem for call in model.calls if call.status != 200], run
    assert len(model.calls) == TURNS, run
    return run


def test_codex_holds_a_chain_of_twenty_turns(
    programs: dict[str, Path], job: Job, serve: Callable[..., tuple[GatewayProcess, list[ModelOfManyTurns]]]
) -> None:
    gateway, (model,) = serve(PLACE)
    run_codex(programs["codex"], job, model, gateway.address, gateway.key)
    assert "POST /v1/responses" not in gateway.log()
    assert [row[1] for row in usage_of(gateway)] == [1020] * TURNS


def test_codex_holds_a_chain_through_a_rolling_restart_of_two_nodes(
    programs: dict[str, Path], job: Job, model: ModelOfManyTurns, fleet: RestartingFleet
) -> None:
    model.before = fleet.restart_at
    run = run_codex(programs["codex"], job, model, fleet.fleet.address, fleet.fleet.key)
    fleet.check(TURNS)
    assert fleet.upgrades() >= 2, run
    assert not [node for node in fleet.fleet.nodes if "POST /v1/responses" in node.log()], run
