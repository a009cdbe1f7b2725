"""`files` and `jobs` against a gateway: files are stored and read back, and a batch is sent to its end."""

import json
import threading
from pathlib import Path

from harness.accounts import Account
from harness.client_runs import Client


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
