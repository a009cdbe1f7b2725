"""A gateway with ClickHouse (its real engine): usage arrives there, reports and `doctor` use it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.openai import FakeOpenAI
from support import warm
from support.clickhouse_server import PASSWORD, ClickHouseServer, run_clickhouse
from support.gateways import GatewayProcess
from support.spending import SECRETS, until

pytestmark = pytest.mark.slow

BODY = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20}
TABLE = "llmgateway_usage"
REQUESTS = 12


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClickHouseServer]:
    with run_clickhouse(tmp_path) as running:
        yield running


def manage(gateway: GatewayProcess, *arguments: str) -> tuple[int, str]:
    done = warm.run(["gateway.operator.command", *arguments], gateway.environment)
    return done.returncode, done.stdout + done.stderr


def counted(server: ClickHouseServer) -> Any:
    try:
        return server.query(f"SELECT count(), sum(cost_nusd) FROM {TABLE} FINAL")[0]
    except AssertionError:
        return [0, 0]  # the table does not exist yet


@pytest.mark.extended
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_usage_reaches_clickhouse_and_reports_come_from_there(
    process: Callable[..., GatewayProcess], server: ClickHouseServer, request: pytest.FixtureRequest, store: str
) -> None:
    database = {} if store == "sqlite" else {"DATABASE_URL": request.getfixturevalue("postgresql_url")}
    with FakeOpenAI() as upstream:
        gateway = process(
            1,
            **SECRETS,
            **database,
            LLM_OPENAI_BASE_URL=upstream.url,
            LLM_OPENAI_API_KEY="x",
            GATEWAY_ALLOW_PRIVATE_UPSTREAMS="true",
            GATEWAY_ANALYTICS_CLICKHOUSE_URL=server.url,
            GATEWAY_ANALYTICS_REPORTS="clickhouse",
        )
        headers = {"Authorization": f"Bearer {gateway.key}"}
        with httpx.Client(timeout=60) as http:
            for _ in range(REQUESTS):
                assert http.post(f"{gateway.url}/chat/completions", json=BODY, headers=headers).status_code == 200
        assert until(lambda: counted(server)[0] == REQUESTS)
    status = manage(gateway, "status")[1]
    assert f"{server.origin}/statistics; usage rows delivered until" in status and PASSWORD not in status
    assert manage(gateway, "doctor") == (0, "The books agree.\n")
    # A row that only ClickHouse has shows where a report came from.
    extra = f"SELECT * REPLACE ('other-model' AS served, request || 'ff' AS request) FROM {TABLE} FINAL LIMIT 1"
    server.execute(f"INSERT INTO {TABLE} {extra}")
    code, lines = manage(gateway, "spend", "--by", "model")
    assert code == 0 and "other-model" in lines
    code, lines = manage(gateway, "doctor")
    assert code == 1 and f"ClickHouse has {REQUESTS + 1} usage rows" in lines and f"the database {REQUESTS} of" in lines
    assert PASSWORD not in gateway.log() and PASSWORD not in manage(gateway, "config", "show")[1]


def test_an_invalid_address_ends_the_start_with_the_name_of_its_setting(
    process: Callable[..., GatewayProcess],
) -> None:
    gateway = process(1, **SECRETS)
    gateway.environment["GATEWAY_ANALYTICS_CLICKHOUSE_URL"] = "clickhouse://secret@host"
    code, text = manage(gateway, "keys", "list")
    assert code != 0 and "GATEWAY_ANALYTICS_CLICKHOUSE_URL" in text and "secret" not in text
