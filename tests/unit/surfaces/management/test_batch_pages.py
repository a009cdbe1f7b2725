"""The page of jobs: batches of a project with their progress, which those who manage the project cancel."""

from support import console
from support.management import Tenants
from support.management_bodies import begin_batch


def test_batches_are_shown_with_their_progress_and_cancelled(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    batch = begin_batch(tenants, owner)
    page = console.open_page(tenants, owner, "/console/jobs")
    assert batch in page and "validating" in page and "/v1/embeddings" in page
    console.press_button(tenants, owner, "/console/jobs", "cancel", project=owner.project_id, job=batch)
    assert "cancelling" in console.open_page(tenants, owner, "/console/jobs")
    assert batch not in console.open_page(tenants, tenants["rival owner"], "/console/jobs")
