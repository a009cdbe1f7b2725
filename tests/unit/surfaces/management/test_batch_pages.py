"""The page of jobs: batches of a project with their progress, which those who manage the project cancel."""

import pytest
from support import console
from support.management import Tenants
from support.management_bodies import begin_batch

from gateway.surfaces.console import batch_pages
from gateway.surfaces.management import batch_routes


def test_batches_are_shown_with_their_progress_and_cancelled(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    batch = begin_batch(tenants, owner)
    page = console.open_page(tenants, owner, "/console/jobs")
    assert batch in page and "validating" in page and "/v1/embeddings" in page
    console.press_button(tenants, owner, "/console/jobs", "cancel", project=owner.project_id, job=batch)
    assert "cancelling" in console.open_page(tenants, owner, "/console/jobs")
    assert batch not in console.open_page(tenants, tenants["rival owner"], "/console/jobs")


def test_a_page_says_that_it_has_only_the_newest_jobs(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tenants["acme owner"]
    begin_batch(tenants, owner)
    assert "newest" not in console.open_page(tenants, owner, "/console/jobs")
    for module in (batch_pages, batch_routes):
        monkeypatch.setattr(module, "MAX_LISTED", 1)
    assert "the newest 1 jobs" in console.open_page(tenants, owner, "/console/jobs")
