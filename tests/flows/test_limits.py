"""Limits of any subject through the whole gateway: end users at every door, all operations, warnings, other models."""

import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import LocalGateway
from support.shared import Share, usage_of
from support.spending import BODIES, FORMS, JOBS, TOKEN_NUSD, say_in_headers, sent_to, write_mint

from gateway.accounts.limit_drafts import LimitDraft
from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.accounts.spending_limits import LimitInfo, SpendingLimits
from gateway.accounts.teams import create_team, set_team_member
from gateway.admin.owned_limit_changes import OwnedLimits
from gateway.billing.reconciliation import doctor
from gateway.limits.limit_rules import read_action, read_subject
from gateway.limits.owned_rows import parse_owned

CALL_NUSD = 100 * TOKEN_NUSD
ROOM = 1000  # for the rounding of a bound
CALL = {"model": "mint/coin", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}
CHAT, ANTHROPIC, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"


@pytest.fixture
def mint(share: Share) -> FakeUpstream:
    return share.fake(FakeUpstream)


@pytest.fixture
def gateway(share: Share, mint: FakeUpstream) -> Iterator[LocalGateway]:
    """A gateway that sells `coin` for 0.03 USD a call; the books must agree when a test is done."""
    running = share.gateway(lambda folder: write_mint(folder / "catalogue", mint.url))
    yield running
    rest(running)
    assert doctor(running.services.store.database) == []


def rest(gateway: LocalGateway) -> None:
    billing = gateway.services.billing
    gateway.services.store.journal.flush(60)
    billing.settlements.reap()
    billing.spending.maintain(idle_s=-1.0, keep_s=-1.0)


def send(gateway: LocalGateway, path: str = CHAT, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    all_headers = {"Authorization": f"Bearer {gateway.key}", **(headers or {})}
    with httpx.Client(timeout=60) as http:
        return http.post(gateway.address + path, headers=all_headers, json=CALL | body)


def put(
    gateway: LocalGateway, *subjects: str, nusd: int = CALL_NUSD + ROOM, name: str = "one", period: str = "", actions=()
):
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    store = gateway.services.store
    draft = LimitDraft(
        tuple(map(read_subject, subjects)), nusd, period, tuple(map(read_action, actions or ("refuse@100",))), "exact"
    )
    return SpendingLimits(store.database, store.control).put(caller.organization_id, name, draft, actor="operator")


def states(gateway: LocalGateway) -> list[LimitInfo]:
    rest(gateway)
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    store = gateway.services.store
    limits = SpendingLimits(store.database, store.control)
    listed = limits.list_limits(caller.organization_id)
    return [limits.find(caller.organization_id, info.rule.name) for info in listed]


END_USERS = {
    "user": (CHAT, {}, {"user": "ann"}),
    "own header": (CHAT, {"X-LLMGateway-User": "ann"}, {}),
    "Open WebUI": (CHAT, {"X-OpenWebUI-User-Id": "ann"}, {}),
    "LibreChat": (CHAT, {"X-LibreChat-User-Id": "ann"}, {}),
    "LiteLLM": (CHAT, {"x-litellm-end-user-id": "ann"}, {}),
    "Responses": (RESPONSES, {}, {"input": "Hello", "user": "ann", "max_output_tokens": 100}),
    "Responses, present field": (
        RESPONSES,
        {},
        {"input": "Hello", "safety_identifier": "ann", "max_output_tokens": 100},
    ),
    "chat, present field": (CHAT, {}, {"safety_identifier": "ann"}),
    "metadata": (CHAT, {}, {"metadata": {"user_id": "ann"}}),
    "user in metadata": (CHAT, {}, {"metadata": {"user": "ann"}}),
    "Messages": (ANTHROPIC, {}, {"metadata": {"user_id": "ann"}}),
    "Messages with a session": (ANTHROPIC, {}, {"metadata": {"user_id": "ann_session_0199aaaa-bbbb"}}),
    "embeddings": ("/v1/embeddings", {}, {"model": "mint/leaf", "input": f"{'a':<100}", "user": "ann"}),
}


@pytest.mark.parametrize("door", END_USERS)
def test_each_end_user_has_a_limit_at_every_door(door, gateway):
    path, headers, body = END_USERS[door]
    put(gateway, "each user", nusd=CALL_NUSD * 3 // 2)
    assert send(gateway, path, headers, **body).status_code == 200
    refused = send(gateway, path, headers, **body)
    assert (refused.status_code, refused.headers["x-llmgateway-limit"]) == (402, "one; action=refuse")
    assert "each user" in refused.text and "USD are used" in refused.text
    assert send(gateway, user="bob").status_code == 200
    assert {one.member for one in states(gateway)[0].members if one.used_nusd} == {"ann", "bob"}


def test_a_request_that_leaves_out_its_user_falls_under_the_limit_of_those_without(gateway):
    put(gateway, "each user")
    assert [send(gateway).status_code for _ in range(2)] == [200, 402]
    assert send(gateway, user="ann").status_code == 200


def test_a_limit_of_a_model_counts_what_serves_and_the_next_model_takes_over(gateway, mint):
    put(gateway, "model=coin")
    answers = [send(gateway, models=["mint/coin", "mint/book"]) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [row.served for row in usage_of(gateway)] == ["coin", "book"]
    assert states(gateway)[0].state.used_nusd == CALL_NUSD
    assert send(gateway).status_code == 402


def test_a_limit_uses_another_model_when_it_is_nearly_used_up(gateway):
    put(gateway, "organization", nusd=2 * CALL_NUSD + ROOM, actions=("model@49=mint/book", "refuse@100"))
    assert "x-llmgateway-limit" not in send(gateway).headers
    rest(gateway)
    gateway.services.billing.settlements.limits._used.clear()
    answer = send(gateway)
    assert answer.status_code == 200 and answer.headers["x-llmgateway-limit"] == "one; used=49; action=model"
    assert "mint/book serves the request" in answer.headers["x-llmgateway-warnings"]
    assert [row.served for row in usage_of(gateway)] == ["coin", "book"]


def test_a_limit_that_only_warns_says_so_in_the_answer(gateway):
    put(gateway, "organization", nusd=CALL_NUSD, actions=("warn@80",))
    assert send(gateway).status_code == 200
    rest(gateway)
    gateway.services.billing.settlements.limits._used.clear()
    answer = send(gateway)
    assert (answer.status_code, answer.headers["x-llmgateway-limit"]) == (200, "one; used=100; action=warn")


OWNED = {
    "key": ("total", {}),
    "member": ("window", {}),
    "team": ("total", {}),
    "session": ("session", {"X-LLMGateway-Session": "one"}),
    "run": ("run", {"X-LLMGateway-Run": "one"}),
}


def put_owned(gateway: LocalGateway, kind: str, *actions: str, nusd: int = 2 * CALL_NUSD + ROOM) -> str:
    """Set a limit that belongs to the caller's key, member, team or project, and return its id."""
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    stores = gateway.services.store.database, gateway.services.store.control
    owners = {"key": caller.key_id, "member": caller.member_id, "session": caller.key_id, "run": caller.project_id}
    if kind == "team":
        owners["team"] = create_team(*stores, caller.organization_id, "Search", actor="operator").id
        set_team_member(*stores, owners["team"], caller.member_id, True, actor="operator")
    name = parse_owned(f"{owners[kind]}:{OWNED[kind][0]}")
    period = "1d" if name.part == "window" else ""
    draft = LimitDraft(name.subjects, nusd, period, tuple(map(read_action, actions)), "exact")
    OwnedLimits(*stores, True).put(caller.organization_id, name, draft, actor="operator")
    return str(name)


@pytest.mark.parametrize("kind", OWNED)
def test_a_limit_of_an_owner_warns_uses_another_model_and_refuses(kind, gateway):
    name = put_owned(gateway, kind, "warn@40", "model@49=mint/book", "refuse@100")
    headers = OWNED[kind][1]
    assert "x-llmgateway-limit" not in send(gateway, headers=headers).headers
    rest(gateway)
    gateway.services.billing.settlements.limits._used.clear()
    answer = send(gateway, headers=headers)
    assert (answer.status_code, answer.headers["x-llmgateway-limit"]) == (200, f"{name}; used=49; action=model")
    assert [row.served for row in usage_of(gateway)] == ["coin", "book"]
    if kind != "team":
        put_owned(gateway, kind, "refuse@100")
        answers = [send(gateway, headers=headers) for _ in range(3)]
        refused = answers[-1]
        assert refused.status_code == 402 and "USD are used" in refused.text
        named = None if kind in ("session", "run") else f"{name}; action=refuse"
        assert refused.headers.get("x-llmgateway-limit") == named
        if named:
            assert f"/console/budgets/{gateway.organization_id}/{name}" in refused.text
    if kind in ("session", "run"):
        assert send(gateway, headers={f"X-LLMGateway-{kind.title()}": "two"}).status_code == 200


def test_a_limit_of_a_provider_key_warns(gateway):
    caller = gateway.services.accounts.authentication.caller(gateway.key)
    stores = gateway.services.store.database, gateway.services.store.control
    update_project(*stores, caller.project_id, ProjectChange(mode="api-keys"), actor="operator")
    draft = ProviderKeyDraft("mint", "secret-of-mint", max_spend_nusd=2 * CALL_NUSD + ROOM)
    key = gateway.services.management.provider_keys.add(caller.organization_id, draft, actor="operator").id
    name = parse_owned(f"{key}:total")
    draft = LimitDraft(name.subjects, 2 * CALL_NUSD + ROOM, "", (read_action("warn@40"), read_action("refuse@100")))
    OwnedLimits(*stores, True).put(caller.organization_id, name, draft, actor="operator")
    assert "x-llmgateway-limit" not in send(gateway).headers
    rest(gateway)
    gateway.services.billing.settlements.limits._used.clear()
    answer = send(gateway)
    assert (answer.status_code, answer.headers["x-llmgateway-limit"]) == (200, f"{name}; used=49; action=warn")


@pytest.mark.parametrize("path", sorted({*BODIES, *JOBS, *FORMS}))
@pytest.mark.parametrize("subject", ["organization", "each provider"])
def test_every_operation_counts_under_its_limits(path, subject, gateway):
    put(gateway, subject, nusd=100 * CALL_NUSD, period="1d")
    given = sent_to(path, "one")
    headers = {"Authorization": f"Bearer {gateway.key}"}
    if "json" in given:
        headers |= say_in_headers(path, given["json"])
    with httpx.Client(timeout=60, headers=headers) as http:
        answer = http.post(gateway.address + path, **given)
    assert answer.status_code in (200, 201), answer.text
    if path in JOBS:
        return
    spent = sum(row.cost_nusd for row in usage_of(gateway))
    assert spent > 0 and states(gateway)[0].state.used_nusd == spent


SUBJECTS = (
    *("organization", "each user", "user=ann", "no user", "each tag:team", "tag:team=ads", "no tag:team", "each key"),
    *("each model", "model=c*", "model=mint/*", "each provider", "provider=mint", "each application", "each member"),
    *("each session", "session=s1", "each run", "each project", "each team", "no customer", "each provider_key"),
)
PERIODS = ("", "12h", "1d", "2w", "1mo", "day@Europe/Berlin", "month@UTC")
COUNTED = (
    "SELECT COALESCE(SUM(b.settled_nusd + b.past_nusd), 0), COALESCE(SUM(g.nusd), 0) FROM budget b LEFT JOIN "
    "(SELECT t.team AS team, SUM(u.cost_nusd) AS nusd FROM group_usage t JOIN usage u ON u.request = t.request "
    "AND u.attempt = t.attempt AND u.kind = t.kind GROUP BY t.team) g "
    "ON lower(hex(g.team)) = substr(b.scope_id, 5) WHERE b.limit_id = ?"
)
PATHS = sorted({*BODIES, *FORMS} - {"/mcp"})


def put_drawn(gateway: LocalGateway, draw: random.Random) -> None:
    for number in range(draw.randint(2, 7)):
        subjects = draw.sample(SUBJECTS, draw.choice((1, 1, 2)))
        if len({subject.split("=")[0].split(" ")[-1] for subject in subjects}) < len(subjects):
            subjects = subjects[:1]
        actions = draw.choice((("refuse@100",), ("warn@50", "refuse@90"), ("warn@80",)))
        put(
            gateway,
            *subjects,
            nusd=draw.randint(0, 12) * CALL_NUSD,
            name=f"limit{number}",
            period=draw.choice(PERIODS),
            actions=actions,
        )


def put_drawn_owned(gateway: LocalGateway, draw: random.Random) -> list[str]:
    """Set limits of the key, member, team, sessions and runs, some with a raise, and return their ids."""
    store = gateway.services.store
    limits = SpendingLimits(store.database, store.control)
    owned = []
    for kind in draw.sample(sorted(OWNED), draw.randint(0, 3)):
        actions = draw.choice((("refuse@100",), ("warn@50", "alert@70", "refuse@100")))
        if kind in ("session", "run"):
            actions = tuple(action for action in actions if action != "alert@70")
        owned.append(put_owned(gateway, kind, *actions, nusd=draw.randint(0, 12) * CALL_NUSD))
        if draw.random() < 0.5:
            nusd = draw.randint(1, 4) * CALL_NUSD
            limits.grant_raise(gateway.organization_id, owned[-1], nusd, 1 << 52, actor="operator")
    return owned


@pytest.mark.parametrize("seed", range(4))
def test_drawn_limits_and_requests_leave_exact_books(seed, gateway):
    """No budget holds more than its amount, nothing stays reserved, and the rows of a limit's groups are its sum."""
    draw = random.Random(seed)
    put_drawn(gateway, draw)
    owned = put_drawn_owned(gateway, draw)
    statuses = set()
    for _ in range(25):
        path = draw.choice(PATHS)
        given = sent_to(path, "one")
        headers = {"Authorization": f"Bearer {gateway.key}"}
        for name, values in (("User", "ann bob"), ("Team", "ads search"), ("Session", "s1 s2"), ("Run", "r1 r2")):
            value = draw.choice((*values.split(), ""))
            if value:
                headers[f"X-LLMGateway-{name}"] = value
        if "json" in given:
            headers |= say_in_headers(path, given["json"])
        with httpx.Client(timeout=60, headers=headers) as http:
            statuses.add(http.post(gateway.address + path, **given).status_code)
    assert statuses <= {200, 402, 429}
    database = gateway.services.store.database
    counted = 0
    for info in states(gateway):
        for one in info.members:
            assert one.held_nusd == 0
            assert info.rule.limit_nusd is None or one.used_nusd <= info.rule.limit_nusd
        ident = info.rule.id
        [(budget_nusd, rows_nusd)] = database.read(lambda ident=ident: database.fetch(COUNTED, (ident,)))
        assert budget_nusd == rows_nusd
        counted += budget_nusd
    limits = SpendingLimits(database, gateway.services.store.control)
    for name in owned:
        state = limits.find(gateway.organization_id, name).state
        assert state.held_nusd == 0 and state.used_nusd <= (state.limit_nusd or 0)
    # Videos of other organizations on this gateway hold their amounts until they are ready.
    over = (
        "SELECT COUNT(*) FROM budget b WHERE (leased_nusd > 0 OR settled_nusd > limit_nusd) "
        "AND NOT EXISTS (SELECT 1 FROM lease l JOIN hold h ON h.id = l.hold "
        "WHERE l.budget = b.id AND h.organization <> ?)"
    )
    assert database.read(lambda: database.fetch(over, (gateway.organization_id,)))[0][0] == 0
    assert gateway.services.billing.spending.reserved_nusd() == 0
    assert doctor(database) == []
