"""The reports of `/mcp` equal the upstream's own log of calls after a mixed load with killed workers."""

import http.client
import json
import random
from collections import Counter
from itertools import count
from typing import Any

import gevent
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess, Start
from support.spending import TOKEN_NUSD, PaymentResult, at_once, pay, query, reserved_nusd, until
from support.worker_kills import kill_by_chance

pytestmark = pytest.mark.extended

WORKERS, CALLERS = 3, 8
APPS = ("agent-a", "agent-b")
INTERRUPTED = "SELECT count(*) FROM usage WHERE finish = 'interrupted'"
Json = dict[str, Any]


def call_tool(
    gateway: GatewayProcess, tool: str, key: str, mark: str = "", source: str = "", **arguments: Any
) -> PaymentResult:
    """Call a tool over a separate connection; the status is 0 when the connection broke."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Accept": "application/json"}
    headers |= {"x-request-id": mark, "x-source": source} if mark else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    connection = http.client.HTTPConnection(gateway.address.removeprefix("http://"), timeout=60)
    try:
        connection.request("POST", "/mcp", json.dumps(body), headers)
        answer = connection.getresponse()
        answer_json = json.loads(answer.read())
    except (OSError, http.client.HTTPException):
        return PaymentResult(0)
    finally:
        connection.close()
    return PaymentResult(
        answer.status, "error" if answer_json.get("result", {}).get("isError") else "", answer_json.get("result")
    )


def load(gateway: GatewayProcess, keys: list[str], stopping: list[bool], results: dict[str, PaymentResult]) -> None:
    """Run callers that chat by the tool and over `/v1`, with either key, and continue after any error.

    Each result is stored under the mark of its call, which begins with its app and its key's number."""
    numbers = count()

    def caller(number: int) -> None:
        chance = random.Random(number)
        while not stopping:
            app, key = chance.randrange(2), chance.randrange(2)
            mark = f"{APPS[app]}.{key}.{next(numbers)}"
            prompt = f"mark:{mark} wait:{chance.choice((0, 0.01, 0.1))}"
            if chance.random() < 0.7:
                talk = [{"role": "user", "content": prompt}]
                arguments = {"model": "mint/coin", "messages": talk, "max_tokens": 100}
                results[mark] = call_tool(gateway, "chat", keys[key], mark, APPS[app], **arguments)
            else:
                results[mark] = pay(gateway, mark, prompt, keys[key])
            if not results[mark].status:
                gevent.sleep(0.01)

    at_once(CALLERS, caller, 600)


def report(gateway: GatewayProcess, tool: str, key: str, **arguments: Any) -> Json:
    result = call_tool(gateway, tool, key, **arguments)
    assert result.status == 200 and not result.code, result
    shown: Json = result.body["structuredContent"]
    return shown


@pytest.mark.parametrize("rounds", [3, pytest.param(60, marks=pytest.mark.soak)])
def test_reports_equal_the_upstreams_own_log(start: Start, mint: FakeUpstream, rounds: int) -> None:
    gateway = start(workers=WORKERS, GATEWAY_BOOTSTRAP_CREDITS_USD="100000")
    organization = json.loads(gateway.manage("organizations", "list", "--json"))[0]["id"]
    added = json.loads(gateway.manage("members", "add", organization, "dev@localhost", "--json"))
    output = gateway.manage("keys", "create", "--description", "theirs", "--member", added["id"]).split()
    theirs = next(part for part in output if part.startswith("llmgtwy_"))
    stopping: list[bool] = []
    results: dict[str, PaymentResult] = {}
    running = gevent.spawn(load, gateway, [gateway.key, theirs], stopping, results)
    kill_by_chance(gateway, rounds, WORKERS)
    # On a busy machine the first kills can meet workers without requests.
    assert until(lambda: query(gateway, INTERRUPTED) != [(0,)] or not kill_by_chance(gateway, 1, WORKERS))
    stopping.append(True)
    running.join()
    assert until(lambda: reserved_nusd(gateway) == 0)
    assert "The books agree." in gateway.manage("doctor")  # sums up what was used so far
    rows = {mark: (finish, cost) for mark, finish, cost in query(gateway, "SELECT label, finish, cost_nusd FROM usage")}
    # Called, or killed between the word that it left and its first byte upstream.
    called = Counter(mint.marks())
    assert set(called) <= set(rows) and max(called.values()) == 1
    assert all(rows[mark][0] == "interrupted" for mark in set(rows) - set(called))
    assert len(called) > rounds

    def check(key: str, rows: dict[str, tuple[str, int]]) -> None:
        totals = report(gateway, "get-usage", key)["totals"]
        assert totals["requestCount"] == len(rows)
        assert round(totals["costUsd"] * 1e9) == sum(cost for _, cost in rows.values())
        whole = [mark for mark, (finish, _) in rows.items() if finish == "stop"]
        assert sum(rows[mark][1] for mark in whole) == len(whole) * 100 * TOKEN_NUSD
        by_key = report(gateway, "get-usage-breakdown", key, group_by="api_key")["rows"]
        assert sum(row["requestCount"] for row in by_key) == len(rows)

    check(gateway.key, rows)
    own = {mark: row for mark, row in rows.items() if mark.split(".")[1] == "1"}
    check(theirs, own)
    assert len(report(gateway, "get-usage-breakdown", theirs, group_by="api_key")["rows"]) == 1
    assert len(report(gateway, "get-usage-breakdown", gateway.key, group_by="api_key")["rows"]) == 2
