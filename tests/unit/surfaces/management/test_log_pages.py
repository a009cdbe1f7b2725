"""The pages of the request log: what a person finds there, and what they do not."""

import re
import time

import orjson
import pytest
from support.console import browser_headers, open_page
from support.management import Person, Tenants

from gateway.metering.models import BYOK
from gateway.surfaces.visitors.request_log_reader import LogsQuery

BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "<b>Hello</b> there"}]}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def used(open_tenants) -> Tenants:
    """Tenants in which a developer made a request that was kept, and one that was refused."""
    with open_tenants() as tenants:
        developer, owner = tenants["acme developer"], tenants["acme owner"]
        tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "pages")
        tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "retain"})
        tenants.ok("POST", CHAT, developer.key.token, BODY, x_llmgateway_team="search", x_request_id="kept-1")
        tenants.call("POST", CHAT, developer.key.token, BODY | {"model": "<i>none</i>"}, x_request_id="refused-1")
        tenants.services.store.journal.flush(60)
        yield tenants


def read(tenants: Tenants, path: str, who: Person | None) -> tuple[int, str, str]:
    headers = {"Cookie": f"llmgateway.session_token={who.token}"} if who else {}
    answer = tenants.client.get(path, headers=headers)
    return answer.status_code, answer.get_data(as_text=True), answer.headers.get("Location", "")


def test_a_person_finds_a_request_and_all_that_is_known_of_it(used: Tenants) -> None:
    developer = used["acme developer"]
    _, page, _ = read(used, "/console/logs", developer)
    assert "sandbox/sandbox-echo" in page and re.search(r"400</span><span[^>]*> model_not_found", page)
    assert "&lt;i&gt;none&lt;/i&gt;" in page and "<i>none" not in page
    links = re.findall(r'href="[^"]*/console/logs/([0-9a-f]{32})"', page)
    assert len(links) == 2
    _, one, _ = read(used, f"/console/logs/{links[1]}", developer)
    assert "&lt;b&gt;Hello&lt;/b&gt; there" in one and "<b>Hello" not in one
    assert (
        "Sandbox was chosen for sandbox-echo because" in one
        and "Input cost" in one
        and "search" in one
        and "kept-1" in one
    )
    name = developer.key.info.description
    assert '<span class="note">Sandbox</span>' in page and "<dd>Sandbox</dd>" in one
    assert f">{name}</a>" in page and f"<dd>{name}</dd>" in one and developer.key.info.id in page
    assert '<td class="brief extra" title="developer@acme.example">developer@acme.example' in page
    assert "Request, as it was sent" in one and "Response, as it was received" in one
    conversation = one.partition('id="conversation"')[2].partition("</section>")[0]
    assert conversation.count('<li class="turn') == 2 and "&lt;b&gt;Hello&lt;/b&gt; there" in conversation
    assert "<dd>None</dd>" not in one and "<dd></dd>" not in one
    _, refused, _ = read(used, "/console/logs/refused-1", developer)
    assert "rejected the request before calling a provider" in refused and "model_not_found" in refused


def test_a_decision_names_the_providers_that_were_excluded(used: Tenants) -> None:
    developer = used["acme developer"]
    decision = [1, "sandbox-echo", 0, 1, "", 0, "", [["sandbox", 0, 0]], [], [[5, "no credential", ["openai"]]]]
    database = used.services.store.database
    database.write(lambda: database.execute("UPDATE decision SET record = ?", (orjson.dumps(decision),)))
    _, one, _ = read(used, "/console/logs/kept-1", developer)
    assert "Excluded: OpenAI (no credential)" in one


def test_the_fields_narrow_the_list_and_keep_what_was_given(used: Tenants) -> None:
    owner = used["acme owner"]
    _, page, _ = read(used, "/console/logs?metadata=team:search&status=200&model=", owner)
    assert len(set(re.findall("/console/logs/[0-9a-f]{32}", page))) == 1 and 'value="team:search"' in page
    assert "/logs/export?status=200&amp;metadata=team%3Asearch" in page
    assert "No requests match these filters" in read(used, "/console/logs?errorCode=timeout", owner)[1]
    status, page, _ = read(used, "/console/logs?status=x", owner)
    assert status == 400 and "status" in page


def test_the_form_has_a_field_for_each_filter_and_the_live_list_is_read_without_suggestions(used: Tenants) -> None:
    owner = used["acme owner"]
    page = open_page(used, owner, "/console/logs")
    fields = {field.data_key or name for name, field in LogsQuery().fields.items()}
    assert {"1h", "24h", "7d", "30d"} <= set(re.findall(r'<option value="(\w+)"', page))
    assert fields - {"retained"} <= set(re.findall(r'name="(\w+)"', page))
    projects = re.findall(r'<select id="projectId".*?</select>', page, re.DOTALL)[0]
    assert re.findall(r'value="([^"]*)"', projects) == ["", owner.project_id]
    live = used.client.get("/console/logs?live=1", headers=browser_headers(owner) | {"HX-Target": "list"})
    assert live.status_code == 200 and "sandbox-echo" in live.text


def test_a_click_shows_failed_slow_or_expensive_requests_and_another_all_again(used: Tenants) -> None:
    owner = used["acme owner"]
    chips = re.compile(
        r'<a class="chip( on)?" role="button" aria-pressed="(\w+)" href="http://localhost([^"]*)">([\w ]+)<'
    )
    page = open_page(used, owner, "/console/logs?source=unknown")
    offered = {name: path for _, _, path, name in chips.findall(page)}
    assert set(offered) == {"Failed", "Answered", "No session", "Slow", "Expensive"}
    for name in ("Answered", "No session"):
        shown = open_page(used, owner, offered[name])
        assert shown.count('class="open"') == 1 and "model_not_found" not in shown
        assert '<option value="true" selected>' in shown, "the next search keeps it"
    failed = open_page(used, owner, offered["Failed"])
    assert failed.count('class="open"') == 1 and "model_not_found" in failed and "source=unknown" in offered["Failed"]
    pressed = {name: path for on, state, path, name in chips.findall(failed) if on and state == "true"}
    assert list(pressed) == ["Failed"]
    everything = open_page(used, owner, pressed["Failed"])
    assert everything.count('class="open"') == 2
    for name in ("Slow", "Expensive"):
        assert "No requests match these filters" in open_page(used, owner, offered[name])
    for bad in ("minCost=x", "minDurationMs=-1", "failed=maybe"):
        open_page(used, owner, f"/console/logs?{bad}", 400)


def test_requests_of_others_cannot_be_read(used: Tenants) -> None:
    developer = used["acme developer"]
    _, page, _ = read(used, "/console/logs", developer)
    ident = re.findall(r"/console/logs/([0-9a-f]{32})", page)[0]
    for who in (used["acme colleague"], used["rival owner"]):
        assert "No requests yet" in read(used, "/console/logs", who)[1]
        assert "No request" in read(used, f"/console/logs?apiKeyId={developer.key.info.id}", who)[1]
        assert read(used, f"/console/logs/{ident}", who)[0] in (403, 404)
        assert read(used, "/console/logs/kept-1", who)[0] == 404


def test_people_return_to_the_page_after_signing_in(used: Tenants) -> None:
    status, _, location = read(used, "/console/logs?status=402", None)
    assert status == 303 and location.endswith("/console/login?redirect=%2Fconsole%2Flogs%3Fstatus%3D402")


def test_older_requests_are_behind_a_link(used: Tenants, monkeypatch) -> None:
    monkeypatch.setattr("gateway.surfaces.console.request_pages.ROWS", 1)
    owner = used["acme owner"]
    _, page, _ = read(used, "/console/logs?source=unknown", owner)
    [older] = re.findall(r'href="[^"]*(/console/logs\?[^"]+)">Older', page)
    assert "source=unknown" in older
    _, page, _ = read(used, older.replace("&amp;", "&"), owner)
    assert len(set(re.findall("/console/logs/[0-9a-f]{32}", page))) == 1 and "Older" not in page


def test_no_page_is_a_dead_end(used: Tenants) -> None:
    owner = used["acme owner"]
    for path in ("/console/account", "/console/logs", "/console/logs/kept-1", "/console/alerts", "/console/device"):
        _, page, _ = read(used, path, owner)
        assert {"/console/account", "/console/logs", "/console/alerts", "/docs"} <= ways_on(page), path
    status, page, _ = read(used, "/console/logs/none-such", owner)
    assert status == 404 and {"/console", "/console/logs"} <= ways_on(page)


def ways_on(page: str) -> set[str]:
    return {re.sub(r"https?://[^/]*", "", one) for one in re.findall(r'<a href="([^"]*)"', page)}


def test_a_finished_video_is_opened_from_its_request(used: Tenants) -> None:
    developer, videos = used["acme developer"], used.services.engine.videos
    body = {"model": "sandbox/sandbox-film", "prompt": "A kettle boils. [[sandbox: takes=0.01]]"}
    begun = used.ok("POST", "/v1/videos", developer.key.token, body)["id"]
    ident = begun.removeprefix("video_")
    assert not videos.link_of_log(ident, "")
    database = used.services.store.database
    for _ in range(50):
        time.sleep(0.02)
        database.write(lambda: database.execute("UPDATE video_job SET due_at = 1 WHERE due_at IS NOT NULL"))
        videos.poller.run()
        if used.ok("GET", f"/v1/videos/{begun}", developer.key.token)["status"] == "completed":
            break
    used.services.store.journal.flush(60)
    _, page, _ = read(used, f"/console/logs/{ident}", developer)
    link = re.findall(rf'href="http://localhost(/v1/videos/logs/{ident}/content\?token=[^"]+)"', page)[0]
    assert used.client.get(link).headers["Content-Type"] == "video/mp4"
    assert "Video output cost" in page


def test_the_live_view_reads_itself_again_and_keeps_the_filters(used: Tenants) -> None:
    owner = used["acme owner"]
    _, page, _ = read(used, "/console/logs?status=200&live=1", owner)
    assert re.search(r'hx-get="[^"]*/console/logs\?status=200&amp;live=1" hx-trigger="every 1s"', page)
    assert "Stop the live view" in page and "Older requests" not in page
    still = read(used, "/console/logs?status=200", owner)[1]
    assert "every 1s" not in still
    switch = re.compile(r'href="http://localhost/console/logs([^"]*)" class="button small[^"]*" aria-pressed')
    assert switch.findall(page) == ["?status=200"] and switch.findall(still) == ["?status=200&amp;live=1"]


def test_the_requests_of_a_person_are_found_by_name(used: Tenants) -> None:
    developer = used["acme developer"]
    colleague = used["acme colleague"]
    owner = used["acme owner"]
    _, page, _ = read(used, f"/console/logs?userId={developer.user_id}", owner)
    assert "kept-1" not in page and page.count('class="open"') >= 2
    assert f'<option value="{developer.user_id}" selected>developer@acme.example</option>' in page
    assert "No requests match" in read(used, f"/console/logs?userId={colleague.user_id}", owner)[1]
    # A developer sees only their own requests, and a stranger none of these.
    assert "No requests match" in read(used, f"/console/logs?userId={developer.user_id}", colleague)[1]
    assert "No requests match" in read(used, f"/console/logs?userId={developer.user_id}", used["rival owner"])[1]
    found = used.ok("GET", f"/logs?userId={developer.user_id}&status=200", owner)["logs"]
    assert {log["apiKeyId"] for log in found} == {developer.key.info.id}


def test_a_request_says_who_paid_which_app_sent_it_and_what_a_discount_saved(used: Tenants) -> None:
    developer = used["acme developer"]
    before = open_page(used, developer, "/console/logs/kept-1")
    assert "<dd>credits</dd>" in before and "Saved by discounts" not in before
    refused = open_page(used, developer, "/console/logs/refused-1")
    assert "<dt>Error</dt>" not in refused and "Data storage" not in refused
    database = used.services.store.database
    paid = f"UPDATE usage SET mode = {BYOK}, source = 'acme-app', discount_nusd = 5000, storage_nusd = 7000"
    database.write(lambda: database.execute(paid))
    page = open_page(used, developer, "/console/logs/kept-1")
    assert "<dd>your own provider key</dd>" in page and "<dd>acme-app</dd>" in page
    labels = re.findall(r"<dt>([^<]+)</dt>", page)
    # The list does not repeat the head of the page and its other parts.
    assert len(labels) == len(set(labels))
    assert {"Attempts", "Created at", "Duration ms", "Id", "Metadata", "Served"}.isdisjoint(labels)
    assert {"App", "Project", "API key", "Finish reason", "Paid by", "Payload kept", "x-request-id"} <= set(labels)
    assert {"Data storage", "Saved by discounts"} <= set(labels)


def test_a_failed_request_has_calls_and_only_chats_can_be_replayed(used: Tenants) -> None:
    developer = used["acme developer"]
    used.call("POST", CHAT, developer.key.token, BODY | {"model": "sandbox/sandbox-fail"}, x_request_id="failed-1")
    judged = {"model": "sandbox/sandbox-moderate", "input": "Hello"}
    used.ok("POST", "/v1/moderations", developer.key.token, judged, x_request_id="judged-1")
    used.services.store.journal.flush(60)
    _, failed, _ = read(used, "/console/logs/failed-1", developer)
    assert "no provider answered" in failed and "no provider was called" not in failed
    assert "/console/playground?request=" in failed
    assert "/console/playground?request=" not in read(used, "/console/logs/judged-1", developer)[1]
