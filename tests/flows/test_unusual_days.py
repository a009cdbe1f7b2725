"""A key that spends far more than usual is reported and held on every node, until somebody looks at it."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fakes.openai import Answer, FakeOpenAI
from fakes.server import FakeServer, send_json
from support import postgres
from support.fleet import open_nodes
from support.signed_in_owner import PASSWORD, SignedInOwner
from support.usage import INSERT, usage_row
from support.worker_connections import open_lines

from gateway.clock import DAY_US, SECOND_US
from gateway.metering.rollups.rollup_table import DAILY, Series
from gateway.metering.usage_table import raw_id
from gateway.money import NANO

pytestmark = pytest.mark.extended

WAIT_S = 60
USUAL_NUSD = NANO // 100
MINIMUM_USD = "0.05"
PAST_DAYS = 10
BODY = {"model": "gpt-5", "messages": [{"role": "user", "content": "Hello"}], "max_completion_tokens": 50}


class Receiver(FakeServer):
    """Takes alerts: `calls` are their bodies."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        self.calls.append(environ["wsgi.input"].read().decode())
        return send_json(start, 200, {})


class Installation:
    """Two nodes of two workers on one PostgreSQL, their provider, and a receiver of alerts."""

    def __init__(self, running: ExitStack, databases: postgres.Databases, folder: Path) -> None:
        self.upstream = running.enter_context(FakeOpenAI())
        self.receiver = running.enter_context(Receiver())
        environment = {
            "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD,
            "GATEWAY_BOOTSTRAP_CREDITS_USD": "100",
            "GATEWAY_ALERTS_UNUSUAL_USD": MINIMUM_USD,
            "LLM_OPENAI_API_KEY": "sk-x",
            "LLM_OPENAI_BASE_URL": self.upstream.url,
            "LLM_OPENAI_USE_RESPONSES_API": "false",
        }
        self.nodes = running.enter_context(open_nodes(databases, folder, 2, 2, **environment))
        self.owner = SignedInOwner(self.nodes[0].address)
        self.organization = self.owner("GET", "/orgs")["organizations"][0]["id"]
        self.nodes[0].manage("alerts", "add", self.receiver.address)

    def remember(self, key: dict[str, Any]) -> None:
        """Give a key a past: days with the usual amount."""
        member = self.owner("GET", f"/orgs/{self.organization}/members")["members"][0]["id"]
        now = time.time_ns() // 1_000
        owners = {
            "organization": raw_id(self.organization),
            "project": raw_id(key["projectId"]),
            "api_key": raw_id(key["id"]),
            "member": raw_id(member),
        }
        rows = [
            usage_row(now - day * DAY_US, posted_at=now - SECOND_US, cost_nusd=USUAL_NUSD, provider="openai", **owners)
            for day in range(1, PAST_DAYS + 1)
        ]
        with closing(psycopg.connect(self.nodes[0].environment["DATABASE_URL"], autocommit=True)) as connection:
            connection.cursor().executemany(INSERT.replace("?", "%s"), rows)

    def knows_past_of(self, key: dict[str, Any]) -> bool:
        """Return whether the days of a key are summed up, with the present one so far."""
        sql = "SELECT COUNT(DISTINCT hour) FROM rollup WHERE owner = %s AND series = %s AND cost_nusd > 0"
        with closing(psycopg.connect(self.nodes[0].environment["DATABASE_URL"])) as connection:
            counts = [
                connection.execute(sql, (raw_id(key["id"]), series)).fetchall()[0][0]
                for series in (Series.KEY, Series.KEY + DAILY)
            ]
        return counts[0] > PAST_DAYS and counts[1] >= PAST_DAYS

    def spend(self, token: str, times: int) -> None:
        """Spend some twelve cents a time."""
        for number in range(times):
            self.upstream.script(Answer("Hello.", prompt=100_000, completion=5))
            assert self.nodes[number % len(self.nodes)].post("/v1/chat/completions", BODY, key=token)[0] == 200

    def are_refused(self, token: str) -> bool:
        """Spend some twelve cents unless it is refused; return whether each worker refuses further requests."""
        self.upstream.script(Answer("Hello.", prompt=100_000, completion=5))
        self.nodes[0].post("/v1/chat/completions", BODY, key=token)
        self.upstream.forget_script()  # or the other key pays for it
        return self.answers(token) == {"402 key_period_limit_reached"}

    def answers(self, token: str) -> set[str]:
        """Return the answer of each worker of each node: "200", or status and code."""
        found = set()
        for node in self.nodes:
            for line in open_lines(node):
                status, body = line.post("/v1/chat/completions", BODY, token)
                found.add("200" if status == 200 else f"{status} {body['error']['code']}")
                line.close()
        return found

    def limits(self) -> list[str]:
        return [one["id"] for one in self.owner("GET", f"/orgs/{self.organization}/limits")["limits"]]

    def restart(self) -> None:
        """Restart all nodes: a new leader compares the days within ten seconds."""
        for node in self.nodes:
            node.stop()
            node.start()

    def alerts(self, event: str, about: str) -> list[str]:
        return [call for call in self.receiver.calls if event in call and about in call]


def wait_for(condition: Callable[[], object], about: str) -> None:
    until = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until, about
        time.sleep(0.5)


def test_an_unusual_key_is_held_on_every_node_until_somebody_looks(
    postgres_databases: postgres.Databases, tmp_path: Path
) -> None:
    with ExitStack() as running:
        site = Installation(running, postgres_databases, tmp_path)
        settings = f"/orgs/{site.organization}/outcome-settings"
        assert site.owner("PUT", settings, {"holdUnusual": True})["holdUnusual"] is True
        runaway, calm = (site.owner.make_key(description=name) for name in ("runaway", "calm"))
        for key in (runaway, calm):
            site.remember(key)
        site.spend(runaway["token"], 3)
        assert site.answers(runaway["token"]) == {"200"}

        wait_for(lambda: site.knows_past_of(runaway), "the usage is not summed up")
        site.restart()
        name = f"unusual-{runaway['id']}"
        wait_for(lambda: name in site.limits(), "the key is not held")
        assert site.limits() == [name]  # the other key is not
        # It may spend its usual amount, counted from now on, and no more on any node.
        wait_for(lambda: site.are_refused(runaway["token"]), "a worker does not hold it")
        assert site.answers(calm["token"]) == {"200"}
        wait_for(lambda: site.alerts("usage.unusual", runaway["id"]), "there is no alert")
        (alert,) = site.alerts("usage.unusual", runaway["id"])
        assert name in alert and "$0.01" in alert
        actions = [one["action"] for one in site.owner("GET", f"/orgs/{site.organization}/audit?limit=5")["entries"]]
        assert any(action.startswith("limit.") for action in actions), actions
        # Somebody looked at it, at the other node.
        site.nodes[1].manage("limits", "delete", name)
        wait_for(lambda: site.answers(runaway["token"]) == {"200"}, "a worker still holds it")
        site.restart()
        time.sleep(15)
        assert site.limits() == [] and site.answers(runaway["token"]) == {"200"}  # once a day
        assert len(site.alerts("usage.unusual", runaway["id"])) == 1
