"""`files` and `jobs` against a gateway: files are stored and read back, and a batch is sent to its end."""

import io
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from harness.accounts import Account
from harness.client_runs import Client

from gateway.accounts.keys import Draft
from gateway.accounts.members import list_members
from gateway.limits.budgets import Limits
from gateway.money import NANO
from llmgateway_cli.commands import jobs
from llmgateway_cli.commands.files import PART_BYTES
from llmgateway_cli.errors import CliError, HttpError
from llmgateway_cli.progress import LiveLine


def test_file_is_uploaded_listed_downloaded_and_deleted(user: Client, account: Account, tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    path.write_bytes(b"Tea." * 100_000)
    file = user.document("files", "upload", str(path))["id"]
    assert "note.txt" in user.run("files", "list").stdout
    assert "400,000" in user.run("files", "show", file).stdout
    copy = tmp_path / "copy.txt"
    user.run("files", "download", file, "-o", str(copy))
    assert copy.read_bytes() == path.read_bytes()
    user.run("files", "delete", file, "-y")
    assert "no files" in user.run("files", "list").stderr
    assert "no file" in user.refused("files", "show", file)


def test_batch_is_sent_followed_and_downloaded(user: Client, account: Account, tmp_path: Path) -> None:
    body = {"model": "sandbox-embed", "input": "Tea"}
    lines = [{"custom_id": str(number), "url": "/v1/embeddings", "body": body} for number in range(5)]
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    batches = account.gateway.services.engine.batches
    job = user.document("jobs", "send", str(path), "--endpoint", "/v1/embeddings")["id"]
    assert job in user.run("jobs", "list").stdout
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.1):
            batches.run()

    runner = threading.Thread(target=run)
    runner.start()
    try:
        shown = user.run("jobs", "watch", job)
    finally:
        ended.set()
        runner.join()
    assert "5/5" in shown.stdout and "completed" in shown.stdout
    output = tmp_path / "results.jsonl"
    user.run("jobs", "download", job, "-o", str(output))
    assert [json.loads(line)["custom_id"] for line in output.read_text().splitlines()] == list("01234")
    assert "no error file" in user.refused("jobs", "download", job, "--errors")
    assert "cannot be cancelled" in user.refused("jobs", "cancel", job)


def run_batches(account: Account, ended: threading.Event) -> threading.Thread:
    def run() -> None:
        while not ended.wait(0.1):
            account.gateway.services.engine.batches.run()

    runner = threading.Thread(target=run)
    runner.start()
    return runner


def test_errors_are_listed_by_line_and_a_script_sees_how_a_job_ended(
    user: Client, account: Account, tmp_path: Path
) -> None:
    texts = ["Tea", "[[sandbox: status=400]]", "Tea", "[[sandbox: status=400]] Milk"]
    lines = [
        {"custom_id": f"id-{number}", "url": "/v1/embeddings", "body": {"model": "sandbox-embed", "input": text}}
        for number, text in enumerate(texts, 1)
    ]
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"custom_id": "1", "url": "/v1/embeddings", "body": {"model": "no-such-model", "input": "Tea"}}')
    job = user.document("jobs", "send", str(path), "--endpoint", "/v1/embeddings")["id"]
    failing = user.document("jobs", "send", str(bad), "--endpoint", "/v1/embeddings")["id"]
    ended = threading.Event()
    runner = run_batches(account, ended)
    try:
        done = user.run("jobs", "wait", job)
        failed = user.run("jobs", "wait", failing, code=1)
    finally:
        ended.set()
        runner.join()
    assert "4/4" in done.stdout
    assert "is failed" in failed.stderr and "no-such-model" in failed.stderr
    errors = user.document("jobs", "errors", job)
    assert [(one["line"], one["custom_id"]) for one in errors] == [(2, "id-2"), (4, "id-4")]
    assert all(one["error"].startswith("400 ") and one["message"] for one in errors)
    shown = user.run("jobs", "errors", job, "-n", "1")
    assert "id-2" in shown.stdout and "id-4" not in shown.stdout and "more than 1 error:" in shown.stderr
    assert "no-such-model" in user.run("jobs", "errors", failing).stdout
    copy = tmp_path / "errors.jsonl"
    user.run("jobs", "download", job, "--errors", "-o", str(copy))
    assert len(copy.read_text().splitlines()) == 2


def test_a_job_that_takes_long_is_not_waited_for_longer_than_asked(
    user: Client, account: Account, tmp_path: Path
) -> None:
    body = {"model": "sandbox-echo", "messages": [message("[[sandbox: pace=1000 tokens=40]]")]}
    path = tmp_path / "slow.jsonl"
    path.write_text(json.dumps({"custom_id": "1", "url": "/v1/chat/completions", "body": body}))
    job = user.document("jobs", "send", str(path), "--endpoint", "/v1/chat/completions")["id"]
    refused = user.refused("jobs", "wait", job, "--timeout", "1")
    assert "is still" in refused and "info: " in refused
    assert "can be read once it has ended" in user.refused("jobs", "errors", job)
    assert "cancelling" in user.run("jobs", "cancel", job).stdout


def test_a_batch_of_messages_is_followed_and_downloaded(user: Client, account: Account, tmp_path: Path) -> None:
    requests = [
        {"custom_id": name, "params": {"model": "sandbox-echo", "max_tokens": 9, "messages": [message(text)]}}
        for name, text in (("good", "Tea"), ("bad", "[[sandbox: status=400]]"))
    ]
    sent = httpx.post(
        f"{account.gateway.address}/v1/messages/batches",
        headers={"x-api-key": account.gateway.key, "anthropic-version": "2023-06-01"},
        json={"requests": requests},
        trust_env=False,
    )
    job = sent.json()["id"]
    ended = threading.Event()
    runner = run_batches(account, ended)
    try:
        assert "2/2" in user.run("jobs", "watch", job).stdout
    finally:
        ended.set()
        runner.join()
    assert job in user.run("jobs", "list", "--kind", "message_batch").stdout
    assert [one["custom_id"] for one in user.document("jobs", "errors", job)] == ["bad"]
    output = tmp_path / "results.jsonl"
    user.run("jobs", "download", job, "-o", str(output))
    assert [json.loads(line)["custom_id"] for line in output.read_text().splitlines()] == ["good", "bad"]


def message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_background_response_is_waited_for_and_its_object_downloaded(
    user: Client, account: Account, tmp_path: Path
) -> None:
    body = {"model": "sandbox-echo", "input": "Tea", "background": True}
    headers = {"Authorization": f"Bearer {account.gateway.key}"}
    sent = httpx.post(f"{account.gateway.url}/responses", headers=headers, json=body, trust_env=False)
    job = sent.json()["id"]
    assert user.document("jobs", "wait", job)["status"] == "completed"
    output = tmp_path / "response.json"
    user.run("jobs", "download", job, "-o", str(output))
    assert json.loads(output.read_text())["id"] == job
    assert "has no lines" in user.refused("jobs", "errors", job)
    assert "is no id of a job" in user.refused("jobs", "show", "job_1/../x")


def test_a_file_larger_than_a_part_is_uploaded_in_parts(user: Client, account: Account, tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    path.write_bytes(bytes(range(256)) * (PART_BYTES // 256) + b"the end")
    stored = user.document("files", "upload", str(path))
    assert (stored["filename"], stored["bytes"]) == ("large.bin", path.stat().st_size)
    copy = tmp_path / "copy.bin"
    user.run("files", "download", stored["id"], "-o", str(copy))
    assert copy.read_bytes() == path.read_bytes()


def test_a_file_that_may_cost_more_than_the_key_has_is_refused_whole_or_runs_up_to_its_limit(
    user: Client, account: Account, tmp_path: Path
) -> None:
    services, key = account.gateway.services, account.gateway.key
    draft = Draft(account.gateway.project_id, member_of(account), "a dollar")
    limited = services.management.create_key(draft, Limits(NANO // 1000), actor="test").token
    body = {"model": "sandbox-echo", "max_tokens": 200, "messages": [message("[[sandbox: tokens=200]]")]}
    lines = [{"custom_id": str(number), "url": "/v1/chat/completions", "body": body} for number in range(8)]
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    command = ("jobs", "send", str(path), "--endpoint", "/v1/chat/completions", "--watch")
    assert limited != key
    refused = user.run(*command, code=1, LLMGATEWAY_API_KEY=limited)
    assert "may cost up to 0.00" in refused.stderr and "0.001 USD are left" in refused.stderr
    assert "X-LLMGateway-Up-To-Limit" in refused.stderr and "is failed" in refused.stderr
    ran = user.run(*command, "--up-to-limit", LLMGATEWAY_API_KEY=limited)
    assert "8/8" in ran.stdout
    job = user.run("jobs", "list", "-n", "1", "--json", LLMGATEWAY_API_KEY=limited).document[0]
    assert 0 < job["request_counts"]["completed"] < 8 and 0 < job["cost_details"]["cost"] <= 0.001
    errors = user.run("jobs", "errors", job["id"], "--json", LLMGATEWAY_API_KEY=limited).document
    assert len(errors) == job["request_counts"]["failed"] and all("402" in one["error"] for one in errors)


def member_of(account: Account) -> str:
    database = account.gateway.services.store.database
    return str(list_members(database, account.gateway.organization_id)[0].id)


def test_a_downloaded_file_hides_and_replaces_nothing(user: Client, account: Account, tmp_path: Path) -> None:
    source = tmp_path / ".profile"
    source.write_bytes(b"theirs")
    file = user.document("files", "upload", str(source))["id"]
    here = Path(user.working_folder or user.home)
    (here / "profile").write_bytes(b"own")
    assert "already exists" in user.refused("files", "download", file)
    assert (here / "profile").read_bytes() == b"own" and not (here / ".profile").exists()
    user.run("files", "download", file, "-o", "profile")
    assert (here / "profile").read_bytes() == b"theirs"


def test_a_job_is_followed_through_refusals_that_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = {
        "id": "batch_1",
        "status": "completed",
        "endpoint": "/v1/embeddings",
        "request_counts": {},
        "cost_details": {},
    }
    answers: list[Any] = [HttpError(429, "busy"), HttpError(503, "restarts"), CliError("no connection"), ended]

    def find(*_: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, CliError):
            raise answer
        return answer

    monkeypatch.setattr(jobs, "_find", find)
    monkeypatch.setattr(jobs, "WATCH_S", 0)
    context: Any = SimpleNamespace(output=SimpleNamespace(live=lambda: LiveLine(io.StringIO(), print, True)))
    assert jobs._follow(context, {**ended, "status": "in_progress"}) == ended
    answers.append(HttpError(404, "deleted"))
    with pytest.raises(HttpError, match="deleted"):
        jobs._follow(context, {**ended, "status": "in_progress"})
