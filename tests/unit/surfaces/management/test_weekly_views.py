"""Views sent each week: mails and messages have the figures of the page, and reach people with access once."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.message import Message
from html import unescape
from typing import Any

import gevent
import pytest
from fakes.server import serving
from fakes.smtp import FakeSmtp
from support.console import browser_headers, open_page
from support.management import Person, Tenants
from support.usage import insert_rows, usage_row

from gateway.accounts import view_subscriptions
from gateway.accounts.view_subscriptions import ViewSubscription
from gateway.clock import DAY_US, MINUTE_US, SECOND_US
from gateway.errors import Overloaded, Unavailable
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.money import NANO, round_usd
from gateway.runtime.fair_threads import QueueFull
from gateway.telemetry.weekly_views import ComposedView

BASE = "http://localhost"
NOW = datetime.now(UTC)
MIDNIGHT_US = int(NOW.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()) * SECOND_US
CENTS = NANO // 100


class Channel:
    """A chat's webhook: records what comes, and answers with `status`."""

    def __init__(self) -> None:
        self.status, self.bodies = "200 OK", list[Any]()

    def __call__(self, environ: dict[str, Any], start: Any) -> list[bytes]:
        self.bodies.append(json.loads(environ["wsgi.input"].read()))
        start(self.status, [])
        return [b""]


@pytest.fixture
def channel() -> Channel:
    return Channel()


@pytest.fixture
def address(channel: Channel) -> Iterator[str]:
    with serving(channel) as running:
        yield running + "/hook"


@pytest.fixture
def post_office() -> Iterator[FakeSmtp]:
    with FakeSmtp(mode="none") as running:
        yield running


@pytest.fixture
def site(make_tenants: Callable[..., Any], post_office: FakeSmtp) -> Iterator[Tenants]:
    settings = {
        "GATEWAY_MAIL_HOST": "127.0.0.1",
        "GATEWAY_MAIL_PORT": str(post_office.port),
        "GATEWAY_MAIL_SECURITY": "none",
        "GATEWAY_MAIL_SENDER": "gw@example.com",
        "GATEWAY_SERVER_PUBLIC_URL": BASE,
        "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": "true",
    }
    with make_tenants(**settings) as gateway:
        tenants = Tenants(gateway)
        spend(tenants, "acme developer", 1, 30 * CENTS, "gpt-5")
        spend(tenants, "acme developer", 7, 20 * CENTS, "<b>*hostile*</b>")
        spend(tenants, "acme colleague", 3, 90 * CENTS, "gpt-5")
        spend(tenants, "acme developer", 8, 40 * CENTS, "gpt-5")
        spend(tenants, "acme developer", 0, 5 * NANO, "gpt-5")  # today is not over
        tenants.services.billing.rollups.catch_up()
        yield tenants


def spend(tenants: Tenants, who: str, days_ago: int, cost: int, model: str) -> None:
    person = tenants[who]
    row: UsageRecord = usage_row(
        MIDNIGHT_US - days_ago * DAY_US + (SECOND_US if days_ago == 0 else DAY_US // 2),
        organization=raw_id(person.organization_id),
        project=raw_id(person.project_id),
        api_key=raw_id(person.key.info.id),
        member=raw_id(person.member_id),
        operation="chat",
        provider="openai",
        served=model,
        asked=model,
        cost_nusd=cost,
        output_nusd=cost,
    )
    insert_rows(tenants.services.store.database, row._replace(posted_at=row.at + 5))


def save(tenants: Tenants, who: Person, **view: Any) -> str:
    body = {"name": "Spend by model", "query": "measure=spend&groupBy=model&timeRange=30d", **view}
    return str(tenants.ok("POST", f"/orgs/{who.organization_id}/views", who, body)["view"]["id"])


def subscribe(tenants: Tenants, who: Person, view_id: str, **more: Any) -> dict[str, Any]:
    path = f"/orgs/{who.organization_id}/view-subscriptions"
    made: dict[str, Any] = tenants.ok("POST", path, who, {"viewId": view_id, **more})["subscription"]
    return made


def subscription_of(tenants: Tenants, who: Person, ident: str) -> dict[str, Any]:
    listed = tenants.ok("GET", f"/orgs/{who.organization_id}/view-subscriptions", who)["subscriptions"]
    found: dict[str, Any] = next(one for one in listed if one["id"] == ident)
    return found


def send(tenants: Tenants, who: Person, ident: str) -> None:
    path = f"/orgs/{who.organization_id}/view-subscriptions/{ident}/send"
    assert tenants.call("POST", path, who)[0] == 200
    run(tenants)


def run(tenants: Tenants) -> None:
    """Run the jobs of the leading worker, as two workers that both believe to lead."""
    telemetry = tenants.services.telemetry
    gevent.joinall([gevent.spawn(telemetry.weekly_views.run) for _ in range(2)], raise_error=True)
    telemetry.mail.deliver()
    telemetry.alerts.deliver()


def parts_of(message: Message) -> dict[str, str]:
    return {
        part.get_content_type(): part.get_payload(decode=True).decode()  # type: ignore[union-attr]
        for part in message.walk()
        if not part.is_multipart()
    }


def test_a_person_gets_the_own_figures_by_mail_once(site: Tenants, post_office: FakeSmtp) -> None:
    developer = site["acme developer"]
    made = subscribe(site, developer, save(site, developer), weekday="friday", hour=7, timezone="Europe/Berlin")
    assert made["hookId"] is None and made["sentAt"] is None and made["problem"] is None
    assert datetime.fromisoformat(made["nextAt"]).weekday() == 4
    run(site)
    assert post_office.deliveries == [], "it is not due yet"
    send(site, developer, made["id"])
    run(site)
    [delivery] = post_office.deliveries
    message = delivery.message
    assert delivery.recipients == ["developer@acme.example"]
    last = NOW.date() - timedelta(days=1)
    first = last - timedelta(days=6)
    assert message["Subject"] == f"Spend by model: {first} to {last}"
    parts = parts_of(message)
    plain, html = parts["text/plain"].replace("\r\n", "\n"), parts["text/html"]
    for text in (plain, unescape(html)):
        assert f"Spend: {round_usd(50 * CENTS)}, 25 % more than in the week before ({round_usd(40 * CENTS)})." in text
        assert "openai/gpt-5" in text and round_usd(30 * CENTS) in text and "25 % less" in text
        assert round_usd(90 * CENTS) not in text, "what colleagues spent is not the developer's to see"
    assert "<b>" not in html and "&lt;b&gt;" in html
    found = re.search(rf"{BASE}(/console/explore/views/\S+)", plain)
    assert found is not None
    page = open_page(site, developer, found[1])
    assert f'<dt>Spend</dt><dd><span title="$0.5">{round_usd(50 * CENTS)}' in page, "the link shows the same sum"
    assert "25 % more" in page
    after = subscription_of(site, developer, made["id"])
    assert after["sentAt"] and after["problem"] is None and after["nextAt"] > after["sentAt"]


def test_an_owner_sees_all_and_the_stop_link_needs_no_sign_in(site: Tenants, post_office: FakeSmtp) -> None:
    owner = site["acme owner"]
    made = subscribe(site, owner, save(site, owner))
    send(site, owner, made["id"])
    message = post_office.deliveries[0].message
    plain = parts_of(message)["text/plain"]
    assert f"Spend: {round_usd(140 * CENTS)}" in plain
    stop = message["List-Unsubscribe"].strip("<>")
    assert stop in plain and message["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    path = stop.removeprefix(BASE)
    assert "Stop sending it" in site.client.get(path).text
    assert subscription_of(site, owner, made["id"]), "opening the link ends nothing"
    forged = path[:-1] + ("0" if path[-1] != "0" else "1")
    assert site.client.get(forged).status_code == 404
    assert site.client.post(forged, data={"List-Unsubscribe": "One-Click"}).status_code == 404
    # Mail programs send a form of either kind (RFC 8058, 3.2), and some send it again.
    for kind in ("multipart/form-data", "application/x-www-form-urlencoded"):
        sent = site.client.post(path, data={"List-Unsubscribe": "One-Click"}, content_type=kind)
        assert sent.status_code == 200, kind
    assert site.ok("GET", f"/orgs/{owner.organization_id}/view-subscriptions", owner)["subscriptions"] == []
    assert site.client.get(path).status_code == 404


def lose_by_deactivation(site: Tenants, owner: Person, who: Person) -> None:
    site.ok("PATCH", f"/orgs/{owner.organization_id}/members/{who.member_id}", owner, {"status": "inactive"})


def lose_by_unsharing(site: Tenants, owner: Person, who: Person) -> None:
    [view] = site.ok("GET", f"/orgs/{owner.organization_id}/views", owner)["views"]
    site.ok("PATCH", f"/orgs/{owner.organization_id}/views/{view['id']}", owner, {"shared": False})


@pytest.mark.parametrize("lose", [lose_by_deactivation, lose_by_unsharing])
def test_nothing_is_sent_to_a_person_who_lost_access(
    site: Tenants, post_office: FakeSmtp, lose: Callable[[Tenants, Person, Person], None]
) -> None:
    owner, developer = site["acme owner"], site["acme developer"]
    made = subscribe(site, developer, save(site, owner, shared=True))
    lose(site, owner, developer)
    send(site, owner, made["id"])
    assert post_office.deliveries == []
    after = subscription_of(site, owner, made["id"])
    assert after["problem"] and after["sentAt"] is None
    assert datetime.fromisoformat(after["nextAt"]) > NOW, "it is tried again in a week"


def test_a_channel_gets_the_figures_of_its_maker_and_a_failing_one_is_shown(
    site: Tenants, channel: Channel, address: str
) -> None:
    owner, developer = site["acme owner"], site["acme developer"]
    hooks = f"/orgs/{owner.organization_id}/alerts"
    hook = site.ok("POST", hooks, owner, {"url": address, "form": "slack"})["alert"]["id"]
    view = save(site, owner, shared=True)
    path = f"/orgs/{owner.organization_id}/view-subscriptions"
    assert site.call("POST", path, developer, {"viewId": view, "hookId": hook})[0] == 403
    rival = site["rival owner"]
    assert site.call("POST", f"/orgs/{rival.organization_id}/view-subscriptions", rival, {"viewId": view})[0] == 404
    made = subscribe(site, owner, view, hookId=hook)
    channel.status = "404 Not Found"
    send(site, owner, made["id"])
    assert subscription_of(site, owner, made["id"])["problem"]
    page = open_page(site, owner, f"/console/explore/views/{view}")
    assert "failing" in page and "404" in page
    channel.status = "200 OK"
    send(site, owner, made["id"])
    assert subscription_of(site, owner, made["id"])["problem"] is None
    body = channel.bodies[-1]
    assert body["blocks"][0]["text"]["text"].startswith("Spend by model: ")
    assert round_usd(140 * CENTS) in body["blocks"][1]["text"]["text"]
    texts = json.dumps(body)
    assert "&lt;b&gt;" in texts and "<b>" not in texts
    assert f"<{BASE}/console/explore/views/{view}?" in texts
    assert f"/console/stop/{made['id']}" not in texts, "readers of a channel do not end it"


def test_the_page_of_a_view_subscribes_sends_and_stops(site: Tenants, post_office: FakeSmtp) -> None:
    developer = site["acme developer"]
    view = save(site, developer)
    path = f"/console/explore/views/{view}"

    def press(action: str, **fields: str) -> str:
        csrf = re.findall(r'name="csrf" value="([^"]*)"', open_page(site, developer, path))[0]
        data = {"csrf": csrf, "action": action, **fields}
        answer = site.client.post(path, headers=browser_headers(developer), data=data)
        return unescape(answer.text)

    assert "There is no time zone" in press("subscribe", to="me", timezone="Mars")
    page = press("subscribe", to="me", weekday="sunday", hour="22", timezone="Asia/Tokyo")
    assert "is sent each week" in page and "Sunday 22:00" in page and "Asia/Tokyo" in page
    [made] = site.ok("GET", f"/orgs/{developer.organization_id}/view-subscriptions", developer)["subscriptions"]
    assert "within a minute" in press("send_now", subscription=made["id"])
    run(site)
    assert len(post_office.deliveries) == 1
    assert "not sent there any more" in press("unsubscribe", subscription=made["id"])
    assert site.ok("GET", f"/orgs/{developer.organization_id}/view-subscriptions", developer)["subscriptions"] == []


def test_a_colleague_changes_neither_view_nor_subscription_of_another(site: Tenants) -> None:
    owner, developer, colleague = (site[f"acme {one}"] for one in ("owner", "developer", "colleague"))
    view = save(site, developer, shared=True)
    made = subscribe(site, developer, view)
    organization = f"/orgs/{owner.organization_id}"
    assert site.call("PATCH", f"{organization}/views/{view}", colleague, {"name": "Mine"})[0] == 403
    assert site.call("DELETE", f"{organization}/views/{view}", colleague)[0] == 403
    for method, path, body in (
        ("PATCH", "", {"hour": 3}),
        ("POST", "/send", None),
        ("DELETE", "", None),
    ):
        assert site.call(method, f"{organization}/view-subscriptions/{made['id']}{path}", colleague, body)[0] == 403
    changed = site.ok("PATCH", f"{organization}/view-subscriptions/{made['id']}", developer, {"hour": 3})
    assert changed["subscription"]["hour"] == 3 and changed["subscription"]["weekday"] == made["weekday"]
    site.ok("PATCH", f"{organization}/views/{view}", developer, {"query": "groupBy=user&page=3"})
    assert site.ok("GET", f"{organization}/views", developer)["views"][0]["query"] == "groupBy=user"
    assert site.call("DELETE", f"{organization}/view-subscriptions/{made['id']}", owner)[0] == 200
    assert site.call("DELETE", f"{organization}/views/{view}", owner)[0] == 200
    actions = {one["action"] for one in site.ok("GET", f"{organization}/audit", owner)["entries"]}
    assert {"view.create", "view.update", "view.delete", "view.subscribe", "view.unsubscribe"} <= actions


def test_a_missed_week_is_sent_late_and_once(site: Tenants, post_office: FakeSmtp) -> None:
    developer = site["acme developer"]
    made = subscribe(site, developer, save(site, developer))
    database = site.services.store.database
    long_ago = database.now_us() - 20 * DAY_US
    database.change_rows("UPDATE view_subscription SET next_at = ? WHERE id = ?", (long_ago, made["id"]))
    for _ in range(3):
        run(site)
    assert len(post_office.deliveries) == 1
    assert view_subscriptions.find(database, made["id"]).next_at_us > database.now_us()


@pytest.mark.parametrize("fault", [Unavailable("It takes too long."), QueueFull(), Overloaded("Busy.")])
def test_a_view_that_cannot_be_read_at_the_moment_does_not_keep_others_waiting(
    site: Tenants, post_office: FakeSmtp, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    developer, database = site["acme developer"], site.services.store.database
    first, second = (subscribe(site, developer, save(site, developer, name=name))["id"] for name in ("One", "Two"))
    views = site.services.telemetry.weekly_views
    compose = views.compose

    def read(subscription: ViewSubscription) -> ComposedView:
        if subscription.id == first:
            raise fault
        return compose(subscription)

    def make_due(ident: str, ago_us: int) -> None:
        sql = "UPDATE view_subscription SET next_at = ? WHERE id = ?"
        database.change_rows(sql, (database.now_us() - ago_us, ident))

    monkeypatch.setattr(views, "compose", read)
    monkeypatch.setattr(view_subscriptions, "MAX_DUE", 1)
    make_due(first, 9 * MINUTE_US)
    make_due(second, MINUTE_US)
    run(site)
    run(site)
    assert len(post_office.deliveries) == 1, "the second one"
    after = view_subscriptions.find(database, first)
    assert after.problem and after.next_at_us > database.now_us()
    monkeypatch.undo()
    make_due(first, 0)
    run(site)
    assert len(post_office.deliveries) == 2 and not view_subscriptions.find(database, first).problem
