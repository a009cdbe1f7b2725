"""Video jobs of a gateway in this process. They are started by HTTP, and tests advance them instead of the clock."""

import time
from typing import Any

import httpx
from support.fleet import wait_until
from support.gateways import LocalGateway
from support.shared import Share

from gateway.videos.job_table import VideoJob

MODEL = "sandbox/sandbox-film"
SOON = "A kettle boils. [[sandbox: takes=0.01]]"
REFUSED = "A kettle boils. [[sandbox: takes=0.01 refusal]]"
LONG = "A kettle boils. [[sandbox: takes=3600]]"


def films_of(share: Share, **environment: str) -> LocalGateway:
    """Return the module's gateway without recurring work, which tests run explicitly."""
    gateway = share.gateway({"GATEWAY_VIDEO_POLL_S": "3600", **environment})
    gateway.app.background.stop()
    return gateway


def call(gateway: LocalGateway, method: str, path: str, key: str | None = None, **more: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key if key is None else key}"} | more.pop("headers", {})
    if key == "":
        del headers["Authorization"]
    with httpx.Client(timeout=20) as http:
        return http.request(method, f"{gateway.url}{path}", headers=headers, **more)


def begin(gateway: LocalGateway, prompt: str = SOON, **body: Any) -> dict[str, Any]:
    answer = call(gateway, "POST", "/videos", json={"model": MODEL, "prompt": prompt} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def look(gateway: LocalGateway) -> None:
    """Run a round of the leading worker with every job due, after pending work has finished, and wait for its jobs."""
    time.sleep(0.02)
    database = gateway.services.store.database
    sql = "UPDATE video_job SET due_at = 1 WHERE organization = ? AND due_at IS NOT NULL AND state <> 'creating'"
    database.write(lambda: database.execute(sql, (gateway.organization_id,)))
    poller = gateway.services.engine.videos.poller
    poller.run()
    # A round itself waits for a second at most, which a large answer of a provider takes on a busy machine.
    wait_until(lambda: all(job.is_over for _, job in poller._rounds._under_way))


def end_of(gateway: LocalGateway, ident: str) -> dict[str, Any]:
    """Wait for the end of a job and return it."""
    for _ in range(50):
        look(gateway)
        job = call(gateway, "GET", f"/videos/{ident}").json()
        if job["status"] not in ("queued", "in_progress"):
            return job
    raise AssertionError(f"{ident} does not end")


def row(gateway: LocalGateway, ident: str) -> VideoJob:
    found = gateway.services.engine.videos.jobs.find(ident)
    assert found is not None
    return found


def left_of(gateway: LocalGateway) -> tuple[int, int]:
    """Return the spent and the reserved credits."""
    sql = "SELECT settled_nusd, leased_nusd FROM budget WHERE id = ?"
    database = gateway.services.store.database
    found = database.read(lambda: database.execute(sql, (f"{gateway.organization_id}:credits",)).fetchone())
    return tuple(found)
