"""An erased person is in no table of either store, and other people and organizations are untouched."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from gateway import ids
from gateway.accounts import (
    audit,
    key_tags,
    keys,
    members,
    organizations,
    playground_presets,
    projects,
    request_shares,
    saved_views,
)
from gateway.accounts.chosen_columns import choose_columns
from gateway.accounts.limit_drafts import LimitDraft
from gateway.accounts.members import MemberInfo
from gateway.accounts.request_shares import SESSION, RequestShare
from gateway.accounts.spending_limits import SpendingLimits
from gateway.admin.erasure import KIND, PAGE_ROWS, ErasureJob, erase_member, export_member
from gateway.batches.batch_table import BatchJob, BatchRows
from gateway.callers.vault import Vault
from gateway.control.version import Control
from gateway.jobs.response_jobs import ResponseJob, ResponseJobs
from gateway.limits.limit_members import insert_share
from gateway.limits.limit_rules import Subject
from gateway.metering.log.log_entries import LogEntry, write_rows
from gateway.metering.outcomes.outcome_points import OutcomeExport, OutcomePoint
from gateway.metering.outcomes.outcome_sums import list_of_member
from gateway.metering.outcomes.outcome_table import store_exports
from gateway.metering.usage_table import raw_id
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.state_changes import StateChange
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.store.live_workers import LiveWorkers
from gateway.telemetry.alert_history import AlertHistory
from gateway.videos.job_table import VideoJob, VideoJobs

EMAIL = "nn@acme.example"
NAME = "Nora Norden"
TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
}
BY = {"actor": "operator"}
PAYLOAD = (
    "INSERT INTO request_log (request, organization, project, api_key, member, at, expires_at, operation, path, asked, "
    "served, status, flags, sent_bytes, answer_bytes, sent, answer) "
    "VALUES (?, ?, ?, ?, ?, 1, ?, 'chat', '/', '', '', 0, 0, 1, 1, ?, ?)"
)


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database]) -> Database:
    opened = open_store(database_url)
    opened.bind()
    return opened


class Site:
    """An organization with an owner, and people with keys."""

    def __init__(self, database: Database, control: Control, name: str) -> None:
        self.database, self.control = database, control
        self.id = organizations.create_organization(database, control, name, **BY).id
        self.project_id = projects.create_project(database, control, self.id, "Default", **BY).id
        self.add(f"owner@{name}.example", "owner")

    def add(self, email: str, role: Any = "developer", name: str = "") -> MemberInfo:
        return members.add_member(self.database, self.control, self.id, email, role, name=name, **BY)

    def make_key(self, member: MemberInfo) -> str:
        draft = keys.Draft(self.project_id, member.id, f"Laptop of {member.email}")
        key = keys.create(self.database, self.control, (b"a-hash-key-of-the-tests",), draft, **BY).info
        key_tags.set_tags(self.database, self.control, key, {"owner": member.email}, **BY)
        return key.id

    def log(self, member: MemberInfo, key_id: str, count: int) -> None:
        """Store requests of a key with metadata that names the member, and their payloads."""
        organization, project, key, person = map(raw_id, (self.id, self.project_id, key_id, member.id))
        expires = self.database.now_us() + 10**12

        def work() -> None:
            for _ in range(count):
                request = bytes.fromhex(ids.new_hex())
                metadata = orjson.dumps({"user": member.email}).decode()
                owners = (request, organization, project, key, person)
                entry = LogEntry(*owners, 1, 200, "chat", "/", "", "", None, None, metadata)
                for statement, row in write_rows(entry, {}):
                    self.database.execute(statement.sql, row)
                self.database.execute(PAYLOAD, (*owners, expires, b"x", b"x"))

        self.database.write(work)


def find_text(database: Database, text: str) -> list[str]:
    """Return the rows of all tables that contain a text."""

    def read() -> list[str]:
        return [
            f"{table}: {row}"
            for (table,) in database.fetch(TABLES[database.kind])
            for row in database.fetch(f'SELECT * FROM "{table}"')
            if text
            in " ".join(
                bytes(cell).decode("latin-1") if isinstance(cell, bytes | memoryview) else str(cell) for cell in row
            )
        ]

    return database.read(read)


def find_kept(database: Database, member: MemberInfo) -> tuple[int, int]:
    """Return how many requests of a member still have metadata, and how many a payload that has not expired."""
    owner, now = raw_id(member.id), database.now_us()
    entries = database.query_row("SELECT COUNT(*) FROM log_entry WHERE member = ? AND metadata IS NOT NULL", (owner,))
    payloads = database.query_row("SELECT COUNT(*) FROM request_log WHERE member = ? AND expires_at > ?", (owner, now))
    return entries[0], payloads[0]


def test_what_agents_reported_is_exported_and_deleted(database: Database, clock) -> None:
    site = Site(database, Control.observer(database, clock), "acme")
    person, colleague = site.add(EMAIL, name=NAME), site.add("ann@acme.example")
    now = database.now_us()
    for member in (person, colleague):
        owners = map(raw_id, (site.id, site.project_id, site.make_key(member), member.id))
        point = OutcomePoint("codex", "commits", "s", "", 3, b"series", now, now)
        store_exports(database, [OutcomeExport(b"digest", *owners, [point])])
    (exported,) = export_member(database, person).outcomes
    assert (exported.agent, exported.figures.commits) == ("codex", 3)
    erase_member(database, site.control, person, **BY)
    ErasureJob(database, Documents(database)).finish()
    assert database.read(lambda: list_of_member(database, person.id)) == []
    tables = ("outcome", "outcome_series", "outcome_export")
    assert [database.query_row(f"SELECT COUNT(*) FROM {table}")[0] for table in tables] == [1, 1, 1]
    assert len(export_member(database, colleague).outcomes) == 1


def test_a_person_is_in_no_table_after_the_job_and_colleagues_keep_theirs(database: Database, clock) -> None:
    site = Site(database, Control.observer(database, clock), "acme")
    person, colleague = site.add(EMAIL, name=NAME), site.add("ann@acme.example")
    for member in (person, colleague):
        site.log(member, site.make_key(member), 3)
    limits = SpendingLimits(database, site.control)
    limits.put(site.id, "users", LimitDraft((Subject("user", each=True),), 5), **BY)
    limits.ask(site.id, "users", 5, database.now_us() * 2, EMAIL, actor=person.user_id)
    saved_views.add(database, site.id, person.user_id, NAME, f"userId={EMAIL}", True)
    place = (site.id, site.project_id)
    playground_presets.save(database, Vault(("k" * 32,)), place, person.user_id, NAME, "{}", True)
    share = RequestShare("", site.id, site.project_id, person.user_id, person.id, SESSION, EMAIL, 0)
    request_shares.add(database, share)
    choose_columns(database, person.user_id, "logs", ["cost"])
    facts = {"organization": site.id, "member": EMAIL}
    AlertHistory(database).begin(StateChange("budget.spent", "budget 1", f"{EMAIL} spent it", facts=facts), 1)
    rule = limits.find(site.id, "users").rule
    for name in (EMAIL.upper(), "ann@acme.example"):
        database.write(lambda name=name: insert_share(database, rule.share_of([name])))
    assert len(find_text(database, "nn@acme.example")) >= 10
    erase_member(database, site.control, person, **BY)
    ErasureJob(database, Documents(database)).finish()
    assert find_text(database, EMAIL.upper()) == []
    left = [row for row in find_text(database, EMAIL) if "ann@acme.example" not in row]
    assert left == [] and find_text(database, NAME) == []
    assert len(find_text(database, "ann@acme.example")) >= 5
    assert (find_kept(database, person), find_kept(database, colleague)) == ((0, 0), (3, 3))
    assert audit.verify(database)[1] == [] and Documents(database).entries(KIND) == []


def test_batches_and_background_responses_of_a_person_end_and_are_purged(
    database: Database, clock, tmp_path: Path
) -> None:
    site = Site(database, Control.observer(database, clock), "acme")
    vault = Vault(("k" * 32,))
    batches = BatchRows(database, vault, LiveWorkers(tmp_path, "worker"))
    responses = ResponseJobs(database, vault, clock, ByteBudget(1, 1), cast(Any, None))
    person, colleague = site.add(EMAIL), site.add("ann@acme.example")
    for member in (person, colleague):
        owner = (site.id, site.project_id, "in_progress")
        key = site.make_key(member)
        batch = BatchJob(
            f"batch_{key}", *owner, "/v1/embeddings", 1, 1, None, None, 5, 10**17, 9, 0, 0, 0, 0, "", "", "", key
        )
        response = ResponseJob(f"resp_{key}", *owner, 1, None, 5, member.email, "", key)
        for statement, row in (*batches.insert_rows(batch), *responses.rows.insert_rows(response)):
            database.write(partial(database.execute, statement.sql, row))
        sql = "INSERT INTO response_event (job, first, following, frames) VALUES (?, 0, 1, ?)"
        database.write(partial(database.execute, sql, (response.id, b"x")))
    job = ErasureJob(database, Documents(database))
    erase_member(database, site.control, person, **BY)
    job.finish()
    sql = "SELECT state, due_at FROM batch_job ORDER BY state"
    assert database.query_rows(sql) == [("cancelling", 5), ("in_progress", 5)]
    responses.purge()
    left = database.query_rows("SELECT request, state FROM response_job")
    assert (
        left == [(colleague.email, "in_progress")] and database.query_row("SELECT COUNT(*) FROM response_event")[0] == 1
    )
    assert len(Documents(database).entries(KIND)) == 1  # the results of the batch are still to be written
    sql = "UPDATE batch_job SET state = 'cancelled', completed_at = created_at + 10, due_at = NULL WHERE state = ?"
    database.write(partial(database.execute, sql, ("cancelling",)))
    job.finish()
    assert database.query_row("SELECT completed_at FROM batch_job WHERE state = 'cancelled'")[0] == 1
    assert Documents(database).entries(KIND) == []


def test_videos_of_a_person_are_purged_once_they_have_ended(database: Database, clock) -> None:
    site = Site(database, Control.observer(database, clock), "acme")
    person = site.add(EMAIL)
    videos = VideoJobs(database)
    values = dict.fromkeys(VideoJob._fields, "") | dict.fromkeys(("progress", "seconds", "failures", "created_at"), 1)
    owner = {"organization": site.id, "project": site.project_id, "api_key": site.make_key(person)}
    job = VideoJob(**values | owner | {"id": "video_a", "due_at": 5, "deadline_at": 9, "completed_at": None})
    job = job._replace(state="in_progress", expires_at=None)
    for ended in (job, job._replace(id="video_b", state="completed", completed_at=database.now_us(), due_at=None)):
        for statement, row in videos.insert_rows(ended):
            database.write(partial(database.execute, statement.sql, row))
    erase_member(database, site.control, person, **BY)
    ErasureJob(database, Documents(database)).finish()
    videos.purge(database.now_us(), 30)
    assert database.query_rows("SELECT id FROM video_job") == [("video_a",)]
    assert len(Documents(database).entries(KIND)) == 1


def test_the_job_works_in_short_steps_and_goes_on_where_it_was_stopped(database: Database, clock) -> None:
    site = Site(database, Control.observer(database, clock), "acme")
    person = site.add(EMAIL)
    site.log(person, site.make_key(person), PAGE_ROWS + 1)
    erase_member(database, site.control, person, **BY)
    steps = iter([True, False])
    ErasureJob(database, Documents(database)).finish(lambda: next(steps))
    assert find_kept(database, person) == (0, PAGE_ROWS + 1)
    ErasureJob(database, Documents(database)).finish()
    assert find_kept(database, person) == (0, 0)


def test_an_erasure_deletes_waiting_alerts_of_its_own_organization_only(database: Database, clock) -> None:
    control = Control.observer(database, clock)
    site, other = Site(database, control, "acme"), Site(database, control, "rival")
    person = site.add(EMAIL)
    documents = Documents(database)
    for organization in (site.id, other.id):
        event = {"data": {"organization": organization, "name": EMAIL}}
        documents.put("alert", organization, orjson.dumps({"event": event}), 60)
    documents.put("alert", "sent", orjson.dumps({"told": True}), 60)
    erase_member(database, control, person, **BY)
    assert [key for key, _ in documents.entries("alert")] == sorted([other.id, "sent"])
