"""A key of two dollars a day works through an agent's day of prompts of 200 KB that costs $1.80."""

import pytest
import requests
from fakes.anthropic import Answer, FakeAnthropic
from support.shared import Share
from support.signed_in_owner import PASSWORD, SignedInOwner

MODEL = "anthropic/claude-sonnet-4-5"  # 3, 15, 0.30 and 3.75 dollars a million tokens: fresh, output, read, written
MILLION = 1_000_000
PROMPT_BYTES, BYTES_PER_TOKEN = 200_000, 4
NEW_BYTES, NEW_TOKENS, OUTPUT = 2_000, 500, 300
DAY_USD = 1.80
CODE = 'def read(path: str) -> dict[str, int]:\n    return {"x": len(path)}\n\n'
HEADERS = {"anthropic-version": "2023-06-01", "x-claude-code-session-id": "57a121ec-f78c-48c3-a745-e3036a3ecc33"}
PROMPT = CODE * (PROMPT_BYTES // len(CODE))
TWO_A_DAY = {"periodUsageLimit": "2", "periodUsageDurationValue": 1, "periodUsageDurationUnit": "day"}
TOOLS = [{"name": "read_file", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}]


def answers() -> list[tuple[Answer, float]]:
    """Return the provider's answers of a day and what each costs: the first writes the prompt to the cache, each
    further one reads it and writes what is new."""
    tokens = PROMPT_BYTES // BYTES_PER_TOKEN
    day = [(Answer("Read.", input=5, output=OUTPUT, cache_5m=tokens), (15 + 3.75 * tokens + 15 * OUTPUT) / MILLION)]
    while True:
        cost = (15 + 0.30 * tokens + 3.75 * NEW_TOKENS + 15 * OUTPUT) / MILLION
        if sum(known for _, known in day) + cost > DAY_USD:
            return day
        answer = Answer("Read.", input=5, output=OUTPUT, cache_read=tokens, cache_5m=NEW_TOKENS)
        day.append((answer, cost))
        tokens += NEW_TOKENS


@pytest.fixture
def vendor(share: Share) -> FakeAnthropic:
    return share.fake(FakeAnthropic)


@pytest.fixture
def desk(share: Share, vendor: FakeAnthropic) -> SignedInOwner:
    """The owner of a gateway with the fake as its provider `anthropic`."""
    environment = {"LLM_ANTHROPIC_API_KEY": "sk-ant-up", "LLM_ANTHROPIC_BASE_URL": vendor.url}
    return SignedInOwner(share.gateway({**environment, "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}).address)


def send(desk: SignedInOwner, token: str, messages: list[dict[str, str]]) -> requests.Response:
    body = {"model": MODEL, "max_tokens": 32_000, "tools": TOOLS, "messages": messages}
    headers = {**HEADERS, "Authorization": f"Bearer {token}"}
    return requests.post(f"{desk.address}/v1/messages", json=body, headers=headers, timeout=30)


def test_a_key_of_two_dollars_a_day_works_through_a_day_of_large_prompts(
    desk: SignedInOwner, vendor: FakeAnthropic
) -> None:
    key = desk.make_key(**TWO_A_DAY)
    assert key["reservation"] == "likely"
    day = answers()
    assert len(day) > 60
    messages = [{"role": "user", "content": PROMPT}]
    refused = []
    for answer, _ in day:
        vendor.script(answer)
        got = send(desk, key["token"], messages)
        if got.status_code != 200:
            refused.append(got.text)
        messages += [{"role": "assistant", "content": "Read."}, {"role": "user", "content": PROMPT[:NEW_BYTES]}]
    assert not refused
    spent = float(desk("GET", f"/keys/api/{key['id']}")["apiKey"]["currentPeriodUsage"])
    assert spent == pytest.approx(sum(cost for _, cost in day))
    assert 1.75 < spent <= DAY_USD


def test_an_exact_limit_of_two_dollars_a_day_refuses_such_a_prompt(desk: SignedInOwner, vendor: FakeAnthropic) -> None:
    key = desk.make_key(**TWO_A_DAY, reservation="exact")
    assert key["reservation"] == "exact"
    got = send(desk, key["token"], [{"role": "user", "content": PROMPT}])
    assert got.status_code == 402 and not vendor.calls
    desk("PATCH", f"/keys/api/limit/{key['id']}", {"reservation": "likely"})
    vendor.script(Answer("Read."))
    assert send(desk, key["token"], [{"role": "user", "content": PROMPT}]).status_code == 200
