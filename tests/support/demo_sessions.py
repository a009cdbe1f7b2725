"""A session of a coding agent with retained payloads: a side call, a main agent, a sub-agent, and a lost cache."""

from typing import Any, NamedTuple

import orjson
from support.gateways import LocalGateway
from support.usage import insert_rows, usage_row

from gateway.accounts.keys import list_keys
from gateway.callers.vault import Vault
from gateway.clock import DAY_US, MINUTE_US, SECOND_US
from gateway.metering import payload_table
from gateway.metering.payload_table import PayloadRow
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.store.database import Database

SESSION = "refactoring-billing"
SOURCE = "claude.com/claude-code"
MODEL = "claude-sonnet-4-5"
MESSAGES = "/v1/messages"
MARK = {"type": "ephemeral"}
TASK = "Move the discount rules out of the billing service, and keep its tests green."
SUB_TASK = "Find every caller of apply_discount and list the file and line of each."
SYSTEM = "You are Claude Code, an agent for software engineering. Working directory: /srv/shop. "
SUB_SYSTEM = "You are an agent for Claude Code. Report what you find, and nothing else. "
FOUND = "cart.py:12\nquote.py:80\napi.py:7"
INPUT = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = {"name": "Read", "description": "Read a file.", "input_schema": INPUT}
GREP = {"name": "Grep", "description": "Search files for a pattern.", "input_schema": {"type": "object"}}
AGENT = {
    "name": "Agent",
    "description": "Start a sub-agent with a task of its own.",
    "input_schema": {"type": "object"},
}
TODAY = {"name": "Today", "description": "It is 3 June.", "input_schema": {"type": "object"}}


class DemoTurn(NamedTuple):
    """A turn: seconds after the beginning of the session, duration, tokens (fresh, cached, written, output), the body
    and the blocks of its answer."""

    second: int
    duration_s: float
    tokens: tuple[int, int, int, int]
    body: dict[str, Any]
    answer: list[dict[str, Any]]
    model: str = MODEL


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(number: int, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": given}


def result(number: int, said: str, **more: Any) -> dict[str, Any]:
    content = [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": said, **more}]
    return {"role": "user", "content": content}


def make_turns() -> list[DemoTurn]:
    """Return the turns of the session, in order."""
    tools = [READ, GREP, AGENT]
    system = [text(SYSTEM + "Keep changes small. " * 40, cache_control=MARK)]
    title = {
        "model": "claude-haiku-4-5",
        "max_tokens": 60,
        "system": "Generate a concise title for this conversation.",
        "messages": [{"role": "user", "content": TASK}],
    }

    def ask(messages: list[Any], **more: Any) -> dict[str, Any]:
        return {"model": MODEL, "max_tokens": 8000, "tools": tools, "system": system, "messages": messages, **more}

    thinking = {
        "type": "thinking",
        "thinking": "The rules are in billing/discounts.py. I read it first.",
        "signature": "x",
    }
    first = [{"role": "user", "content": [text("<system-reminder>Be brief.</system-reminder>"), text(TASK)]}]
    one = [thinking, text("I read the rules first."), use(1, "Read", path="billing/discounts.py")]
    second = [*first, {"role": "assistant", "content": one}, result(1, "def apply_discount(order): ...\n" * 12)]
    two = [text("A sub-agent looks for the callers."), use(2, "Agent", prompt=SUB_TASK)]
    third = [*second, {"role": "assistant", "content": two}, result(2, "3 callers: cart.py:12, quote.py:80, api.py:7")]
    three = [text("Three callers. I move the rules into `pricing/rules.py`."), use(3, "Read", path="cart.py")]
    fourth = [*third, {"role": "assistant", "content": three}, result(3, "No such file: cart.py", is_error=True)]
    four = [text("The rules are in **pricing/rules.py** now, and all tests pass.\n\n- cart.py\n- quote.py\n- api.py")]
    sub = {"model": MODEL, "max_tokens": 4000, "tools": [READ, GREP], "system": SUB_SYSTEM + "Search first. " * 20}
    sub_first = [{"role": "user", "content": SUB_TASK}]
    sub_one = [use(21, "Grep", pattern="apply_discount")]
    sub_second = [
        *sub_first,
        {"role": "assistant", "content": sub_one},
        result(21, "cart.py:12\nquote.py:80\napi.py:7"),
    ]
    sub_two = [text("3 callers: cart.py:12, quote.py:80, api.py:7")]
    return [
        DemoTurn(0, 0.8, (410, 0, 0, 12), title, [text("Move discount rules")], "claude-haiku-4-5"),
        DemoTurn(1, 6.1, (30, 0, 14_200, 310), ask(first), one),
        DemoTurn(9, 4.4, (40, 14_200, 900, 150), ask(second), two),
        DemoTurn(14, 3.2, (60, 0, 6_100, 90), {**sub, "messages": sub_first}, sub_one),
        DemoTurn(19, 4.9, (70, 6_100, 400, 120), {**sub, "messages": sub_second}, sub_two),
        DemoTurn(26, 7.7, (50, 15_100, 1_200, 420), ask(third), three),
        DemoTurn(36, 9.3, (17_900, 0, 500, 380), ask(fourth, tools=[*tools, TODAY]), four),
    ]


def add_demo_session(
    database: Database, vault: Vault, owners: dict[str, bytes], begins_us: int, session: str = SESSION
) -> list[UsageRecord]:
    """Add the session of the owner with these raw ids (organization, project, api_key, member), and return its rows."""
    rows = []
    payloads = []
    for turn in make_turns():
        fresh, cached, written, output = turn.tokens
        at = begins_us + turn.second * SECOND_US
        costs = {"input_nusd": fresh * 3_000, "output_nusd": output * 15_000}
        costs |= {"cached_nusd": cached * 300, "cache_write_nusd": written * 3_750}
        row = usage_row(
            at,
            **owners,
            **costs,
            session=session,
            source=SOURCE,
            operation="chat",
            provider="anthropic",
            asked=turn.model,
            served=turn.model,
            status=200,
            finish="stop",
            input=fresh,
            cache_read=cached,
            cache_write=written,
            output=output,
            cost_nusd=sum(costs.values()),
            duration_ms=round(turn.duration_s * 1_000),
            ttft_ms=round(turn.duration_s * 200),
        )
        rows.append(row)
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": turn.model, "content": turn.answer}
        payloads.append(pack_payload(vault, row, MESSAGES, orjson.dumps(turn.body), orjson.dumps(answer)))
    insert_rows(database, *rows)
    insert_payloads(database, payloads)
    return rows


def add_session_of(gateway: LocalGateway) -> list[UsageRecord]:
    """Add the session to the first project of a gateway, with its first key, a minute ago."""
    store = gateway.services.store
    key = list_keys(store.database, project_ids=[gateway.project_id])[0]
    ids = (gateway.organization_id, key.project_id, key.id, key.member_id)
    owners = dict(zip(("organization", "project", "api_key", "member"), map(raw_id, ids), strict=True))
    return add_demo_session(store.database, store.vault, owners, gateway.services.clock.now_us() - MINUTE_US)


def pack_payload(vault: Vault, row: UsageRecord, path: str, sent: bytes, answer: bytes) -> PayloadRow:
    """Return the retained payload of a request with this usage row."""
    return PayloadRow(
        *(row.request, row.organization, row.project, row.api_key, row.member, row.at, row.at + 30 * DAY_US),
        *(row.operation, path, row.asked, f"{row.provider}/{row.served}", 200, 0, len(sent), len(answer)),
        sent=payload_table.pack(vault, sent),
        answer=payload_table.pack(vault, answer),
        raw=None,
    )


def insert_payloads(database: Database, payloads: list[PayloadRow]) -> None:
    def work() -> None:
        for payload in payloads:
            statement, values = payload_table.write_row(payload)
            database.execute(statement.sql, values)

    database.write(work)
