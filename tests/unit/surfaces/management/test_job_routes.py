"""Jobs and files of a project in the management API: lists over all kinds, errors by line, and downloads."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from support.management import Tenants

from gateway.batches import input_lines
from gateway.batches.batch_table import BatchTask
from gateway.batches.input_lines import find_ids, read_line
from gateway.files.project_files import NewFile
from gateway.jobs.response_jobs import ResponseMaker
from gateway.surfaces.anthropic.batches import FORMAT as MESSAGES

HOSTILE = '../../"><script>alert(1)</script>\r\nSet-Cookie: a=b ☕.html'


def fetch(tenants: Tenants, path: str, person: Any, **headers: str) -> Any:
    return tenants.client.get(path, headers={"Authorization": f"Bearer {person.token}", **headers})


def store(
    tenants: Tenants, person: Any, content: bytes = b"tea", name: str = "a.txt", purpose: str = "user_data"
) -> Any:
    services = tenants.services
    caller = services.accounts.authentication.caller_of_key(person.key.info.id)
    return services.engine.files.create(caller, NewFile(name, "text/html", purpose), len(content), [content])


def begin(tenants: Tenants, person: Any, lines: list[Any], url: str = "/v1/embeddings") -> str:
    """Create a batch and return its id."""
    services = tenants.services
    caller = services.accounts.authentication.caller_of_key(person.key.info.id)
    services.billing.ledger.grant(person.organization_id, 10**12, "tests")
    text = b"\n".join(json.dumps(line).encode() for line in lines)
    file = store(tenants, person, text, "lines.jsonl", "batch")
    return services.engine.batches.create(caller, url, file, BatchTask(input_file=file.id)).id


def run(tenants: Tenants, ident: str) -> None:
    batches = tenants.services.engine.batches
    for _ in range(50):
        batches.run()
        if batches.rows.find(ident).has_ended:
            return
    raise AssertionError(batches.rows.find(ident))


def test_a_file_is_downloaded_as_an_attachment_whatever_its_name_and_type_say(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    file = store(tenants, owner, b"<script>alert(1)</script>", HOSTILE)
    place = f"/projects/{owner.project_id}/files"
    (listed,) = tenants.ok("GET", place, owner)["files"]
    assert (listed["id"], listed["bytes"], listed["apiKeyId"]) == (file.id, 25, owner.key.info.id)
    assert "\n" not in listed["filename"] and "/" not in listed["filename"]
    answer = fetch(tenants, f"{place}/{file.id}/content", owner)
    assert answer.data == b"<script>alert(1)</script>" and answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == f"attachment; filename*=UTF-8''{quote(listed['filename'], safe='')}"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"] and "Set-Cookie" not in answer.headers
    part = fetch(tenants, f"{place}/{file.id}/content", owner, Range="bytes=1-6")
    assert (part.status_code, part.data, part.headers["Content-Range"]) == (206, b"script", "bytes 1-6/25")


def test_the_quota_that_files_use_is_shown(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    store(tenants, owner, b"four")
    usage = tenants.ok("GET", f"/orgs/{owner.organization_id}/file-usage", owner)["usage"]
    assert usage == {"files": 1, "usedBytes": 4, "limitBytes": 10240 << 20, "maxFileBytes": 512 << 20}


def test_deletions_and_downloads_of_files_are_in_the_audit_log(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    place = f"/projects/{owner.project_id}/files/{store(tenants, owner).id}"
    fetch(tenants, f"{place}/content", owner)
    tenants.ok("DELETE", place, owner)
    assert tenants.call("GET", place, owner)[0] == 404
    entries = tenants.ok("GET", f"/orgs/{owner.organization_id}/audit", owner)["entries"]
    assert [one["action"] for one in entries][:2] == ["file.delete", "file.download"]
    assert tenants.ok("GET", f"/orgs/{owner.organization_id}/file-usage", owner)["usage"]["usedBytes"] == 0


def test_a_developer_reads_and_deletes_only_files_of_their_own_keys(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    place = f"/projects/{owner.project_id}/files"
    theirs, own = store(tenants, owner).id, store(tenants, developer).id
    assert {one["id"] for one in tenants.ok("GET", place, developer)["files"]} == {theirs, own}
    assert fetch(tenants, f"{place}/{theirs}/content", developer).status_code == 403
    assert tenants.call("DELETE", f"{place}/{theirs}", developer)[0] == 403
    assert fetch(tenants, f"{place}/{own}/content", developer).status_code == 200
    tenants.ok("DELETE", f"{place}/{own}", developer)
    assert tenants.call("GET", f"{place}/{theirs}", tenants["rival owner"])[0] == 403


def test_errors_are_read_by_line_while_a_batch_runs_and_from_its_file(tenants: Tenants, monkeypatch: Any) -> None:
    owner = tenants["acme owner"]
    bad = {"model": "sandbox-embed", "input": "[[sandbox: status=400]]"}
    lines = [
        {"custom_id": f"<b>{number}", "url": "/v1/embeddings", "body": bad if number % 2 else {**bad, "input": "Tea"}}
        for number in range(6)
    ]
    ident = begin(tenants, owner, lines)
    place = f"/projects/{owner.project_id}/jobs/{ident}"
    run_lines = tenants.services.engine.batches._parts.lines
    with monkeypatch.context() as paused:
        # The batch stops before it writes its files: its errors are those of its results.
        paused.setattr("gateway.batches.batch_runs.BatchRun._finish", lambda self, state: None)
        tenants.services.engine.batches.run()
        assert run_lines.sums(ident).failed == 3
        early = read_all(tenants, owner, f"{place}/errors", 2)
    assert [(one["line"], one["customId"], one["status"]) for one in early] == [
        (2, "<b>1", 400), (4, "<b>3", 400), (6, "<b>5", 400)
    ]  # fmt: skip
    assert all(one["message"] for one in early)
    tenants.services.store.database.change_rows("UPDATE batch_job SET due_at = 0 WHERE id = ?", (ident,))
    run(tenants, ident)
    assert read_all(tenants, owner, f"{place}/errors", 2) == early
    # A page that began while the batch ran goes on after it has ended.
    later = tenants.ok("GET", f"{place}/errors?cursor=0-2", owner)["errors"]
    assert later == early[1:]
    job = tenants.ok("GET", place, owner)["job"]
    assert (job["done"], job["failed"], job["total"], job["kind"]) == (6, 3, 6, "batch")
    assert [one["content"] for one in job["downloads"]] == ["results", "errors", "input"]
    for content, count in (("results", 3), ("errors", 3), ("input", 6)):
        answer = fetch(tenants, f"{place}/content?content={content}", owner)
        assert len(answer.data.splitlines()) == count and ident in answer.headers["Content-Disposition"]


def read_all(tenants: Tenants, person: Any, place: str, limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        page = tenants.ok("GET", f"{place}?limit={limit}" + (f"&cursor={cursor}" if cursor else ""), person)
        assert len(page["errors"]) <= limit
        found += page["errors"]
        cursor = page["next"]
    return found


def test_errors_of_fifty_thousand_messages_are_read_in_bounded_pages(tenants: Tenants, monkeypatch: Any) -> None:
    owner = tenants["acme owner"]
    services = tenants.services
    ident = begin(tenants, owner, [{}])
    run(tenants, ident)
    failed = {"type": "errored", "error": {"type": "error", "error": {"type": "api_error", "message": "No."}}}
    good = {"type": "succeeded", "message": {"content": "x" * 40}}

    def line(number: int) -> bytes:
        return (
            json.dumps({"custom_id": str(number), "result": failed if number % 10_000 == 0 else good}).encode() + b"\n"
        )

    caller = services.accounts.authentication.caller_of_key(owner.key.info.id)
    kept = services.engine.files.keep_pieces(caller, map(line, range(1, 50_001)), 1 << 62)
    rows, task = services.engine.batches.rows, BatchTask(dialect="anthropic", one_file=True)
    outcome = json.dumps({"output_file": kept.id})
    change = "UPDATE batch_job SET state = 'completed', outcome = ?, task = ? WHERE id = ?"
    services.store.database.change_rows(change, (outcome, rows.seal(task), ident))
    read = []
    monkeypatch.setattr(MESSAGES.__class__, "read_error", counted(MESSAGES.read_error, read))
    pages, cursor = [], ""
    while cursor is not None:
        read.append(0)
        query = f"limit=2&cursor={cursor}" if cursor else "limit=2"
        page = tenants.ok("GET", f"/projects/{owner.project_id}/jobs/{ident}/errors?{query}", owner)
        pages += [(one["line"], one["customId"], one["message"]) for one in page["errors"]]
        cursor = page["next"]
    assert pages == [(number, str(number), "No.") for number in range(10_000, 50_001, 10_000)]
    assert max(read) <= 10_000 and sum(read) == 50_000


def counted(read_error: Any, counts: list[int]) -> Any:
    def read(self: Any, text: bytes) -> Any:
        counts[-1] += 1
        return read_error(text)

    return read


def test_a_batch_that_failed_its_check_lists_the_lines(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    ident = begin(tenants, owner, [{"custom_id": "1", "url": "/v1/embeddings", "body": {"model": "no-such-model"}}, {}])
    run(tenants, ident)
    place = f"/projects/{owner.project_id}/jobs/{ident}"
    errors = tenants.ok("GET", f"{place}/errors", owner)["errors"]
    assert [one["line"] for one in errors] == [1, 2] and all(one["message"] for one in errors)
    assert [one["content"] for one in tenants.ok("GET", place, owner)["job"]["downloads"]] == ["input"]


@pytest.mark.parametrize("cursor", ["x", "1", "-1-2", "9" * 30 + "-1"])
def test_an_unknown_cursor_is_refused(tenants: Tenants, cursor: str) -> None:
    owner = tenants["acme owner"]
    ident = begin(tenants, owner, [{}])
    status, answer = tenants.call("GET", f"/projects/{owner.project_id}/jobs/{ident}/errors?cursor={cursor}", owner)
    assert status == 400, answer


def test_jobs_of_all_kinds_are_in_one_list_and_responses_are_their_makers_alone(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    services = tenants.services
    caller = services.accounts.authentication.caller_of_key(owner.key.info.id)
    batch = begin(tenants, owner, [{}])
    jobs = services.engine.response_jobs
    jobs.maker = ResponseMaker(lambda *_: iter(()), lambda *_: (b"{}", b""), bytes, lambda _: None)
    response = jobs.begin(caller, f"resp_{'f' * 32}", b"{}", b'{"id": "r"}').id
    place = f"/projects/{owner.project_id}/jobs"
    listed = tenants.ok("GET", place, owner)["jobs"]
    assert [one["id"] for one in listed] == [response, batch]
    assert [one["kind"] for one in listed] == ["response", "batch"]
    assert [one["id"] for one in tenants.ok("GET", f"{place}?kind=batch", owner)["jobs"]] == [batch]
    first = tenants.ok("GET", f"{place}?limit=1", owner)
    assert [one["id"] for one in tenants.ok("GET", f"{place}?limit=1&cursor={first['next']}", owner)["jobs"]] == [batch]
    tenants.call("POST", f"{place}/{response}/cancel", developer)
    assert tenants.call("POST", f"{place}/{response}/cancel", developer)[0] == 403
    assert fetch(tenants, f"{place}/{response}/content", developer).status_code == 403


def test_developers_cancel_their_own_jobs(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    place = f"/projects/{owner.project_id}/jobs"
    own, theirs = begin(tenants, developer, [{}]), begin(tenants, owner, [{}])
    assert tenants.ok("POST", f"{place}/{own}/cancel", developer)["job"]["status"] == "cancelling"
    assert tenants.call("POST", f"{place}/{theirs}/cancel", developer)[0] == 403
    assert tenants.call("POST", f"{place}/batch_unknown/cancel", developer)[0] == 404
    entries = tenants.ok("GET", f"/orgs/{owner.organization_id}/audit", owner)["entries"]
    assert [(one["action"], one["subject"]) for one in entries if one["action"] == "job.cancel"] == [
        ("job.cancel", own)
    ]


@pytest.mark.parametrize("part", ["bytes=1-", "bytes=-2", "bytes=0-99", "BYTES = 0-1", "lines=0-1", "bytes=0-0,1-2"])
def test_a_download_in_parts_is_in_the_audit_log_whatever_range_it_names(tenants: Tenants, part: str) -> None:
    owner = tenants["acme owner"]
    place = f"/projects/{owner.project_id}/files/{store(tenants, owner).id}"
    assert fetch(tenants, f"{place}/content", owner, Range=part).status_code in (200, 206)
    (entry,) = downloads_of(tenants, owner)
    assert entry["detail"]["range"] == part


def test_ranges_of_any_length_and_alphabet_are_noted_in_short(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    place = f"/projects/{owner.project_id}/files/{store(tenants, owner).id}"
    assert fetch(tenants, f"{place}/content", owner, Range="x" * 5000).status_code == 200
    (entry,) = downloads_of(tenants, owner)
    assert len(entry["detail"]["range"]) < 100


def downloads_of(tenants: Tenants, person: Any) -> list[dict[str, Any]]:
    entries = tenants.ok("GET", f"/orgs/{person.organization_id}/audit", person)["entries"]
    return [one for one in entries if one["action"] == "file.download"]


@pytest.mark.parametrize("cursor", ["1-0", "5-1", "40-2"])
def test_a_cursor_that_points_into_a_line_is_refused(tenants: Tenants, cursor: str) -> None:
    owner = tenants["acme owner"]
    body = {"model": "sandbox-embed", "input": "[[sandbox: status=400]]"}
    ident = begin(tenants, owner, [{"custom_id": "1", "url": "/v1/embeddings", "body": body}])
    run(tenants, ident)
    status, answer = tenants.call("GET", f"/projects/{owner.project_id}/jobs/{ident}/errors?cursor={cursor}", owner)
    assert status == 400 and "cursor" in str(answer), answer


def test_errors_listed_while_a_batch_ran_are_not_listed_again(tenants: Tenants, monkeypatch: Any) -> None:
    owner = tenants["acme owner"]
    bad = {"model": "sandbox-embed", "input": "[[sandbox: status=400]]"}
    ident = begin(tenants, owner, [{"custom_id": str(n), "url": "/v1/embeddings", "body": bad} for n in range(1, 7)])
    run(tenants, ident)
    monkeypatch.setattr("gateway.batches.line_errors.MAX_READ_LINES", 2)
    place, lines, cursor = f"/projects/{owner.project_id}/jobs/{ident}/errors", [], "0-5"
    while cursor is not None:
        page = tenants.ok("GET", f"{place}?cursor={cursor}", owner)
        lines += [one["line"] for one in page["errors"]]
        cursor = page["next"]
    assert lines == [6]


def test_ids_of_lines_are_found_without_decoding_the_others(monkeypatch: Any) -> None:
    texts = [json.dumps({"custom_id": f"c{n}", "url": "/v1/embeddings", "body": {}}).encode() for n in range(1, 1001)]
    content = b"\n\n \n".join(texts)
    read: list[int] = []
    monkeypatch.setattr(input_lines, "read_line", lambda number, text: read.append(number) or read_line(number, text))
    pieces = [content[start : start + 97] for start in range(0, len(content), 97)]
    assert find_ids(pieces, 1 << 16, {1, 500, 1000}, 1 << 20) == {1: "c1", 500: "c500", 1000: "c1000"}
    assert read == [1, 500, 1000]
    assert find_ids(pieces, 1 << 16, {1, 1000}, 5_000) == {1: "c1"}
    assert find_ids(iter(()), 1 << 16, {7}, 1 << 20) == {}
