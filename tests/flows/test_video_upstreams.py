"""Video jobs at providers: failover when one begins, own keys with a bound, and content wherever a provider has it."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.server import FakeServer, send_json
from openai import ConflictError, OpenAI
from support.every_operation import write_png
from support.gateways import LocalGateway
from support.shared import Share, usage_of
from support.videos import call, end_of, left_of, look, row

from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.billing.admission import Settlements
from gateway.billing.reconciliation import doctor
from gateway.catalogue.entries import Prices, TokenRates
from gateway.errors import Unavailable
from gateway.metering import payload_table
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

PROVIDER = """name = "{name}"
protocol = "openai"
address = "{address}/{name}"
credential = ["STUDIO_KEY"]
quirks = ["compatible"]

[[mappings]]
model = "reel"
external_id = "{name}-reel"
operations = ["videos"]
vision = true
video_durations = {lengths}
prices = {{ per_second = {{ default = "{price}" }} }}
"""
MODEL = '[[models]]\nid = "reel"\nname = "Reel"\nfamily = "test"\noutput_modalities = ["video"]\n'
MADE_AT = "Wed, 21 Oct 2026 07:28:00 GMT"
FILM = bytes(range(256)) * 40
CHEAP, DEAR = 4 * 10_000_000, 4 * 20_000_000


class Studios(FakeServer):
    """Two studios at one address; `broken` are those that take nothing, `elsewhere`: films lie at another place, where
    there is a `page` instead. A finished film is forgotten when it is deleted. `parts`: how many objects an answer
    about one brings along."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()
        self.elsewhere = self.page = False
        self.parts = 0

    def serve(self, environ: dict[str, Any], start: Any) -> Any:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        studio = path.split("/")[1]
        self.calls.append((method, path, environ.get("HTTP_AUTHORIZATION", ""), environ["wsgi.input"].read()))
        if studio in self.broken:
            return send_json(start, 503, {"error": {"message": "Too much to do.", "type": "overloaded"}})
        if path.endswith("/content") and self.elsewhere:
            start("302 Found", [("Location", "/store/film")])
            return [b""]
        if path == "/store/film" and self.page:
            start("200 OK", [("Content-Type", "text/html")])
            return [b"<html>Sign in"]
        if path.endswith("/content") or path == "/store/film":
            return self._film(environ.get("HTTP_RANGE", ""), start)
        status = "queued" if method == "POST" else "completed"
        job = {"id": f"task_{studio}", "object": "video", "status": status, "seconds": "4"}
        return send_json(start, 200, job | {"more": [{}] * self.parts if method == "GET" else []})

    def _film(self, range_header: str, start: Any) -> Any:
        assert "," not in range_header
        first, _, last = range_header.removeprefix("bytes=").partition("-")
        headers = [("Content-Type", "video/mp4"), ("ETag", '"film"'), ("Last-Modified", MADE_AT)]
        if not range_header:
            start("200 OK", [*headers, ("Content-Length", str(len(FILM)))])
            return [FILM]
        part = FILM[int(first) : int(last) + 1]
        range_headers = [("Content-Range", f"bytes {range_header[6:]}/{len(FILM)}"), ("Content-Length", str(len(part)))]
        start("206 Partial Content", [*headers, *range_headers])
        return [part]


@pytest.fixture
def studios(share: Share) -> Studios:
    return share.fake(Studios)


@pytest.fixture
def gateway(share: Share, studios: Studios) -> Iterator[LocalGateway]:
    def write(folder: Path) -> dict[str, str]:
        for name, price, lengths in (("cheap", "0.01", [4, 6]), ("dear", "0.02", [4, 8])):
            (folder / "c" / "providers").mkdir(parents=True, exist_ok=True)
            text = PROVIDER.format(name=name, price=price, lengths=lengths, address=studios.address)
            (folder / "c" / "providers" / f"{name}.toml").write_text(text)
        (folder / "c" / "models").mkdir()
        (folder / "c" / "models" / "reel.toml").write_text(MODEL)
        return {"GATEWAY_CATALOGUE_PATH": str(folder / "c"), "STUDIO_KEY": "k", "GATEWAY_VIDEO_POLL_S": "3600"}

    running = share.gateway(write)
    running.app.background.stop()
    yield running
    running.services.store.journal.flush(60)
    assert doctor(running.services.store.database) == []


def begin(gateway: LocalGateway, **body: Any) -> httpx.Response:
    request = {"model": "reel", "prompt": "A kettle boils.", "seconds": 4, "routing": "price"} | body
    return call(gateway, "POST", "/videos", json=request)


def set_mode(gateway: LocalGateway, mode: str) -> None:
    services = gateway.services
    change = ProjectChange(mode=mode)
    update_project(services.store.database, services.store.control, gateway.project_id, change, actor="operator")


def add_key(gateway: LocalGateway, provider: str, max_nusd: int) -> str:
    draft = ProviderKeyDraft(provider, f"own-{provider}", provider, max_spend_nusd=max_nusd)
    return gateway.services.management.provider_keys.add(gateway.organization_id, draft, actor="operator").id


def test_another_provider_begins_a_video_that_the_first_refuses(gateway, studios):
    studios.broken = {"cheap"}
    answer = begin(gateway)
    assert (answer.status_code, answer.headers["x-llmgateway-attempts"]) == (200, "2")
    assert answer.headers["x-llmgateway-provider"] == "dear"
    assert answer.headers["x-llmgateway-estimated-cost"] == "0.08"
    done = end_of(gateway, answer.json()["id"])
    assert (done["status"], done["usage"]["cost"]) == ("completed", 0.08)
    rows = usage_of(gateway)
    assert [(row.provider, row.attempt, row.cost_nusd) for row in rows] == [("cheap", 0, 0), ("dear", 1, DEAR)]
    assert left_of(gateway) == (DEAR, 0)
    assert {path.split("/")[1] for method, path, *_ in studios.calls if method == "GET"} == {"dear"}


def test_without_the_store_no_provider_is_called(gateway, studios, monkeypatch):
    admit = Settlements.admit

    def admit_and_lose(*arguments):
        admitted = admit(*arguments)
        monkeypatch.setattr(gateway.services.billing.spending, "check", end_lost)
        return admitted

    def end_lost():
        raise Unavailable("The database is down.")

    monkeypatch.setattr(Settlements, "admit", admit_and_lose)
    assert begin(gateway).status_code == 503
    monkeypatch.undo()
    assert studios.calls == [] and left_of(gateway) == (0, 0)


@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_with_a_lost_reply_begins_one_video_or_none(gateway, studios, monkeypatch, committed):
    jobs = gateway.services.engine.videos.jobs
    lost = Unavailable("The connection was lost.")
    change, write, moved = jobs.change, Database.write, []

    def change_or_fail(job, **values):
        if not committed:
            raise lost
        moved.append(job.id)
        return change(job, **values)

    def write_and_lose(database, work, *more):
        result = write(database, work, *more)
        if moved and not moved.clear():
            raise lost
        return result

    monkeypatch.setattr(jobs, "change", change_or_fail)
    monkeypatch.setattr(Database, "write", write_and_lose)
    answer = begin(gateway)
    monkeypatch.undo()
    videos = call(gateway, "GET", "/videos").json()["data"]
    assert (answer.status_code, len(videos)) == ((200, 1) if committed else (503, 0)), answer.text


def test_a_job_refused_by_all_providers_leaves_nothing_behind(gateway, studios):
    studios.broken = {"cheap", "dear"}
    answer = begin(gateway)
    assert (answer.status_code, answer.json()["error"]["code"]) == (529, "overloaded")
    assert left_of(gateway) == (0, 0) and call(gateway, "GET", "/videos").json()["data"] == []
    assert [one.cost_nusd for one in usage_of(gateway)] == [0, 0]


def test_an_own_keys_bound_is_held_until_the_end_and_one_that_is_used_up_is_passed_over(gateway, studios):
    set_mode(gateway, "api-keys")
    full = add_key(gateway, "dear", DEAR + 1000)
    empty = add_key(gateway, "cheap", 1000)
    job = begin(gateway).json()
    refused = begin(gateway)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "budget_in_use")
    assert end_of(gateway, job["id"])["status"] == "completed"
    refused = begin(gateway)
    assert (refused.status_code, refused.json()["error"]["code"]) == (402, "provider_key_limit_reached")
    budgets = gateway.services.billing.budgets
    assert (budgets.status(full).usage_nusd, budgets.status(empty).usage_nusd) == (DEAR, 0)
    (record,) = usage_of(gateway)
    assert record.byok and record.details["provider_key"] == full and record.details["bounded"]
    assert left_of(gateway) == (0, 0)
    assert {auth for _, _, auth, _ in studios.calls} == {"Bearer own-dear"}


def test_an_own_key_with_a_bound_at_a_provider_that_makes_no_such_video_is_passed_over(gateway, studios):
    set_mode(gateway, "api-keys")
    add_key(gateway, "cheap", 10 * DEAR), add_key(gateway, "dear", 10 * DEAR)
    answer = begin(gateway, seconds=8)
    assert (answer.status_code, answer.headers["x-llmgateway-provider"]) == (200, "dear")
    assert end_of(gateway, answer.json()["id"])["usage"]["cost"] == DEAR / 1e9  # what the studio says that it made


def test_a_job_is_counted_by_the_key_that_began_it_when_another_one_ends_it(gateway, studios):
    set_mode(gateway, "api-keys")
    first = add_key(gateway, "cheap", 10 * DEAR)
    job = begin(gateway).json()
    gateway.services.management.provider_keys.remove(gateway.organization_id, first, actor="operator")
    second = add_key(gateway, "cheap", 10 * DEAR)
    assert end_of(gateway, job["id"])["status"] == "completed"
    (record,) = usage_of(gateway)
    assert record.details["provider_key"] == first
    assert gateway.services.billing.budgets.status(second).usage_nusd == 0


def test_an_organizations_own_server_makes_videos_with_its_own_key(gateway, studios):
    set_mode(gateway, "api-keys")
    prices = {"per_second": {"default": "0.03"}}
    models = [{"id": "clip", "prices": prices}]
    address = f"{studios.address}/house"
    providers = gateway.services.accounts.custom_providers
    providers.add(gateway.organization_id, "house", address, models, actor="operator")
    key = add_key(gateway, "custom:house", 10 * DEAR)
    job = begin(gateway, model="house/clip").json()
    done = end_of(gateway, job["id"])
    assert (done["status"], done["usage"]["cost"]) == ("completed", 0.12)
    assert call(gateway, "GET", f"/videos/{job['id']}/content").content == FILM
    assert gateway.services.billing.budgets.status(key).usage_nusd == 120_000_000 and left_of(gateway) == (0, 0)
    assert {path.split("/")[1] for _, path, *_ in studios.calls} == {"house"}


def test_a_video_is_billed_at_the_prices_of_its_start(gateway, studios, monkeypatch):
    job = begin(gateway).json()
    targets = gateway.services.engine.videos.targets
    find = targets.find

    def find_dearer(organization, task):
        target = find(organization, task)
        dearer = (Prices(TokenRates(per_second={"default": 10**15})),)
        return replace(target, mapping=replace(target.mapping, prices=dearer))

    monkeypatch.setattr(targets, "find", find_dearer)
    assert end_of(gateway, job["id"])["usage"]["cost"] == CHEAP / 1e9
    assert left_of(gateway) == (CHEAP, 0)


def test_a_video_that_is_finished_is_not_canceled_and_is_paid(gateway, studios):
    job = begin(gateway).json()
    sdk = OpenAI(base_url=gateway.url, api_key=gateway.key)
    with pytest.raises(ConflictError) as refused:
        sdk.videos.delete(job["id"])
    assert refused.value.code == "video_not_cancelable"
    # Clients ask again after most conflicts; this one says that it is of no use.
    assert [method for method, *_ in studios.calls] == ["POST", "GET"]
    assert end_of(gateway, job["id"])["usage"]["cost"] == CHEAP / 1e9


def test_a_job_whose_provider_is_overloaded_is_not_reported_as_running(gateway, studios):
    job = begin(gateway).json()
    studios.broken = {"cheap"}
    assert call(gateway, "DELETE", f"/videos/{job['id']}").status_code in (502, 529)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_content_comes_in_parts_from_wherever_the_provider_has_it(gateway, studios, elsewhere):
    done = end_of(gateway, begin(gateway).json()["id"])
    studios.elsewhere = elsewhere
    path = f"/videos/{done['id']}/content"
    whole = call(gateway, "GET", path)
    part = call(gateway, "GET", path, headers={"Range": "bytes=5-99"})
    assert whole.content == FILM and (whole.status_code, whole.headers["etag"]) == (200, '"film"')
    assert whole.headers["last-modified"] == MADE_AT
    assert (part.status_code, part.content) == (206, FILM[5:100])
    assert part.headers["content-range"] == f"bytes 5-99/{len(FILM)}"
    assert (whole.headers["content-length"], part.headers["content-length"]) == (str(len(FILM)), "95")
    several = call(gateway, "GET", path, headers={"Range": "bytes=0-1,5-9"})
    assert (several.status_code, several.content, several.headers["content-type"]) == (200, FILM, "video/mp4")
    studios.broken, studios.page = {"cheap"}, True
    assert call(gateway, "GET", path).status_code in (502, 529)
    if elsewhere:
        studios.broken = set()
        assert call(gateway, "GET", path).json()["error"]["code"] == "upstream_error"


def test_a_state_of_too_many_parts_is_no_answer(gateway, studios):
    studios.parts = 260_000
    ident = begin(gateway).json()["id"]
    look(gateway)
    assert (row(gateway, ident).state, row(gateway, ident).failures) == ("queued", 1)
    studios.parts = 0
    assert end_of(gateway, ident)["status"] == "completed"


def test_the_official_client_sends_a_first_frame_as_a_file(gateway, studios):
    sdk = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    frame = ("frame.png", io.BytesIO(write_png()), "image/png")
    video = sdk.videos.create(model="reel", prompt="A kettle boils.", input_reference=frame, seconds="8")
    assert video.seconds == "8"
    sent = next(body for method, _, _, body in studios.calls if method == "POST")
    assert write_png() in sent and b'name="input_reference"' in sent


def test_a_callbacks_secret_is_kept_in_no_payload(gateway, studios):
    services = gateway.services
    change = ProjectChange(retention="retain")
    update_project(services.store.database, services.store.control, gateway.project_id, change, actor="operator")
    secret = "the secret of a callback"
    wish = {"callback_url": "https://a.example", "callback_secret": secret}
    refused = [begin(gateway, **wish, seconds="soon"), begin(gateway, **wish, size="7x7")]
    form = {"model": "reel", "prompt": "x", "n": "²"} | wish
    refused.append(call(gateway, "POST", "/videos", data=form, files={"image": b"none"}))
    assert [one.status_code for one in refused] == [400] * 3, refused[-1].text
    job = begin(gateway, callback_url=f"{studios.address}/told", callback_secret=secret).json()
    services.store.journal.flush(60)
    database = services.store.database
    sql = "SELECT sent FROM request_log WHERE organization = ?"
    organization = raw_id(gateway.organization_id)
    kept_texts = [
        payload_table.unpack(services.store.vault, sent)
        for (sent,) in database.read(lambda: database.execute(sql, (organization,)).fetchall())
    ]
    assert len(kept_texts) == 4 and secret.encode() not in b"".join(kept_texts) and b"kettle" in b"".join(kept_texts)
    kept = row(gateway, job["id"])
    assert secret not in repr(kept) and "kettle" not in repr(kept)
    look(gateway)
    assert [one.cost_nusd for one in usage_of(gateway)] == [CHEAP]


def test_credits_pay_for_a_video_of_the_platforms_key_after_an_own_key_failed(gateway, studios):
    set_mode(gateway, "hybrid")
    add_key(gateway, "dear", 10 * DEAR)
    studios.broken = {"dear"}
    job = begin(gateway)
    assert (job.status_code, job.headers["x-llmgateway-provider"]) == (200, "cheap")
    spent, held = left_of(gateway)
    assert spent == 0 and held >= CHEAP
    studios.broken = {"dear", "cheap"}
    assert begin(gateway).status_code == 529 and left_of(gateway) == (0, held)
    studios.broken = set()
    assert end_of(gateway, job.json()["id"])["status"] == "completed"
    assert left_of(gateway) == (CHEAP, 0)
