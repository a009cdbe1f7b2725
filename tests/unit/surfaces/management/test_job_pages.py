"""The pages of jobs and files: progress, errors by line, downloads, uploads and the quota."""

import io
import json
import re
from typing import Any

import pytest
from support import console
from support.management import Tenants
from support.management_bodies import begin_batch

from gateway.accounts import members
from gateway.admin.erasure import erase_member
from gateway.batches.batch_table import BatchTask
from gateway.files.project_files import NewFile
from gateway.surfaces.console import file_pages, job_pages

HOSTILE = "<img src=x onerror=alert(1)>\"'.jsonl"


def begin(tenants: Tenants, person: Any, count: int = 4) -> str:
    """Run a batch in which each second line fails, and return its id."""
    services = tenants.services
    services.billing.ledger.grant(person.organization_id, 10**12, "tests")
    caller = services.accounts.authentication.caller_of_key(person.key.info.id)
    bodies = [{"model": "sandbox-embed", "input": text} for text in ("Tea", "[[sandbox: status=400]] <b>Tea")]
    lines = [
        json.dumps({"custom_id": f"{HOSTILE}{number}", "url": "/v1/embeddings", "body": bodies[number % 2]}).encode()
        for number in range(count)
    ]
    text = b"\n".join(lines)
    file = services.engine.files.create(caller, NewFile(HOSTILE, "text/html", "batch"), len(text), [text])
    job = services.engine.batches.create(caller, "/v1/embeddings", file, BatchTask(input_file=file.id)).id
    for _ in range(50):
        services.engine.batches.run()
        if services.engine.batches.rows.find(job).has_ended:
            return job
    raise AssertionError(job)


def raw(tenants: Tenants, who: Any, path: str) -> str:
    answer = tenants.client.get(path, headers=console.browser_headers(who))
    assert answer.status_code == 200, answer.text
    return str(answer.text)


def test_batches_are_shown_with_their_progress_and_cancelled(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    batch = begin_batch(tenants, owner)
    page = console.open_page(tenants, owner, "/console/jobs")
    assert batch in page and "validating" in page and "/v1/embeddings" in page and 'hx-trigger="every 5s"' in page
    assert 'hx-trigger="every 2s"' in console.open_page(tenants, owner, f"/console/jobs/{owner.project_id}/{batch}")
    console.press_button(tenants, owner, "/console/jobs", "cancel", project=owner.project_id, job=batch)
    assert "cancelling" in console.open_page(tenants, owner, "/console/jobs")
    assert batch not in console.open_page(tenants, tenants["rival owner"], "/console/jobs")


def test_a_page_asks_again_more_slowly_and_at_last_no_more(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    batch = begin_batch(tenants, owner)
    place = f"/console/jobs/{owner.project_id}/{batch}"
    for turn, seconds in ((30, 5), (150, 15)):
        page = console.open_page(tenants, owner, f"{place}?turn={turn}")
        assert f'every {seconds}s"' in page and f"turn={turn + 1}" in page
    page = console.open_page(tenants, owner, f"{place}?turn=400")
    assert 'id="job" hx-get' not in page and "not updated any more" in page


def test_older_jobs_are_on_further_pages(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tenants["acme owner"]
    batches = [begin_batch(tenants, owner) for _ in range(3)]
    monkeypatch.setattr(job_pages, "LISTED", 2)
    first = console.open_page(tenants, owner, "/console/jobs")
    assert batches[2] in first and batches[1] in first and batches[0] not in first
    older = re.findall(r'rel="next" href="[^"?]*(\?[^"]+)"', first)[0]
    second = console.open_page(tenants, owner, f"/console/jobs{older}")
    assert batches[0] in second and batches[2] not in second and "Newest jobs" in second


def test_a_job_has_its_errors_by_line_and_its_downloads(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tenants["acme owner"]
    job = begin(tenants, owner)
    text = raw(tenants, owner, f"/console/jobs/{owner.project_id}/{job}")
    assert HOSTILE not in text and "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "4 of 4 lines" in text and "2 failed" in text and "<b>Tea" not in text
    assert re.findall(r'data-label="Line" class="number">(\d+)<', text) == ["2", "4"]
    links = re.findall(r'href="([^"]+/content\?content=\w+)"[^>]* download', text)
    assert [link.rpartition("=")[2] for link in links] == ["results", "errors", "input"]
    for link in links:
        answer = tenants.client.get(link.removeprefix("http://localhost"), headers=console.browser_headers(owner))
        assert answer.status_code == 200 and answer.headers["Content-Disposition"].startswith("attachment")
    monkeypatch.setattr(job_pages, "ERRORS", 1)
    first = console.open_page(tenants, owner, f"/console/jobs/{owner.project_id}/{job}")
    following = re.findall(r'rel="next" href="[^"?]*(\?[^"]+)"', first)[0]
    second = console.open_page(tenants, owner, f"/console/jobs/{owner.project_id}/{job}{following}")
    assert re.findall(r'data-label="Line" class="number">(\d+)<', second) == ["4"]


def test_errors_and_downloads_are_for_those_who_may_read_the_requests(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    theirs, own = begin(tenants, owner), begin(tenants, developer)
    page = console.open_page(tenants, developer, f"/console/jobs/{owner.project_id}/{theirs}")
    assert "Errors by line" not in page and "/content" not in page and "may read the requests" in page
    page = console.open_page(tenants, developer, f"/console/jobs/{owner.project_id}/{own}")
    assert "Errors by line" in page and "/content" in page
    console.open_page(tenants, tenants["rival owner"], f"/console/jobs/{owner.project_id}/{theirs}", 403)


def test_a_file_is_uploaded_in_the_console_listed_and_deleted(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    answer = send(tenants, owner, name=HOSTILE)
    assert answer.status_code == 200 and "was stored as file_" in answer.text and HOSTILE not in answer.text
    page = raw(tenants, owner, "/console/files")
    assert HOSTILE not in page and "1 file of the organization" in page and "of 10.7 GB" in page
    (file,) = set(re.findall(r'name="file" value="(file_\w+)"', page))
    place = f"/projects/{owner.project_id}/files/{file}"
    shown = tenants.ok("GET", place, owner)["file"]
    assert (shown["apiKeyId"], shown["purpose"], shown["bytes"]) == (None, "user_data", 3)
    assert shown["memberId"].startswith("member_") and shown["expiresAt"] is not None
    console.press_button(tenants, owner, "/console/files", "delete", project=owner.project_id, file=file)
    assert tenants.call("GET", place, owner)[0] == 404


def send(tenants: Tenants, who: Any, name: str = "a.txt", content: bytes = b"tea", **fields: str) -> Any:
    csrf = console.CSRF.findall(console.open_page(tenants, who, "/console/keys/new"))[0]
    data = {"csrf": csrf, "project": who.project_id, "purpose": "user_data", "days": "7", **fields}
    form = {**data, "file": (io.BytesIO(content), name)}
    return tenants.client.post("/console/files", headers=console.browser_headers(who), data=form)


def test_an_upload_needs_its_form_its_permission_and_room(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, stores = tenants["acme owner"], tenants.services.store
    assert send(tenants, owner, csrf="forged").status_code == 403
    assert send(tenants, owner, content=b"").status_code == 400
    assert send(tenants, tenants["rival owner"], project=owner.project_id).status_code == 403
    headers = {"Cookie": console.browser_headers(owner)["Cookie"], "Origin": "https://evil.example"}
    form = {"file": (io.BytesIO(b"tea"), "a.txt")}
    assert tenants.client.post("/console/files", headers=headers, data=form).status_code == 403
    viewer = members.add_member(
        stores.database, stores.control, owner.organization_id, "viewer@acme.example", "viewer", actor="test"
    )
    page = tenants.client.get(
        "/console/files",
        headers={"Cookie": f"llmgateway.session_token={tenants.open(viewer.user_id)}", **console.OWN},
    )
    assert page.status_code == 200 and 'id="upload"' not in page.text
    monkeypatch.setattr(tenants.services.engine.files, "_total_bytes", 2)
    refused = send(tenants, owner)
    assert refused.status_code == 400 and "files.organization_mb" in refused.text


def test_a_developer_deletes_and_downloads_own_files_alone(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    send(tenants, owner, name="theirs.txt")
    send(tenants, developer, name="own.txt")
    page = console.open_page(tenants, developer, "/console/files")
    assert "theirs.txt" in page and "Delete own.txt" in page and "Delete theirs.txt" not in page
    assert "Download own.txt" in page and "Download theirs.txt" not in page


def test_files_are_on_pages(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tenants["acme owner"]
    for number in range(3):
        send(tenants, owner, name=f"file-{number}.txt")
    monkeypatch.setattr(file_pages, "LISTED", 2)
    first = console.open_page(tenants, owner, "/console/files")
    older = re.findall(r'rel="next" href="[^"?]*(\?[^"]+)"', first)[0]
    assert "file-0" not in first and "file-0" in console.open_page(tenants, owner, f"/console/files{older}")
    assert "No files with this purpose" in console.open_page(tenants, owner, "/console/files?purpose=vision")


def test_the_erasure_of_a_person_deletes_the_files_stored_in_the_console(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    services = tenants.services
    send(tenants, owner, name="kept.txt")
    send(tenants, developer, name="erased.txt")
    person = members.find_member(services.store.database, owner.organization_id, developer.user_id)
    erase_member(services.store.database, services.store.control, person, actor="test")
    services.accounts.erasures.finish()
    services.engine.files.purge()
    page = console.open_page(tenants, owner, "/console/files")
    assert "kept.txt" in page and "erased.txt" not in page


def test_nothing_is_stored_in_an_archived_project(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    past = tenants.ok("POST", "/projects", owner, {"organizationId": owner.organization_id, "name": "Past"})
    ident = past["project"]["id"]
    tenants.ok("DELETE", f"/projects/{ident}", owner)
    refused = send(tenants, owner, project=ident)
    assert "is archived" in refused.text and "was stored" not in refused.text, refused.status_code


def test_hostile_fields_of_the_pages_are_refused(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    job = begin(tenants, owner)
    for cursor in ("x" * 10_000, "%00", "%EF%BF%BF", "batch_%F0%9F%8D%B5", "1-1", "-", "%2e%2e"):
        for place in ("jobs", "files", f"jobs/{owner.project_id}/{job}"):
            path = f"/console/{place}?cursor={cursor}&turn=9999999&kind=x&purpose=y"
            answer = tenants.client.get(path, headers=console.browser_headers(owner))
            assert answer.status_code < 500, (path[:100], answer.status_code)
    for fields in ({}, {"project": "../x", "job": "y"}, {"project": owner.project_id, "job": "\x00" * 90, "file": "é"}):
        for page, action in (("jobs", "cancel"), ("files", "delete")):
            csrf = console.CSRF.findall(console.open_page(tenants, owner, "/console/keys/new"))[0]
            form = {"csrf": csrf, "action": action, **fields}
            answer = tenants.client.post(f"/console/{page}", headers=console.browser_headers(owner), data=form)
            assert answer.status_code < 500, (page, fields, answer.status_code)
