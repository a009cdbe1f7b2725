"""Video jobs through the whole gateway, from creation to playback: exact money, whatever dies on the way."""

import base64
import json
import time
from functools import partial

import httpx
import openai
import pytest
from gevent.server import StreamServer
from openai import OpenAI
from support.gateways import LocalGateway
from support.shared import Share, usage_of
from support.videos import LONG, MODEL, REFUSED, SOON, begin, call, end_of, films_of, left_of, look, row

from gateway.accounts import keys
from gateway.accounts.organizations import set_organization_status
from gateway.accounts.projects import ProjectChange, update_project
from gateway.billing.reconciliation import doctor
from gateway.billing.rerating import rerate
from gateway.clock import HOUR_US, MINUTE_US, Clock
from gateway.errors import (
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.videos.job_table import COMPLETED, CREATING
from gateway.videos.tasks import KeptFile

COST = 4 * 10_000_000  # four seconds of 720p with sound


@pytest.fixture
def gateway(share: Share) -> LocalGateway:
    return films_of(share)


@pytest.fixture
def sdk(gateway: LocalGateway) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


def test_the_official_client_makes_polls_downloads_lists_and_deletes_a_video(gateway, sdk):
    begun = sdk.videos.create(model=MODEL, prompt=SOON, seconds="4", size="1280x720")
    assert (begun.status, begun.seconds, begun.size, begun.object) == ("queued", "4", "1280x720", "video")
    end_of(gateway, begun.id)
    video = sdk.videos.poll(begun.id)
    assert (video.status, video.progress, video.prompt) == ("completed", 100, SOON)
    film = sdk.videos.download_content(video.id).read()
    assert film[4:8] == b"ftyp" and len(film) > 10_000
    assert [one.id for one in sdk.videos.list()] == [video.id]
    assert sdk.videos.delete(video.id).deleted
    with pytest.raises(openai.NotFoundError):
        sdk.videos.retrieve(video.id)


def test_a_customer_key_sees_the_videos_of_that_key_alone(gateway, sdk):
    customers = [OpenAI(base_url=gateway.url, api_key=customer_key(gateway), max_retries=0) for _ in range(2)]
    video_ids = [
        one.videos.create(model=MODEL, prompt=SOON, seconds="4", size="1280x720").id for one in (*customers, sdk)
    ]
    for ident in video_ids:
        end_of(gateway, ident)
    assert [[one.id for one in client.videos.list()] for client in customers] == [[video_ids[0]], [video_ids[1]]]
    assert [one.id for one in sdk.videos.list(order="asc")] == video_ids  # the project's own keys see all
    assert [one.id for one in sdk.videos.list(order="desc")] == video_ids[::-1]
    first, second = customers
    for ident in video_ids[1:]:
        for refused in (first.videos.retrieve, first.videos.download_content, first.videos.delete):
            with pytest.raises(openai.NotFoundError):
                refused(ident)
        log = f"{gateway.url}/videos/logs/{ident.removeprefix('video_')}/content"
        assert httpx.get(log, headers={"Authorization": f"Bearer {first.api_key}"}, timeout=60).status_code == 404
    assert first.videos.download_content(video_ids[0]).read()[4:8] == b"ftyp"
    assert second.videos.delete(video_ids[1]).deleted and sdk.videos.delete(video_ids[0]).deleted


def test_a_video_of_an_earlier_release_is_shown_to_no_customer_key(gateway, sdk):
    ident = end_of(gateway, begin(gateway)["id"])["id"]
    database = gateway.services.store.database
    database.write(lambda: database.execute("UPDATE video_job SET api_key = '' WHERE id = ?", (ident,)))
    customer = OpenAI(base_url=gateway.url, api_key=customer_key(gateway), max_retries=0)
    assert list(customer.videos.list()) == [] and [one.id for one in sdk.videos.list()] == [ident]


def customer_key(gateway: LocalGateway) -> str:
    """The token of a new key for a customer of the gateway's project."""
    services = gateway.services
    owner = services.accounts.authentication.caller(gateway.key)
    draft = keys.Draft(owner.project_id, owner.member_id, "customer", "customer")
    stores = services.store
    return keys.create(stores.database, stores.control, stores.secrets.hash_keys, draft, actor="test").token


def test_other_operations_of_the_official_client_do_not_exist(gateway, sdk):
    film, name = end_of(gateway, begin(gateway)["id"])["id"], ("a.mp4", b"film", "video/mp4")
    for request in (
        lambda: sdk.videos.edit(prompt="Blue", video=name),
        lambda: sdk.videos.extend(prompt="On", seconds="4", video=name),
        lambda: sdk.videos.create_character(name="Ada", video=name),
        lambda: sdk.videos.get_character("char_1"),
        lambda: sdk.videos.remix(film, prompt="Blue"),
    ):
        with pytest.raises(openai.NotFoundError):
            request()


def test_a_video_is_billed_once_when_it_is_finished(gateway):
    job = begin(gateway)
    assert left_of(gateway)[1] >= COST and usage_of(gateway) == []
    done = end_of(gateway, job["id"])
    assert done["usage"] == {"cost": 0.04, "cost_details": {"video_output_cost": 0.04, "image_input_cost": 0.0}}
    (record,) = usage_of(gateway)
    assert (record.cost_nusd, record.operation, record.served) == (COST, "videos", "sandbox-film")
    assert record.details == {"units": {"video_ms": 4000}, "nusd": {"video_output": COST}, "price_key": "720p_audio"}
    assert f"video_{record.request_id}" == job["id"]
    assert left_of(gateway) == (COST, 0)


def test_a_silent_video_has_the_price_of_one_without_sound(gateway):
    end_of(gateway, begin(gateway, audio=False)["id"])
    assert [one.cost_nusd for one in usage_of(gateway)] == [4 * 8_000_000]


def test_a_video_that_fails_costs_nothing_and_says_why(gateway):
    done = end_of(gateway, begin(gateway, REFUSED)["id"])
    assert done["status"] == "failed" and done["error"]["code"] == "content_filter"
    assert done["usage"]["cost"] == 0 and "content" not in done
    (record,) = usage_of(gateway)
    assert (record.cost_nusd, record.error) == (0, "content_filter")
    assert left_of(gateway) == (0, 0)


def test_two_workers_that_end_a_job_at_once_charge_it_once(gateway):
    job = begin(gateway)
    videos = gateway.services.engine.videos
    time.sleep(0.02)
    job_row = row(gateway, job["id"])
    task = videos.sealed.task(job_row.task)
    target = videos.targets.find(job_row.organization, task)
    status = videos.calls.status(task.ident, target)
    ended = [videos.endings.complete(job_row, task, target, status) for _ in range(3)]
    assert [one is not None for one in ended] == [True, False, False]
    videos.poller.run()
    assert len(usage_of(gateway)) == 1 and left_of(gateway) == (COST, 0)


def test_a_job_that_another_worker_asks_for_is_left_to_it(gateway):
    job = begin(gateway)
    jobs = gateway.services.engine.videos.jobs
    job_row = row(gateway, job["id"])
    claimed = jobs.database.write(lambda: jobs.change(job_row, due_at=job_row.due_at + 1))
    assert claimed is not None
    assert jobs.database.write(lambda: jobs.change(job_row, due_at=job_row.due_at + 2)) is None


def test_a_job_that_a_killed_worker_was_starting_costs_nothing_and_is_reported(gateway, monkeypatch):
    videos = gateway.services.engine.videos
    jobs = videos.jobs
    monkeypatch.setattr(jobs, "change", lambda job, **values: None)
    monkeypatch.setattr(videos.calls, "cancel", lambda ident, target: True)
    answer = call(gateway, "POST", "/videos", json={"model": MODEL, "prompt": SOON})
    assert answer.status_code == 503
    monkeypatch.undo()
    sql = "SELECT id FROM video_job WHERE organization = ?"
    ((ident,),) = jobs.database.query_rows(sql, (gateway.organization_id,))
    left = row(gateway, ident)
    assert left.state == CREATING and left_of(gateway)[1] >= COST
    assert call(gateway, "GET", "/videos").json()["data"] == []
    assert call(gateway, "GET", f"/videos/logs/{left.request_id}/content").status_code == 404
    jobs.database.write(lambda: jobs.change(left, due_at=1))
    look(gateway)
    lost = call(gateway, "GET", f"/videos/{left.id}").json()
    assert (lost["status"], lost["error"]["code"]) == ("failed", "creation_interrupted")
    assert left_of(gateway) == (0, 0) and usage_of(gateway) == []


def test_an_end_that_is_not_committed_is_made_again_by_the_next_round(gateway, monkeypatch):
    job = begin(gateway)
    callbacks = gateway.services.engine.videos.endings
    with monkeypatch.context() as broken:
        broken.setattr(callbacks, "_record", lambda *more: 1 / 0)
        look(gateway)
    assert row(gateway, job["id"]).state != COMPLETED and left_of(gateway)[1] >= COST
    assert end_of(gateway, job["id"])["status"] == "completed"
    assert left_of(gateway) == (COST, 0)


def test_a_job_that_takes_too_long_is_given_up_for_nothing(gateway):
    job = begin(gateway, LONG)
    jobs = gateway.services.engine.videos.jobs
    job_row = row(gateway, job["id"])
    jobs.database.write(lambda: jobs.change(job_row, deadline_at=1))
    done = end_of(gateway, job["id"])
    assert (done["status"], done["error"]["code"], done["usage"]["cost"]) == ("failed", "timeout", 0)
    assert left_of(gateway) == (0, 0)


def test_an_organization_with_many_jobs_keeps_none_of_another_waiting(share):
    many, other_gateway = films_of(share), films_of(share)
    first, second, _, other = waiting = [begin(owner, LONG)["id"] for owner in (many, many, many, other_gateway)]
    jobs = other_gateway.services.engine.videos.jobs
    for due_at, ident in enumerate(waiting):
        jobs.database.write(partial(jobs.change, row(other_gateway, ident), due_at=due_at))
    assert [job.id for job in jobs.due(len(waiting), 2, 3)] == [first, other, second]


@pytest.mark.parametrize(
    "error",
    [
        UpstreamUnreachable("Nothing answers."),
        UpstreamTimeout("It took too long."),
        UpstreamOverloaded("Later."),
        UpstreamRateLimited("Too many.", upstream_status=429),
        UpstreamFailed("It broke.", upstream_status=500),
    ],
)
def test_a_video_survives_an_outage_of_its_providers_status(gateway, monkeypatch, error):
    job = begin(gateway)
    videos = gateway.services.engine.videos

    def fail(ident, target):
        raise error

    with monkeypatch.context() as outage:
        outage.setattr(videos.calls, "status", fail)
        for _ in range(8):
            look(gateway)
    job_row = row(gateway, job["id"])
    assert round((job_row.due_at - gateway.services.clock.now_us()) / 1e6) == 300
    done = end_of(gateway, job["id"])
    assert done["status"] == "completed" and done["usage"]["cost"] > 0


def test_an_outage_beyond_a_videos_deadline_ends_it(gateway, monkeypatch):
    job = begin(gateway, LONG)
    videos = gateway.services.engine.videos

    def fail(ident, target):
        raise UpstreamUnreachable("Nothing answers.")

    monkeypatch.setattr(videos.calls, "status", fail)
    look(gateway)
    videos.jobs.database.write(lambda: videos.jobs.change(row(gateway, job["id"]), deadline_at=1))
    look(gateway)
    done = call(gateway, "GET", f"/videos/{job['id']}").json()
    assert (done["status"], done["error"]["code"]) == ("failed", "timeout")
    assert left_of(gateway) == (0, 0)


def test_a_provider_that_refuses_every_poll_is_polled_less_often_and_then_no_more(gateway, monkeypatch):
    job = begin(gateway, LONG)
    videos = gateway.services.engine.videos

    def fail(ident, target):
        raise UpstreamRefused("Unknown.", upstream_status=404)

    monkeypatch.setattr(videos.calls, "status", fail)
    waits = []
    for _ in range(4):
        look(gateway)
        job_row = row(gateway, job["id"])
        waits.append(round((job_row.due_at - gateway.services.clock.now_us()) / 1e6))
    assert waits == [10, 20, 40, 80]
    look(gateway)
    done = call(gateway, "GET", f"/videos/{job['id']}").json()
    assert (done["status"], done["error"]["code"]) == ("failed", "poll_error")
    assert left_of(gateway) == (0, 0)


def test_a_video_that_cannot_be_looked_at_for_a_fault_of_ours_holds_no_money_for_ever(gateway, monkeypatch):
    job = begin(gateway, LONG)

    def fail(ident, target):
        raise OverflowError("not foreseen")

    monkeypatch.setattr(gateway.services.engine.videos.calls, "status", fail)
    for _ in range(5):
        look(gateway)
    done = call(gateway, "GET", f"/videos/{job['id']}").json()
    assert (done["status"], done["error"]["code"]) == ("failed", "poll_error")
    assert "OverflowError" in done["error"]["message"] and left_of(gateway) == (0, 0)


def test_a_running_video_is_canceled_for_nothing(gateway, sdk):
    job = begin(gateway, LONG)
    assert sdk.videos.delete(job["id"]).deleted
    done = call(gateway, "GET", f"/videos/{job['id']}").json()
    assert (done["status"], done["usage"]["cost"]) == ("canceled", 0)
    assert left_of(gateway) == (0, 0)


def test_a_video_that_the_provider_goes_on_with_cannot_be_canceled(gateway):
    job = begin(gateway)
    time.sleep(0.02)
    answer = call(gateway, "DELETE", f"/videos/{job['id']}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "video_not_cancelable")
    assert end_of(gateway, job["id"])["status"] == "completed"


def test_jobs_of_another_project_are_unknown(gateway):
    job = begin(gateway)
    end_of(gateway, job["id"])
    other_key = gateway.add_organization(f"other-{job['id'][-12:]}")
    log = job["id"].removeprefix("video_")
    for method, path in (
        ("GET", f"/videos/{job['id']}"),
        ("DELETE", f"/videos/{job['id']}"),
        ("GET", f"/videos/{job['id']}/content"),
        ("GET", f"/videos/logs/{log}/content"),
    ):
        assert call(gateway, method, path, other_key).status_code == 404, path
    assert call(gateway, "GET", "/videos", other_key).json()["data"] == []


def test_parts_of_a_video_are_played_and_sought(gateway):
    done = end_of(gateway, begin(gateway)["id"])
    whole = call(gateway, "GET", f"/videos/{done['id']}/content")
    assert whole.headers["content-type"] == "video/mp4" and int(whole.headers["content-length"]) == len(whole.content)
    tag, size = whole.headers["etag"], len(whole.content)
    path = f"/videos/{done['id']}/content"
    part = call(gateway, "GET", path, headers={"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, whole.content[100:200])
    assert (part.headers["content-range"], part.headers["etag"]) == (f"bytes 100-199/{size}", tag)
    same = call(gateway, "GET", path, headers={"Range": "bytes=-5", "If-Range": tag})
    assert (same.status_code, same.content) == (206, whole.content[-5:])
    changed = call(gateway, "GET", path, headers={"Range": "bytes=0-1", "If-Range": '"other"'})
    assert (changed.status_code, len(changed.content)) == (200, size)
    beyond = call(gateway, "GET", path, headers={"Range": f"bytes={size}-"})
    assert (beyond.status_code, beyond.json()["error"]["code"]) == (416, "range_not_satisfiable")
    assert beyond.headers["content-range"] == f"bytes */{size}"
    assert call(gateway, "GET", f"{path}?variant=thumbnail").status_code == 400


HEAD = "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: 5\r\n"
ODD_FILMS = {
    "no HTTP": "hello",
    "a page": HEAD.format("200 OK", "text/html") + "\r\nhello",
    "several parts": HEAD.format("206 Partial Content", "multipart/byteranges; boundary=x") + "\r\nhello",
    "damaged": HEAD.format("200 OK", "video/mp4") + "Content-Encoding: gzip\r\n\r\nhello",
    "nothing of it": HEAD.format("200 OK", "video/mp4") + "\r\n",
    "to a file": HEAD.format("302 Found", "video/mp4") + "Location: file:///etc/passwd\r\n\r\nhello",
    "to nowhere": HEAD.format("302 Found", "video/mp4") + "Location: //[::1\r\n\r\nhello",
}


@pytest.mark.parametrize("film", ODD_FILMS.values(), ids=ODD_FILMS)
def test_content_that_is_no_video_is_reported_as_the_providers_fault(gateway, film):
    def answer(connection, address):
        connection.recv(65_536)
        connection.sendall(film.encode())
        connection.close()

    server = StreamServer(("127.0.0.1", 0), answer)
    server.start()
    done = end_of(gateway, begin(gateway)["id"])
    videos, ended = gateway.services.engine.videos, row(gateway, done["id"])
    files = videos.sealed.write((KeptFile(url=f"http://127.0.0.1:{server.server_port}/film"),))
    videos.jobs.database.write(lambda: videos.jobs.change(ended, files=files))
    response = call(gateway, "GET", f"/videos/{done['id']}/content")
    server.stop()
    assert (response.status_code, response.json()["error"]["type"]) == (502, "upstream_error"), response.text


def test_there_is_no_content_before_the_end(gateway):
    job = begin(gateway, LONG)
    answer = call(gateway, "GET", f"/videos/{job['id']}/content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "video_not_completed")


def test_a_signed_link_opens_one_video_without_a_key(gateway):
    done, second_video = end_of(gateway, begin(gateway)["id"]), end_of(gateway, begin(gateway)["id"])
    path = done["content"][0]["url"].removeprefix(gateway.url)
    assert call(gateway, "GET", path, "").content[4:8] == b"ftyp"
    log, token = done["id"].removeprefix("video_"), path.partition("token=")[2]
    foreign = f"/videos/logs/{second_video['id'].removeprefix('video_')}/content"
    assert call(gateway, "GET", f"{foreign}?token={token}", "").status_code == 401
    plain = f"/videos/logs/{log}/content"
    assert call(gateway, "GET", f"{plain}?token={token[:-3]}AAA", "").status_code == 401
    assert call(gateway, "GET", f"{plain}?token=", "").status_code == 400
    assert call(gateway, "GET", plain, "").status_code == 401
    assert call(gateway, "GET", plain).status_code == 200
    assert call(gateway, "GET", "/videos/logs/ffffffff/content").status_code == 404
    header = json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))
    assert header == {"alg": "HS256"}


def test_a_signed_link_opens_nothing_of_an_archived_project_or_a_blocked_organization(gateway):
    path = end_of(gateway, begin(gateway)["id"])["content"][0]["url"].removeprefix(gateway.url)
    stores = gateway.services.store.database, gateway.services.store.control
    update_project(*stores, gateway.project_id, ProjectChange(status="archived"), actor="operator")
    assert call(gateway, "GET", path, "").json()["error"]["code"] == "project_archived"
    set_organization_status(*stores, gateway.organization_id, "blocked", actor="operator")
    answer = call(gateway, "GET", path, "")
    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "organization_blocked")


def test_contradictory_or_unsupported_videos_are_refused_without_cost(gateway):
    png = {"image_url": "data:image/png;base64,aGVsbG8="}
    for body, param in (
        ({"seconds": 5}, "seconds"),
        ({"seconds": "soon"}, "seconds"),
        ({"size": "10x10"}, "size"),
        ({"size": "3840x2160"}, "size"),
        ({"n": 2}, "n"),
        ({"last_frame": png}, "last_frame"),
        ({"image": png}, "image"),
        ({"reference_videos": ["http://example.com/a.mp4"]}, "reference_videos"),
        ({"callback_secret": "x"}, "callback_secret"),
        ({"callback_url": "ftp://example.com"}, "callback_url"),
        ({"prompt": ""}, "prompt"),
    ):
        answer = call(gateway, "POST", "/videos", json={"model": MODEL, "prompt": SOON} | body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), (body, answer.text)
    assert left_of(gateway) == (0, 0)
    assert call(gateway, "POST", "/videos", json={"model": "sandbox/sandbox-echo", "prompt": "x"}).status_code == 400


def test_without_credits_there_is_no_job(gateway):
    services = gateway.services
    services.billing.ledger.grant(gateway.organization_id, -99_990_000_000, f"take:{gateway.organization_id}")
    answer = call(gateway, "POST", "/videos", json={"model": MODEL, "prompt": SOON})
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "insufficient_credits")
    sql = "SELECT COUNT(*) FROM video_job WHERE organization = ?"
    database = services.store.database
    assert database.read(lambda: database.execute(sql, (gateway.organization_id,)).fetchone()[0]) == 0


def test_a_repeated_key_makes_one_video(gateway):
    headers = {"Idempotency-Key": "one film"}
    body = {"model": MODEL, "prompt": LONG}
    first, again = (call(gateway, "POST", "/videos", json=body, headers=headers).json() for _ in range(2))
    assert first["id"] == again["id"] and len(call(gateway, "GET", "/videos").json()["data"]) == 1


def test_pages_of_videos_follow_each_other(gateway):
    video_ids = [begin(gateway, LONG)["id"] for _ in range(3)]
    first = call(gateway, "GET", "/videos?limit=2&order=asc").json()
    assert ([item["id"] for item in first["data"]], first["has_more"]) == (video_ids[:2], True)
    rest = call(gateway, "GET", f"/videos?limit=2&order=asc&after={first['last_id']}").json()
    assert ([item["id"] for item in rest["data"]], rest["has_more"]) == (video_ids[2:], False)


def test_long_prompts_make_no_long_lists_and_are_not_read_when_jobs_are_due(gateway):
    begin(gateway, prompt=f"{LONG} {'x' * 90_000}")
    (job,) = call(gateway, "GET", "/videos").json()["data"]
    assert job["prompt"].startswith(LONG) and len(job["prompt"]) == 10_000
    due = gateway.services.engine.videos.jobs.due(2**62, 1_000, 1_000)
    assert {(one.wish, bool(one.task)) for one in due} == {("", True)}


def test_the_books_agree_after_videos(gateway):
    end_of(gateway, begin(gateway)["id"])
    end_of(gateway, begin(gateway, REFUSED)["id"])
    begin(gateway, LONG)
    gateway.services.store.journal.flush(60)
    assert doctor(gateway.services.store.database) == []


def test_videos_are_in_the_activity_and_are_priced_alike_again(gateway):
    services = gateway.services
    end_of(gateway, begin(gateway)["id"])
    services.billing.rollups.catch_up()
    token = services.management.sessions.open(services.accounts.authentication.caller(gateway.key).user_id).token
    path = f"{gateway.address}/activity?groupBy=model&projectId={gateway.project_id}"
    with httpx.Client(timeout=20, headers={"Authorization": f"Bearer {token}"}) as http:
        (day,) = http.get(path).json()["activity"]
    assert (day["cost"], day["videoOutputCost"], day["videoSeconds"], day["requestCount"]) == (0.04, 0.04, 4, 1)
    report = rerate(services.store.database, services.routing.catalogue.current(), 0, services.clock.now_us() + 1)
    assert report.adjustments() == {}


def test_on_postgresql_a_video_is_paid_once_and_one_that_fails_is_not(share, shared_postgresql_url):
    secrets = {"GATEWAY_API_KEY_HASH_SECRET": "h" * 32, "GATEWAY_ENCRYPTION_KEY": "e" * 32}
    gateway = films_of(share, DATABASE_URL=shared_postgresql_url, **secrets)
    done, failed = end_of(gateway, begin(gateway)["id"]), end_of(gateway, begin(gateway, REFUSED)["id"])
    assert (done["status"], failed["status"]) == ("completed", "failed")
    assert left_of(gateway) == (COST, 0) and [one.cost_nusd for one in usage_of(gateway)] == [COST, 0]
    assert len(call(gateway, "GET", "/videos?limit=1").json()["data"]) == 1
    call(gateway, "DELETE", f"/videos/{done['id']}")
    assert gateway.services.engine.videos.jobs.purge(gateway.services.clock.now_us() + 1, 0) >= 1


@pytest.mark.parametrize("hours", [-2, 2])
def test_on_postgresql_a_node_whose_clock_is_wrong_makes_videos(share, shared_postgresql_url, monkeypatch, hours):
    secrets = {"GATEWAY_API_KEY_HASH_SECRET": "h" * 32, "GATEWAY_ENCRYPTION_KEY": "e" * 32}
    gateway = films_of(share, DATABASE_URL=shared_postgresql_url, **secrets)
    right = Clock().now_us()
    with monkeypatch.context() as patch:
        patch.setattr(Clock, "now_us", lambda clock: right + hours * HOUR_US)
        job = begin(gateway, LONG)
    gateway.services.engine.videos.poller.run()
    assert row(gateway, job["id"]).state == "queued" and abs(job["created_at"] - time.time()) < 60
    job_row = row(gateway, job["id"])
    assert 0 < job_row.due_at - right <= HOUR_US + MINUTE_US and 0 < job_row.deadline_at - right <= HOUR_US + MINUTE_US
    call(gateway, "DELETE", f"/videos/{job['id']}")
