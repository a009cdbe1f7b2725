"""Reports read a replica while it is up to date, and the primary otherwise; with real streaming replication."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psycopg
import pytest
from fakes.openai import FakeOpenAI
from support.gateways import LocalGateway, local_gateway
from support.postgres_servers import PostgresServer, open_folder
from support.spending import SECRETS

from gateway.accounts.members import list_members
from gateway.configuration.settings import Settings

pytestmark = [pytest.mark.postgresql, pytest.mark.slow, pytest.mark.extended]

BODY = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 20}
PATIENCE_S = 120.0
MUCH_S = "80000"


@pytest.fixture
def servers() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """A primary and its standby."""
    with open_folder() as folder:
        primary = PostgresServer(folder).create()
        try:
            standby = primary.start_standby(synchronous=False)
            try:
                yield primary, standby
            finally:
                standby.stop()
        finally:
            primary.stop()


class Reader:
    """A gateway and the reports that its owner reads."""

    def __init__(self, gateway: LocalGateway) -> None:
        self.gateway = gateway
        root = list_members(gateway.services.store.database)[0]
        session = gateway.services.management.sessions.open(root.user_id)
        self._http = httpx.Client(base_url=gateway.address, timeout=60)
        self._session = {"Authorization": f"Bearer {session.token}"}

    def send_chat(self) -> str:
        """Make a request and return its id."""
        headers = {"Authorization": f"Bearer {self.gateway.key}"}
        answer = self._http.post("/v1/chat/completions", json=BODY, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["metadata"]["log_id"]

    def read(self, path: str, **query: str) -> Any:
        answer = self._http.get(path, params=query, headers=self._session)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def listed(self) -> set[str]:
        return {log["id"] for log in self.read("/logs")["logs"]}


def until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)


EXCLUSIVE = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted"


def pause_replay(standby: PostgresServer) -> None:
    """Pause the replay where it holds no table: a new partition is locked until the end of its transaction."""
    with psycopg.connect(standby.url, autocommit=True) as connection:

        def is_paused() -> bool:
            connection.execute("SELECT pg_wal_replay_pause()")
            until(lambda: connection.execute("SELECT pg_get_wal_replay_pause_state()").fetchone() == ("paused",))
            if connection.execute(EXCLUSIVE).fetchone() == (0,):
                return True
            connection.execute("SELECT pg_wal_replay_resume()")
            return False

        until(is_paused)


def resume_replay(standby: PostgresServer) -> None:
    with psycopg.connect(standby.url, autocommit=True) as connection:
        connection.execute("SELECT pg_wal_replay_resume()")


@pytest.fixture
def start(
    settings: Callable[..., Settings],
    servers: tuple[PostgresServer, PostgresServer],
    upstream_environment: dict[str, str],
    upstream: FakeOpenAI,
) -> Callable[[str], Any]:
    primary, standby = servers
    environment = upstream_environment | SECRETS | {"DATABASE_URL": primary.url}
    replica = {"GATEWAY_DATABASE_REPLICA_URL": standby.url}

    def make(lag_s: str) -> Any:
        return local_gateway(settings, **environment, **replica, GATEWAY_DATABASE_REPLICA_LAG_S=lag_s)

    return make


def test_reports_read_the_replica_and_money_the_primary(
    start: Callable[[str], Any], servers: tuple[PostgresServer, PostgresServer]
) -> None:
    standby = servers[1]
    with start(MUCH_S) as gateway:
        replica = gateway.services.store.database.replica
        until(replica.is_usable)
        reader = Reader(gateway)
        first = reader.send_chat()
        until(lambda: first in reader.listed())
        pause_replay(standby)
        second = reader.send_chat()
        assert reader.listed() == {first}
        # One request by its id, and money, are current.
        assert reader.read(f"/logs/{second}")["log"]["id"] == second
        assert len(gateway.services.store.database.query_rows("SELECT request FROM usage")) == 2
        resume_replay(standby)
        until(lambda: reader.listed() == {first, second})
        gateway.services.billing.rollups.advance(lambda: True)
        until(lambda: bool(reader.read("/activity", timeRange="24h")["activity"]))


def test_a_replica_that_lags_or_is_away_is_not_read(
    start: Callable[[str], Any], servers: tuple[PostgresServer, PostgresServer]
) -> None:
    standby = servers[1]
    with start("5") as gateway:
        replica = gateway.services.store.database.replica
        states = gateway.services.telemetry.states
        until(replica.is_usable)
        reader = Reader(gateway)
        pause_replay(standby)
        request_id = reader.send_chat()
        until(lambda: request_id in reader.listed())
        assert states.firing("database replica") == "replica.lags" and replica.measured_s > 5
        resume_replay(standby)
        until(replica.is_usable)
        standby.stop()
        assert request_id in reader.listed()
        until(lambda: request_id in reader.listed() and states.firing("database replica") == "replica.away")
        assert states.is_healthy("database")
        standby.start()
        until(replica.is_usable)
        assert states.is_healthy("database replica")


def pause_replay_with_locked_usage(primary: PostgresServer, standby: PostgresServer) -> None:
    """Pause the replay inside a change of the usage table, which the standby keeps locked."""
    locked = f"{EXCLUSIVE} AND relation = 'usage'::regclass"
    with (
        psycopg.connect(primary.url) as change,
        psycopg.connect(standby.url, autocommit=True) as copy,
        psycopg.connect(primary.url, autocommit=True) as connection,
    ):
        change.execute("LOCK TABLE usage IN ACCESS EXCLUSIVE MODE")
        change.execute("SELECT pg_current_xact_id()")  # only a transaction with an id is in the log
        connection.execute("SELECT pg_log_standby_snapshot()")
        until(lambda: copy.execute(locked).fetchone() == (1,))
        copy.execute("SELECT pg_wal_replay_pause()")
        until(lambda: copy.execute("SELECT pg_get_wal_replay_pause_state()").fetchone() == ("paused",))


def test_a_table_that_the_replica_has_locked_is_read_from_the_primary(
    start: Callable[[str], Any], servers: tuple[PostgresServer, PostgresServer]
) -> None:
    with start(MUCH_S) as gateway:
        states = gateway.services.telemetry.states
        until(gateway.services.store.database.replica.is_usable)
        reader = Reader(gateway)
        request_id = reader.send_chat()
        pause_replay_with_locked_usage(*servers)
        assert request_id in reader.listed()
        assert states.firing("database replica") == "replica.locked" and states.is_healthy("database")
