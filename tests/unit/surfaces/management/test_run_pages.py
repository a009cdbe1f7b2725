"""Runs on logged requests: the cost first, progress, results side by side, and who sees them."""

import re

import orjson
import pytest
from support.console import open_page, press_button
from support.management import Person, Tenants

from gateway.batches.batch_table import RUN_PREFIX
from gateway.metering.log.search import LogFilter, LogScope
from gateway.money import format_usd, parse_usd
from gateway.surfaces.visitors import logged_runs

PATH = "/console/playground/runs"
BODY = {"model": "sandbox-echo", "stream": True, "max_tokens": 50, "provider": {"only": ["sandbox"]}}


@pytest.fixture
def logged(tenants: Tenants) -> Tenants:
    """Tenants with three retained chats of a developer, two of its owner, one of another API, and one not retained."""
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    tenants.services.billing.ledger.grant(owner.organization_id, 10**10, "test")
    chat(tenants, owner, "Not retained")
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"retention": "retain"})
    for person, number in ((developer, 3), (owner, 2)):
        for place in range(number):
            chat(tenants, person, f"Question {place} of {person.user_id}")
    said = {"model": "sandbox-echo", "max_tokens": 20, "messages": [{"role": "user", "content": "Other API"}]}
    tenants.ok("POST", "/v1/messages", owner.key.token, said)
    return tenants


def chat(tenants: Tenants, who: Person, text: str) -> None:
    body = BODY | {"messages": [{"role": "user", "content": text}], "stream": False}
    tenants.ok("POST", "/v1/chat/completions", who.key.token, body)


def ask(tenants: Tenants, who: Person, model: str = "sandbox-template", **more: object) -> str:
    query = "&".join(f"{name}={value}" for name, value in {"for": who.key.info.id, "target": model, **more}.items())
    return open_page(tenants, who, f"{PATH}?{query}")


def fields_of(page: str) -> dict[str, str]:
    return {
        name: re.findall(f'type="hidden" name="{name}" value="([^"]*)"', page)[-1]
        for name in ("for", "target", "bound", "requests")
    }


def press(tenants: Tenants, who: Person, path: str, action: str, status: int = 200, **fields: str):
    answer = press_button(tenants, who, path, action, **fields)
    assert answer.status_code == status, answer.text
    return answer


def begin(tenants: Tenants, who: Person, **changed: str) -> str:
    """Start the run of the page and return its id."""
    fields = fields_of(ask(tenants, who)) | changed
    answer = press(tenants, who, PATH, "start", status=303, **fields)
    return answer.headers["Location"].rpartition("/")[2]


def finish(tenants: Tenants) -> None:
    tenants.services.engine.batches.run()


def test_the_cost_is_shown_first_and_is_the_sum_of_the_bounds(logged: Tenants) -> None:
    owner = logged["acme owner"]
    page = ask(logged, owner)
    fields = fields_of(page)
    assert len(fields["requests"].split(",")) == 5 and "1 request of other APIs" in page
    bounds = []
    for ident in fields["requests"].split(","):
        one = logged.services.engine.retention.find(ident)
        sent = orjson.loads(logged.services.engine.retention.read(one).sent)
        line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions"}
        body = {name: value for name, value in sent.items() if name not in ("stream", "provider")}
        text = orjson.dumps(line | {"body": body | {"model": "sandbox-template"}})
        caller = logged.services.accounts.authentication.caller_of_key(owner.key.info.id)
        task = logged_runs.task_of("sandbox-template", "", "")
        bounds.append(logged.services.engine.batches.measure(caller, line["url"], [text], task).bound_nusd)
    assert parse_usd(fields["bound"]) == sum(bounds) > 0
    assert fields_of(ask(logged, owner, count=2))["requests"].count(",") == 1
    assert "Run 1 request<" in ask(logged, owner, api="/v1/messages")


def test_a_run_pays_with_the_key_and_shows_both_answers(logged: Tenants) -> None:
    owner = logged["acme owner"]
    run = begin(logged, owner)
    assert run.startswith(f"{RUN_PREFIX}_")
    waiting = open_page(logged, owner, f"{PATH}/{run}")
    assert "in_progress" in waiting and 'hx-trigger="every 2s"' in waiting and "Waiting…" in waiting
    finish(logged)
    page = open_page(logged, owner, f"{PATH}/{run}")
    assert "completed" in page and "5 of 5" in page and "every 2s" not in page
    job = logged.services.engine.batches.rows.find(run)
    assert job is not None and job.failed == 0 and 0 < job.cost_nusd <= job.bound_nusd
    assert f'title="${format_usd(job.cost_nusd)}"' in page and "Before" in page
    ids = [one.request_id for one in logged_runs.read_results(logged.services, job, range(0))]
    rows = logged_runs.read_records(logged.services, ids)
    assert sum(row.cost_nusd for row in rows.values()) == job.cost_nusd
    assert {row.asked for row in rows.values()} == {"sandbox-template"}
    assert {f"key_{row.owner.api_key.hex()}" for row in rows.values()} == {owner.key.info.id}
    assert "sandbox-template" in open_page(logged, owner, f"{PATH}?for={owner.project_id}")
    gone = press(logged, owner, f"{PATH}/{run}", "delete", status=303)
    assert gone.headers["Location"].endswith(f"for={owner.project_id}")
    open_page(logged, owner, f"{PATH}/{run}", status=404)


def test_filters_of_the_list_of_requests_are_kept(logged: Tenants) -> None:
    owner, developer = logged["acme owner"], logged["acme developer"]
    page = open_page(logged, owner, f"{PATH}?userId={developer.user_id}&projectId={owner.project_id}&status=200")
    assert f'name="userId" value="{developer.user_id}"' in page and "status=200" in page
    assert fields_of(ask(logged, owner, userId=developer.user_id))["requests"].count(",") == 2
    assert "No request of this filter" in ask(logged, owner, status=404)
    wrong = open_page(logged, owner, f"{PATH}?target=sandbox-template&status=many", status=400)
    assert 'class="problem"' in wrong and "status" in wrong
    assert "Try another model" in open_page(logged, owner, f"/console/logs?userId={developer.user_id}")


def test_a_run_hides_requests_that_its_maker_may_not_see_any_more(logged: Tenants) -> None:
    owner, admin, developer = (logged[name] for name in ("acme owner", "acme admin", "acme developer"))
    run = begin(logged, admin)
    finish(logged)
    question = f"Question 0 of {developer.user_id}"
    assert question in open_page(logged, admin, f"{PATH}/{run}")
    place = f"/orgs/{owner.organization_id}/members/{admin.member_id}"
    logged.ok("PATCH", place, owner, {"role": "developer"})
    page = open_page(logged, admin, f"{PATH}/{run}")
    assert question not in page and "completed" in page


def test_developers_run_and_see_only_their_own_requests(logged: Tenants) -> None:
    owner, developer = logged["acme owner"], logged["acme developer"]
    own = fields_of(ask(logged, developer))["requests"].split(",")
    assert len(own) == 3
    foreign = fields_of(ask(logged, owner))["requests"]
    run = begin(logged, developer, requests=foreign)
    batches = logged.services.engine.batches
    job = batches.rows.find(run)
    assert job is not None and job.total == 3 and batches.rows.task_of(job).sending == "direct"
    patient = batches.rows.find(begin(logged, developer, patient="true"))
    assert patient is not None and batches.rows.task_of(patient).sending == "auto"
    open_page(logged, owner, f"{PATH}/{run}")
    open_page(logged, logged["acme colleague"], f"{PATH}/{run}", status=404)
    open_page(logged, logged["rival owner"], f"{PATH}/{run}", status=404)
    with_owner = begin(logged, owner)
    open_page(logged, developer, f"{PATH}/{with_owner}", status=404)


def test_a_run_stays_within_the_limit_of_its_key_and_is_cancelled(logged: Tenants) -> None:
    owner = logged["acme owner"]
    run = begin(logged, owner)
    press(logged, owner, f"{PATH}/{run}", "cancel")
    finish(logged)
    assert "cancelled" in open_page(logged, owner, f"{PATH}/{run}")
    fields = fields_of(ask(logged, owner))
    low = press(logged, owner, PATH, "start", status=409, **(fields | {"bound": "0.000000001"}))
    assert "more than before" in low.text
    logged.ok("PATCH", f"/keys/api/limit/{owner.key.info.id}", owner, {"usageLimit": "0.000000001"})
    refused = press(logged, owner, PATH, "start", status=402, **fields)
    assert "must be available before it begins" in refused.text


def test_a_run_without_an_own_key_gets_one_that_lasts_as_long_as_it_may_take(logged: Tenants) -> None:
    owner = logged["acme owner"]
    fields = fields_of(open_page(logged, owner, f"{PATH}?for={owner.project_id}&target=sandbox-template"))
    answer = press(logged, owner, PATH, "start", status=303, **fields)
    job = logged.services.engine.batches.rows.find(answer.headers["Location"].rpartition("/")[2])
    assert job is not None and job.api_key != owner.key.info.id
    key = logged.ok("GET", f"/keys/api/{job.api_key}", owner)
    assert key["apiKey"]["description"] == "Playground" and key["apiKey"]["kind"] == "customer"
    finish(logged)
    assert "completed" in open_page(logged, owner, f"{PATH}/{job.id}")


def test_a_run_is_not_counted_for_the_end_users_of_its_requests(logged: Tenants) -> None:
    owner, services = logged["acme owner"], logged.services
    said = {"model": "sandbox-echo", "max_tokens": 20, "messages": [{"role": "user", "content": "For a customer"}]}
    logged.ok("POST", "/v1/messages", owner.key.token, said | {"metadata": {"user_id": "customer-17"}})
    services.store.journal.flush(60)
    scopes = [LogScope(owner.project_id)]
    requests = logged_runs.select(services, scopes, LogFilter(), 1, "/v1/messages").requests
    (line,) = logged_runs.write_lines(services, requests, "/v1/messages", "sandbox-template")
    assert b"For a customer" in line and b"customer-17" not in line
