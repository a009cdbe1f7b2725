import csv
import gc
import importlib
import io
import json
import tracemalloc

import pytest
from support.management import Person, Tenants
from support.requests import attempt, entry, fill, owned

from gateway.clock import DAY_US, to_iso
from gateway.metering.usage_table import raw_id
from gateway.money import format_usd
from gateway.store.partitions import id_at

FORMULAS = ("=1+1", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1")


def told_by(person: Person) -> dict[str, bytes]:
    ids = {"project": person.project_id, "key": person.key.info.id, "member": person.member_id}
    return owned(**ids) | {"organization": raw_id(person.organization_id)}


JSON_LINES = "application/x-ndjson"


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def export(tenants: Tenants, who: Person, query: str, media_type: str = "text/csv; charset=utf-8") -> str:
    answer = tenants.client.get(query, headers={"Authorization": f"Bearer {who.token}"})
    text: str = answer.get_data(as_text=True)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, media_type), text
    return text


@pytest.fixture
def used(tenants: Tenants) -> Tenants:
    """Tenants with an owner and a developer who made requests of every kind today."""
    database = tenants.services.store.database
    now_us = tenants.services.clock.now_us()
    extra = json.dumps({"units": {"input_audio": 7, "output_image": 3}, "nusd": {"request": 5, "images": 11}})
    for place, person in enumerate((tenants["acme owner"], tenants["acme developer"])):
        mine = told_by(person)
        for number in range(20):
            request = (now_us // 1000 - 1000 + number).to_bytes(6, "big") + bytes(8) + bytes([place, number])
            more = {"request": request, "at": now_us - 1000, "posted_at": now_us - 900, **mine}
            costs = {"cost_nusd": 26, "input_nusd": 6, "output_nusd": 4, "extra": extra, "discount_nusd": 2}
            rows = [attempt(attempt=0, error="timeout", status=0, **more), attempt(attempt=1, **more, **costs)]
            fill(database, rows if number % 3 else rows[:1])
            if number % 5 == 0:
                fill(database, [entry(**{**mine, "request": request[:-1] + b"\xff"}, asked=FORMULAS[number % 8])])
    return tenants


def test_a_csv_of_usage_adds_up_to_what_activity_shows(used: Tenants) -> None:
    for who in (used["acme owner"], used["acme developer"]):
        rows = read_csv(export(used, who, "/activity/export?days=1"))
        [day] = used.ok("GET", "/activity?days=1", who)["activity"]
        for column, shown in (
            ("requestCount", "requestCount"), ("errorCount", "errorCount"), ("clientErrorCount", "clientErrorCount"),
            ("inputTokens", "inputTokens"), ("outputTokens", "outputTokens"), ("cacheCount", "cacheCount"),
        ):  # fmt: skip
            assert sum(int(row[column]) for row in rows) == day[shown], column
        for column, shown in (("cost", "cost"), ("inputCost", "inputCost"), ("discountSavings", "discountSavings")):
            assert sum(round(float(row[column]) * 10**9) for row in rows) == round(day[shown] * 10**9), column
        assert {row["apiKeyId"] for row in rows} == (
            {who.key.info.id}
            if who is used["acme developer"]
            else {used[f"acme {r}"].key.info.id for r in ("owner", "developer")}
        )


def test_the_breakdown_by_user_has_names_and_addresses_and_adds_up_to_the_day(used: Tenants) -> None:
    [day] = used.ok("GET", "/activity?days=1&groupBy=user", used["acme owner"])["activity"]
    found = {one["id"]: one for one in day["userBreakdown"]}
    people = [used[f"acme {role}"] for role in ("owner", "developer")]
    assert {ident: one["email"] for ident, one in found.items()} == {
        who.user_id: f"{role}@acme.example" for who, role in zip(people, ("owner", "developer"), strict=True)
    }
    assert all(one["description"] for one in found.values())
    assert sum(one["requestCount"] for one in found.values()) == day["requestCount"]
    assert round(sum(one["cost"] for one in found.values()) * 10**9) == round(day["cost"] * 10**9)


def test_a_request_of_two_days_is_in_the_export_of_each_with_the_attempts_of_that_day(tenants: Tenants) -> None:
    owner, now_us = tenants["acme owner"], tenants.services.clock.now_us()
    midnight_us = now_us // DAY_US * DAY_US
    mine = told_by(owner) | {"request": id_at(midnight_us - 2000)[:6] + bytes(10), "posted_at": now_us - 1}
    first = attempt(attempt=0, at=midnight_us - 1000, error="timeout", cost_nusd=3, **mine)
    fill(tenants.services.store.database, [first, attempt(attempt=1, at=midnight_us, cost_nusd=5, **mine)])
    days = [to_iso(midnight_us - back * DAY_US)[:10] for back in (1, 0)]
    for day, number, cost in zip(days, ("0", "1"), (3, 5), strict=True):
        query = f"from={day}&to={day}&projectId={owner.project_id}"
        [row] = read_csv(export(tenants, owner, f"/activity/export?{query}"))
        assert (row["number"], row["cost"], row["requestCount"]) == (number, format_usd(cost), number)
        [shown] = tenants.ok("GET", f"/activity?{query}", owner)["activity"]
        assert (shown["requestCount"], round(shown["cost"] * 10**9)) == (int(row["requestCount"]), cost)


def test_days_without_requests_have_every_figure_of_the_others(used: Tenants) -> None:
    owner = used["acme owner"]
    first = to_iso(used.services.clock.now_us() - 9 * DAY_US)[:10]
    for group in ("model", "apiKey", "user"):
        *unused, day = used.ok("GET", f"/activity?from={first}&groupBy={group}", owner)["activity"]
        assert len(unused) == 9 and day["requestCount"]
        for one in unused:
            assert set(one) == set(day)
            assert not any(value for name, value in one.items() if name != "date")


def test_lines_of_json_say_the_same_as_csv(used: Tenants) -> None:
    owner = used["acme owner"]
    for path in ("/logs/export?", "/activity/export?days=1&"):
        rows = read_csv(export(used, owner, f"{path}format=csv"))
        lines = [json.loads(line) for line in export(used, owner, f"{path}format=jsonl", JSON_LINES).splitlines()]
        assert [row["id"] for row in rows] == [line["id"] for line in lines] and len(lines) >= 40
        assert set(lines[0]) == set(rows[0])


def test_no_cell_is_a_formula(used: Tenants) -> None:
    rows = read_csv(export(used, used["acme owner"], "/logs/export"))
    asked = {row["model"] for row in rows}
    assert "'=1+1" in asked and "small" in asked
    assert not any(cell.lstrip()[:1] in ("=", "+", "@", "＝") for row in rows for cell in row.values())


def test_an_export_takes_the_filters_of_its_list(used: Tenants) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    for query in ("errorCode=timeout", "status=402", f"apiKeyId={developer.key.info.id}", "model=small&provider=vendor",
                  f"to={to_iso(used.services.clock.now_us() - 10**9)}"):  # fmt: skip
        listed = [log["id"] for log in used.ok("GET", f"/logs?limit=100&{query}", owner)["logs"]]
        assert [row["id"] for row in read_csv(export(used, owner, f"/logs/export?{query}"))] == listed
    rows = read_csv(export(used, owner, f"/activity/export?apiKeyId={developer.key.info.id}&days=1"))
    assert rows and {row["apiKeyId"] for row in rows} == {developer.key.info.id}


@pytest.mark.parametrize("path", ["/logs/export", "/activity/export"])
def test_exports_have_only_rows_that_the_person_may_list(used: Tenants, path: str) -> None:
    owner, developer, stranger = used["acme owner"], used["acme developer"], used["rival owner"]
    assert used.refused("GET", f"{path}?projectId={owner.project_id}", stranger).startswith("403")
    for who, query in (
        (stranger, ""),
        (stranger, f"?apiKeyId={owner.key.info.id}"),
        (developer, f"?apiKeyId={owner.key.info.id}"),
    ):
        assert read_csv(export(used, who, path + query)) == []
    assert used.refused("GET", path, owner.key.token) == "401 session_invalid"
    assert used.refused("GET", f"{path}?format=xls", owner).startswith("400")


WISHES = (
    "", "projectId={project}", "apiKeyId={key}", "projectId={project}&apiKeyId={key}", "groupBy=apiKey", "groupBy=user",
    "groupBy=apiKey&projectId={project}", "groupBy=user&apiKeyId={key}", "timezone=Asia/Kolkata&groupBy=apiKey",
    "timeRange=4h&groupBy=apiKey", "timeRange=365d&groupBy=user", "days=2&timezone=Europe/Berlin&apiKeyId={key}",
)  # fmt: skip


@pytest.mark.parametrize("path", ["/activity", "/activity/export", "/logs/export"])
def test_no_parameter_shows_a_developer_what_another_key_did(used: Tenants, path: str) -> None:
    used.services.billing.rollups.catch_up()
    owner, developer, stranger = (used[name] for name in ("acme owner", "acme developer", "rival owner"))
    names = {"project": owner.project_id, "key": owner.key.info.id}
    for wish in WISHES if "logs" not in path else WISHES[:4]:
        for who, own in ((developer, 20), (stranger, 0)):
            status, answer = used.call("GET", f"{path}?{wish.format(**names)}", who)
            assert owner.key.info.id not in str(answer) and owner.user_id not in str(answer), wish
            if status != 200:
                assert status in (403, 404), (wish, answer)
            elif path == "/activity":
                counted = sum(day["requestCount"] for day in answer["activity"])
                assert counted in (0, own), wish
                parts = [
                    part for day in answer["activity"] for name in day if "Breakdown" in name for part in day[name]
                ]
                assert sum(part["requestCount"] for part in parts) == counted
            else:
                mine = {row["apiKeyId"] for row in read_csv(answer if isinstance(answer, str) else "")}
                assert mine <= {who.key.info.id}


def test_an_export_ends_with_the_membership_that_it_was_begun_with(used: Tenants, monkeypatch) -> None:
    monkeypatch.setattr("gateway.surfaces.management.exports.PAGE", 5)
    developer, owner = used["acme developer"], used["acme owner"]
    answer = used.client.get("/logs/export", headers={"Authorization": f"Bearer {developer.token}"})
    pieces = iter(answer.response)
    assert next(pieces) and next(pieces)
    used.ok("DELETE", f"/orgs/{owner.organization_id}/members/{developer.member_id}", owner)
    with pytest.raises(Exception, match="membership changed"):
        list(pieces)


@pytest.mark.parametrize(
    "path", ["/logs/export", "/activity/export", "/activity/shares/export?timeRange=7d", "/activity/outcomes/export"]
)
def test_an_organization_has_so_many_exports_at_once_and_another_one_is_not_concerned(used: Tenants, path: str) -> None:
    owner = used["acme owner"]
    going = [used.client.get(path, headers={"Authorization": f"Bearer {owner.token}"}) for _ in range(2)]
    assert [answer.status_code for answer in going] == [200, 200]
    assert used.refused("GET", path, used["acme developer"]) == "429 too_many_exports"
    assert used.call("GET", path, used["rival owner"])[0] == 200
    assert b"".join(going[0].response)  # read to its end
    assert used.call("GET", path, owner)[0] == 200
    going[1].close()  # broken off
    for _ in range(3):
        assert used.call("GET", path, owner)[0] == 200


def test_an_export_leaves_headers_of_every_answer_to_the_server(used: Tenants) -> None:
    header = {"Authorization": f"Bearer {used['acme owner'].token}"}
    assert "X-Content-Type-Options" not in used.client.get("/logs/export", headers=header).headers


def test_an_export_says_when_its_rows_begin(used: Tenants) -> None:
    owner, database = used["acme owner"], used.services.store.database
    rollups = used.services.billing.rollups
    rollups.catch_up()
    query = f"/activity/export?days=7&projectId={owner.project_id}"
    header = {"Authorization": f"Bearer {owner.token}"}
    assert "X-LLMGateway-Rows-Since" not in used.client.get(query, headers=header).headers
    since_us = used.services.clock.now_us() // 60_000_000 * 60_000_000 - 2 * 86_400_000_000
    purged = id_at(since_us).hex()
    database.write(lambda: database.execute("UPDATE rollup_state SET purged = ?", (purged,)))
    assert used.client.get(query, headers=header).headers["X-LLMGateway-Rows-Since"] == to_iso(since_us)
    query = query.replace("days=7", "days=1")
    assert "X-LLMGateway-Rows-Since" not in used.client.get(query, headers=header).headers


def test_no_export_holds_a_read_of_the_store_while_it_is_sent(used: Tenants, monkeypatch) -> None:
    monkeypatch.setattr("gateway.surfaces.management.exports.PAGE", 5)
    database, owner = used.services.store.database, used["acme owner"]
    answer = used.client.get("/logs/export", headers={"Authorization": f"Bearer {owner.token}"})
    for _ in answer.response:
        assert not database.peewee.in_transaction() and database.peewee.is_closed()


def test_money_in_an_export_is_exact(used: Tenants) -> None:
    rows = read_csv(export(used, used["acme owner"], "/activity/export?days=1"))
    whole = [row for row in rows if row["number"] == "1"]
    assert {row["cost"] for row in whole} == {format_usd(26)} and {row["otherCost"] for row in whole} == {
        format_usd(16)
    }


def peak_of(tenants: Tenants, who: Person) -> tuple[int, int]:
    """Lines of an export, and the most memory that it held beside what was there."""
    answer = tenants.client.get("/logs/export", headers={"Authorization": f"Bearer {who.token}"})
    gc.collect()
    tracemalloc.start()
    rows = 0
    for number, piece in enumerate(answer.response):
        rows += piece.count(b"\r\n")
        if number % 4 == 0:
            gc.collect(1)  # as it comes by in a process that runs for long
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return rows, peak


@pytest.mark.slow
def test_a_long_export_holds_no_more_memory_than_a_short_one(tenants: Tenants, monkeypatch) -> None:
    monkeypatch.setattr("gateway.surfaces.management.exports.PAGE", 25)
    # A worker that leads loads it meanwhile else, a megabyte.
    importlib.import_module("apscheduler.schedulers.gevent")
    owner, database = tenants["acme owner"], tenants.services.store.database
    mine, start = told_by(owner), tenants.services.clock.now_us() // 1000 - 10**6
    peaks = []
    for first, last in ((0, 100), (100, 600)):
        fill(database, [
            attempt(request=(start + n).to_bytes(6, "big") + n.to_bytes(10, "big"), **mine) for n in range(first, last)
        ])  # fmt: skip
        tenants.services.billing.rollups.catch_up()  # or its job would do so meanwhile, in the same memory
        found = [peak_of(tenants, owner) for _ in range(3)]
        assert {rows for rows, _ in found} == {last + 1}  # with its header
        peaks.append(min(peak for _, peak in found))  # what the process does beside it only adds to one
    assert peaks[1] < peaks[0] * 2, peaks
