"""The number of an organization's jobs: two that are begun at the same time count each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.accounts.organizations import create_organization
from gateway.batches.batch_table import BatchJob, BatchRows
from gateway.callers.vault import Vault
from gateway.control.version import Control
from gateway.jobs.response_jobs import ResponseJob, ResponseJobs
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.threads import Job, pause
from gateway.store.database import Database
from gateway.store.live_workers import LiveWorkers

WAITING = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted"
VAULT = Vault(("k" * 32,))


def batch(ident: str, organization: str) -> BatchJob:
    zeros = (None, None, None, 1, 1, 0, 0, 0, 0, 0)
    return BatchJob(ident, organization, "p", "in_progress", "/v1/embeddings", 1, *zeros, "", "", "", "k")


def response(ident: str, organization: str) -> ResponseJob:
    return ResponseJob(ident, organization, "p", "queued", 1, None, 1, "", "", "k")


@pytest.mark.parametrize("kind", ["batches", "responses"])
def test_jobs_that_are_begun_at_once_count_each_other(database: Database, clock, tmp_path: Path, kind: str) -> None:
    database.bind()
    organization = create_organization(database, Control.observer(database, clock), "acme", actor="test").id
    rows, make = {
        "batches": (BatchRows(database, VAULT, LiveWorkers(tmp_path, "worker")), batch),
        "responses": (ResponseJobs(database, VAULT, clock, ByteBudget(1, 1), cast(Any, None)).rows, response),
    }[kind]
    counted: list[int] = []

    def begin(number: int) -> None:
        counted.append(rows.count_unended(organization))
        while database.kind == "postgresql" and len(counted) == 1 and not database.execute(WAITING).fetchone()[0]:
            pause(0.005)  # until the other one has counted too, or waits for this one
        for statement, params in rows.insert_rows(make(f"job-{number}", organization)):
            database.execute(statement.sql, params)

    begun: list[Callable[[], None]] = [lambda: begin(0), lambda: begin(1)]
    for job in [Job(database.write, one) for one in begun]:
        job.result(60)
    assert counted == [0, 1]
