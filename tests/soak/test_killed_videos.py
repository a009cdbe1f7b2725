"""A whole gateway ends by kill -9 while videos are made: every job continues and is paid once."""

import httpx
import pytest
from support.gateways import Start
from support.spending import query, reserved_nusd, until

JOBS = 12
COST = 4 * 10_000_000
ENDED = "SELECT id FROM video_job WHERE state = 'completed'"


# A job that a worker was polling when it was killed is polled again only after minutes.
@pytest.mark.soak
def test_videos_of_a_killed_gateway_are_finished_and_paid_once(start: Start) -> None:
    more = {"GATEWAY_CATALOGUE_SANDBOX": "true", "GATEWAY_VIDEO_POLL_S": "0.3", "GATEWAY_BOOTSTRAP_CREDITS_USD": "100"}
    gateway = start(workers=2, **more)
    jobs = []
    with httpx.Client(timeout=30, headers={"Authorization": f"Bearer {gateway.key}"}) as http:
        for number in range(JOBS):
            body = {"model": "sandbox/sandbox-film", "prompt": f"Film {number} [[sandbox: takes={number / 3:.2f}]]"}
            jobs.append(http.post(f"{gateway.address}/v1/videos", json=body).json()["id"])
    for _ in range(2):  # some jobs are over by then, some are being polled, some are on their way
        assert until(lambda: len(query(gateway, ENDED)) > 0)
        gateway.kill()
        gateway.start()
    assert until(lambda: {ident for (ident,) in query(gateway, ENDED)} == set(jobs), 180)
    rows = query(gateway, "SELECT cost_nusd FROM usage WHERE operation = 'videos'")
    assert [cost for (cost,) in rows] == [COST] * JOBS
    assert until(lambda: reserved_nusd(gateway) == 0)
    assert "The books agree." in gateway.manage("doctor")
