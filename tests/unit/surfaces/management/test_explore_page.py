"""Explore: the spending by key and person, and the permission to see it."""

import csv
import io
import re
from datetime import date, timedelta
from html import unescape

import pytest
from support.management import Person, Tenants
from support.statement_work import note_statements

from gateway.accounts import keys
from gateway.clock import DAY_US, to_iso
from gateway.metering.rollups.rollup_table import DAILY, Series
from gateway.metering.usage_table import UsageRecord, raw_id, write_row
from gateway.store.partitions import id_at
from gateway.surfaces.console import usage_reader
from gateway.surfaces.console.explore_periods import COMPARISONS, RANGES
from gateway.surfaces.console.grouping import GROUPS
from gateway.surfaces.console.shown_figures import show_change
from gateway.surfaces.console.usage_measures import MEASURES

BODY = {"model": "sandbox/sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(scope="module")
def used(open_tenants) -> Tenants:
    """Tenants in which a developer and their colleague made requests that statistics have summed up."""
    with open_tenants() as tenants:
        tenants.services.billing.ledger.grant(tenants["acme owner"].organization_id, 10**9, "pages")
        for who, times in (("acme developer", 2), ("acme colleague", 1)):
            for _ in range(times):
                tenants.ok("POST", "/v1/chat/completions", tenants[who].key.token, BODY)
        tenants.services.store.journal.flush(60)
        tenants.services.billing.rollups.catch_up()
        yield tenants


def cookie(who: Person) -> dict[str, str]:
    return {"Cookie": f"llmgateway.session_token={who.token}"}


def read(tenants: Tenants, who: Person, query: str = "") -> str:
    return unescape(tenants.client.get(f"/console/explore{query}", headers=cookie(who)).text)


def requests_of(page: str) -> int:
    return int(re.findall(r'<dt>Requests</dt><dd><span title="(\d+)"', page)[0])


@pytest.mark.parametrize("group", ["session", "tag", "app"])
def test_pages_that_show_no_models_do_not_read_their_sums(used: Tenants, group: str) -> None:
    """Models of each day are most of the sums of a year."""
    with pytest.MonkeyPatch.context() as patch:
        noted = note_statements(patch)
        read(used, used["acme owner"], f"?timeRange=365d&tag=team&groupBy={group}")
    series = {params[0] % DAILY for sql, params in noted if "FROM rollup WHERE series = ?" in sql}
    assert Series.PROJECT in series
    assert Series.PROJECT_MODEL not in series


def test_keys_show_when_they_were_last_used(used: Tenants) -> None:
    developer = used["acme developer"]
    unused = used.ok("POST", "/keys/api", developer, {"description": "Unused", "projectId": developer.project_id})
    last = {key["id"]: key["lastUsedAt"] for key in used.ok("GET", "/keys/api", developer)["apiKeys"]}
    hour = last.pop(developer.key.info.id)
    assert hour.endswith(":00:00.000Z") and hour <= to_iso(used.services.clock.now_us())
    assert last == {unused["apiKey"]["id"]: None}
    page = used.client.get("/console/keys", headers=cookie(developer)).text
    assert page.count('data-label="Last used" class="time"><time') == 1


@pytest.mark.parametrize("group", ["model", "apiKey", "user"])
def test_activity_has_one_breakdown_of_each_hour(used: Tenants, group: str) -> None:
    hours = used.ok("GET", f"/activity?groupBy={group}&timeRange=4h", used["acme owner"])["activity"]
    assert len(hours) > 3 and all("modelBreakdown" in hour and "apiKeyBreakdown" in hour for hour in hours)
    parts = [part for hour in hours for part in hour.get(f"{group}Breakdown", ())]
    assert sum(part["requestCount"] for part in parts) == 3


def test_managers_see_what_all_spent_and_developers_what_their_own_keys_did(used: Tenants) -> None:
    page = read(used, used["acme owner"])
    assert requests_of(page) == 3 and "sandbox/sandbox-echo" in page and "Credits left" in page
    assert "failed" in page and "from the cache" in page
    page = read(used, used["acme developer"])
    assert requests_of(page) == 2 and "Credits left" not in page
    page = read(used, used["rival owner"])
    assert requests_of(page) == 0 and "No requests in this period." in page


def test_usage_is_shown_by_key_and_person_and_filtered_by_time_and_project(used: Tenants) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    by_key = read(used, owner, f"?groupBy=apiKey&timeRange=24h&projectId={owner.project_id}")
    assert requests_of(by_key) == 3 and developer.key.info.description in by_key
    assert '<option value="24h" selected>' in by_key and f'value="{owner.project_id}" selected' in by_key
    assert '<th scope="col">Hour</th>' in by_key
    by_person = read(used, owner, "?groupBy=user&timeRange=nonsense")
    assert '<option value="7d" selected>' in by_person and ">Person</a></th>" in by_person
    assert read(used, owner, "?timeRange=30d").count("<td>20") == 30
    assert read(used, owner, "?timeRange=365d").count("<td>20") == 1
    foreign = used.client.get(f"/console/explore?projectId={owner.project_id}", headers=cookie(used["rival owner"]))
    assert foreign.status_code == 403


def test_the_form_offers_each_period_grouping_and_metric(used: Tenants) -> None:
    selects = re.findall(r'<select[^>]* name="(\w+)"[^>]*>(.*?)</select>', read(used, used["acme owner"]), re.DOTALL)
    offered = {name: re.findall(r'<option value="([^"]*)"', options) for name, options in selects}
    assert offered.pop("projectId")[0] == ""
    assert offered.pop("splitBy") == ["", *(name for name in GROUPS if name != "model")]
    assert offered == {
        "timeRange": list(RANGES),
        "groupBy": list(GROUPS),
        "measure": list(MEASURES),
        "compare": list(COMPARISONS),
    }


def test_keys_of_the_same_name_are_lines_of_their_own(used: Tenants) -> None:
    developer, colleague = used["acme developer"].key, used["acme colleague"].key
    database, control = used.services.store.database, used.services.store.control
    keys.update(database, control, colleague.info.id, keys.Change(description=developer.info.description), actor="test")
    page = read(used, used["acme owner"], "?groupBy=apiKey")
    assert page.count(f">{developer.info.description}</a></td>") == 2


def test_usage_is_plotted_by_app_and_by_week_of_a_year(used: Tenants) -> None:
    owner = used["acme owner"]
    by_app = read(used, owner, "?groupBy=app&measure=requests&timeRange=24h")
    assert ">App</a></th>" in by_app and requests_of(by_app) == 3
    assert re.search(r"<title data-at=\S+>20\S+ \S+ UTC: 3</title>", by_app) and "Requests by hour" in by_app
    assert re.findall(r">No app named</a></td>\s*<td[^>]*><a [^>]*><span title=\"(\d)\"", by_app) == ["3"]
    year = read(used, owner, "?timeRange=365d&measure=tokens")
    assert "Tokens by week" in year and 52 <= len(re.findall(r"<title>20[\d-]+:", year)) <= 54
    weeks = [date.fromisoformat(day) for day in re.findall(r"<title>([\d-]+):", year)]
    assert {day.weekday() for day in weeks} == {0} and weeks[-1] <= date.today() < weeks[-1] + timedelta(days=7)
    by_app = read(used, used["acme developer"], "?groupBy=app")
    assert re.findall(r">No app named</a></td>\s*<td[^>]*><a [^>]*><span title=\"(\d)\"", by_app) == ["2"]


def test_the_csv_has_the_groups_filters_and_period_of_the_page(used: Tenants) -> None:
    owner = used["acme owner"]
    chosen = f"?timeRange=24h&projectId={owner.project_id}&groupBy=model&splitBy=user&provider=sandbox&measure=requests"
    page = read(used, owner, chosen)
    [link] = re.findall(r'href="http://localhost(/activity/explore/export[^"]+)"', page)
    answer = used.client.get(unescape(link), headers=cookie(owner))
    assert answer.status_code == 200
    table = list(csv.DictReader(io.StringIO(answer.text)))
    assert {line["Model"] for line in table} == {"sandbox/sandbox-echo"} and len({line["Person"] for line in table}) > 1
    assert sum(int(line["requestCount"]) for line in table) == requests_of(page)
    nothing = read(used, owner, chosen.replace("provider=sandbox", "provider=other"))
    [link] = re.findall(r'href="http://localhost(/activity/explore/export[^"]+)"', nothing)
    assert list(csv.DictReader(io.StringIO(used.client.get(unescape(link), headers=cookie(owner)).text))) == []


@pytest.mark.parametrize(
    "group, name, link",
    [
        ("provider", "sandbox", "/console/logs?provider=sandbox&from=20"),
        ("model", "sandbox/sandbox-echo", "/console/logs?model=sandbox%2Fsandbox-echo&from=20"),
        ("project", "Default", "/console/logs?projectId=proj_"),
        ("user", "developer@acme.example", "/console/logs?userId=user_"),
        ("error", "No error", "/console/logs?noError=true&from=20"),
        ("session", "No session", "/console/logs?noSession=true&from=20"),
    ],
)
def test_each_name_leads_to_the_requests_behind_it(used: Tenants, group: str, name: str, link: str) -> None:
    page = read(used, used["acme owner"], f"?groupBy={group}")
    assert requests_of(page) == 3
    [path] = re.findall(rf'{name}(?:</a>)?</td>\s*<td[^>]*><a href="http://localhost([^"]*)"', page)
    assert path.startswith(link)
    found = used.client.get(path, headers=cookie(used["acme owner"])).text
    assert found.count('class="open"') == (2 if group == "user" else 3)


def test_usage_of_a_person_in_two_teams_counts_once(used: Tenants) -> None:
    owner = used["acme owner"]
    place = f"/orgs/{owner.organization_id}/teams"
    for name in ("Search", "Ads"):
        team = used.ok("POST", place, owner, {"name": name})["team"]["id"]
        used.ok("PUT", f"{place}/{team}/members/{used['acme developer'].member_id}", owner)
    page = read(used, owner, "?groupBy=team&measure=requests")
    assert re.findall(r"(Ads, Search|No team)</a></td>\s*<td[^>]*><span title=\"(\d)\"", page) == [
        ("Ads, Search", "2"),
        ("No team", "1"),
    ]


def test_days_between_two_dates_are_shown_with_their_requests(used: Tenants) -> None:
    owner, today = used["acme owner"], date.today()
    page = read(used, owner, f"?timeRange=custom&from={today - timedelta(days=2)}&to={today}")
    assert requests_of(page) == 3 and page.count("<td>20") == 3
    assert f'name="from" value="{today - timedelta(days=2)}"' in page and "than the 3 days" not in page
    [link] = re.findall(r'href="http://localhost(/console/logs[?]model=[^"]*)"', page)
    assert link.endswith(f"from={today - timedelta(days=2)}&to={today + timedelta(days=1)}")
    assert used.client.get(link, headers=cookie(owner)).text.count('class="open"') == 3
    exchanged = read(used, owner, f"?timeRange=custom&from={today}&to={today - timedelta(days=2)}")
    assert requests_of(exchanged) == 3
    long = read(used, owner, f"?timeRange=custom&from=2001-01-01&to={today}")
    assert requests_of(long) == 3 and f'name="from" value="{today - timedelta(days=365)}"' in long
    hours = read(used, owner, f"?timeRange=custom&from={today}T10:00&to={today}T12:00:00")
    assert f'name="from" value="{today}T' in hours and "Spend by hour" in hours
    for nonsense in ("x", "", "0001-01-01", "9999-12-31", f"{today}Tx"):
        assert "Spend by " in read(used, owner, f"?timeRange=custom&from={nonsense}&to={nonsense}")


def test_names_are_searched_and_sorted(used: Tenants) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    listed = re.compile(r'class="open"[^>]*>([^<]*)</a></td>')
    names = listed.findall(read(used, owner, "?groupBy=user"))
    assert len(names) == 2
    assert listed.findall(read(used, owner, "?groupBy=user&sort=name")) == sorted(names)
    assert listed.findall(read(used, owner, "?groupBy=user&sort=-name")) == sorted(names, reverse=True)
    fewest = listed.findall(read(used, owner, "?groupBy=user&sort=requestCount"))
    assert fewest[0] == "colleague@acme.example"
    found = read(used, owner, "?groupBy=user&timeRange=30d&q=developer&page=2")
    assert '<input type="hidden" name="q"' not in found and '<input type="hidden" name="page"' not in found
    assert (
        listed.findall(found) == ["developer@acme.example"]
        and '<input type="hidden" name="timeRange" value="30d">' in found
    )
    assert requests_of(found) == 3
    key = developer.key.info
    for group in ("app", "tag"):
        assert requests_of(read(used, owner, f"?groupBy={group}&apiKeyId={key.id}")) == 2
    of_key = read(used, developer, f"?apiKeyId={key.id}")
    assert requests_of(of_key) == 2 and f"API key: {key.description}" in of_key
    foreign = used.client.get(f"/console/explore?apiKeyId={key.id}", headers=cookie(used["rival owner"]))
    assert foreign.status_code == 403


def post_before(tenants: Tenants, who: Person, days: float, tags: str | None = None) -> None:
    """Add a request of a dollar that a person made some days ago."""
    at = tenants.services.clock.now_us() - round(days * DAY_US)
    values = dict.fromkeys(UsageRecord._fields[:20], 0) | {
        "at": at,
        "posted_at": tenants.services.clock.now_us(),
        "request": id_at(at)[:12] + bytes(4),
    }
    values |= {"organization": raw_id(who.organization_id), "project": raw_id(who.project_id)}
    values |= {"api_key": raw_id(who.key.info.id), "member": raw_id(who.member_id)}
    values |= {"operation": "chat", "asked": "m", "finish": "stop", "source": "", "price_version": ""}
    values |= {"provider": "sandbox", "served": "sandbox-echo", "cost_nusd": 10**9}
    row = UsageRecord(**values, tags=tags)
    tenants.services.store.journal.append(write_row(row)).wait(60)
    tenants.services.billing.rollups.catch_up()


@pytest.mark.parametrize(
    "period, days",
    [("1h", 130 / 1440), ("24h", 1.5), ("7d", 8), ("30d", 31), ("365d", 400), ("custom&from={0}&to={0}", 1)],
)
def test_every_period_is_compared_with_the_one_before(open_tenants, period: str, days: float) -> None:
    with open_tenants() as tenants:
        owner = tenants["acme owner"]
        tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "pages")
        tenants.ok("POST", "/v1/chat/completions", owner.key.token, BODY)
        tenants.services.store.journal.flush(60)
        tenants.services.billing.rollups.catch_up()
        query = f"?timeRange={period.format(date.today().isoformat())}"
        for group in ("model", "user", "app", "session"):
            assert "Change</a></th>" not in read(tenants, owner, f"{query}&groupBy={group}")
        post_before(tenants, owner, days, '{"team":"search"}')
        for group in ("model", "provider", "apiKey", "user", "team", "project", "app"):
            page = read(tenants, owner, f"{query}&groupBy={group}")
            assert "Change</a></th>" in page and page.count('title="$1 in the period before"') == 2, group
        by_tag = read(tenants, owner, f"{query}&groupBy=tag&tag=team")
        assert "Change</a></th>" in by_tag and ">new</span>" in by_tag
        by_session = read(tenants, owner, f"{query}&groupBy=session")
        assert "Change</a></th>" not in by_session and "in the period before" in by_session
    assert (show_change(150, 100), show_change(75, 100), show_change(100, 100)) == ("50 % more", "25 % less", "no more")


def test_a_tag_is_compared_with_its_own_earlier_usage(open_tenants) -> None:
    with open_tenants() as tenants:
        for days in (0, 8):
            post_before(tenants, tenants["acme owner"], days, '{"team":"search"}')
        post_before(tenants, tenants["acme colleague"], 9, '{"team":"ads"}')
        page = read(tenants, tenants["acme owner"], "?groupBy=tag&tag=team")
        assert re.findall(r'title="([^"]+) in the period before">([^<]+)<', page) == [
            ("$2", "50 % less"),
            ("$1", "no more"),
        ]


def test_usage_is_stacked_by_tag_and_session_with_links_to_the_requests(open_tenants, monkeypatch) -> None:
    with open_tenants() as tenants:
        owner = tenants["acme owner"]
        tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "pages")
        sent = (
            {"X-LLMGateway-Team": "search", "X-LLMGateway-Session": "first"},
            {"X-LLMGateway-Team": "ads", "X-LLMGateway-Session": "second"},
            {},
        )
        for headers in sent:
            headers = {**headers, "Authorization": f"Bearer {owner.key.token}"}
            assert tenants.client.post("/v1/chat/completions", json=BODY, headers=headers).status_code == 200
        tenants.services.store.journal.flush(60)
        tenants.services.billing.rollups.catch_up()
        by_tag = read(tenants, owner, "?groupBy=tag")
        assert requests_of(by_tag) == 3 and '<option value="team">' in by_tag and 'value="team"' in by_tag
        assert "metadata=team%3Asearch" in by_tag and "Without this tag" in by_tag
        by_session = read(tenants, owner, "?groupBy=session&timeRange=24h")
        assert "session=first" in by_session and "session=second" in by_session and "No session" in by_session
        year = read(tenants, owner, "?groupBy=session&timeRange=365d")
        assert requests_of(year) == 3 and "session=first" in year and "session=second" in year
        assert "session=first" not in read(tenants, tenants["acme developer"], "?groupBy=session")
        assert requests_of(read(tenants, owner, "?groupBy=tag&tag=nothing-of-this-name")) == 3
        monkeypatch.setattr(usage_reader, "MAX_VALUES_SHOWN", 1)
        for group, missing in (("tag", "Without this tag"), ("session", "No session")):
            assert {"All others", missing} < set(
                re.findall(r"<td>([^<]*)</td>", read(tenants, owner, f"?groupBy={group}"))
            )
