"""Mistral's batch API: jobs for the lines of an uploaded file, all of one model.

Source: Mistral API reference, "Batch" (POST /batch/jobs, its states and counts) and "Files".
"""

from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Raw, Struct, json

from gateway.providers.batches.batch_codec import (
    ENDED,
    NAME_KEY,
    REFUSED,
    WORKING,
    BatchLot,
    FoundBatches,
    ProviderBatch,
    SoughtBatch,
    body_of,
    count_of,
    read_struct,
    with_model,
)
from gateway.providers.openai.batches import OpenAIBatchApi
from gateway.providers.protocol import Call, Target, UpstreamReply

JOBS = "/batch/jobs"
PAGE = 100
TIMEOUT_H = 24
STATES = {"SUCCESS": ENDED, "TIMEOUT_EXCEEDED": ENDED, "CANCELLED": ENDED, "FAILED": REFUSED}


class _SentError(Struct):
    message: Any = None


class _SentJob(Struct):
    """The fields of a job that are read."""

    id: str
    status: str
    output_file: str | None = None
    error_file: str | None = None
    errors: list[_SentError] = []
    metadata: dict[str, Any] | None = None
    created_at: Any = 0
    total_requests: Any = 0
    succeeded_requests: Any = 0
    failed_requests: Any = 0


class _SentJobs(Struct):
    data: list[_SentJob] = []


JOB = json.Decoder(_SentJob)
PAGES = json.Decoder(_SentJobs)


class MistralBatchApi(OpenAIBatchApi):
    """POST {address}/files and {address}/batch/jobs."""

    operations: frozenset[str] = frozenset(("chat", "embeddings", "moderations"))
    max_lines = 1_000_000
    max_bytes = 500 << 20  # of 512 MB

    def write_line(self, custom_id: str, call: Call, target: Target) -> bytes:
        """Return the line of a call; the job names the model."""
        return json.encode({"custom_id": custom_id, "body": Raw(with_model(body_of(call), ""))})

    def upload(self, lot: BatchLot, target: Target) -> Call:
        """Return the call that uploads the lines."""
        return self._form(lot, [("purpose", "batch")], target)

    def create(self, lot: BatchLot, target: Target) -> Call:
        """Return the call that creates the job for an uploaded file."""
        body = {
            "input_files": [lot.upload],
            "endpoint": lot.place,
            "model": target.mapping.external_id,
            "metadata": {NAME_KEY: lot.name},
            "timeout_hours": TIMEOUT_H,
        }
        return self._call("POST", JOBS, target, json.encode(body))

    def read(self, reply: UpstreamReply) -> ProviderBatch:
        """Read a job."""
        return _batch_of(read_struct(JOB, reply.read_all()))

    def status(self, ident: str, target: Target) -> Call:
        """Return the call that shows a job."""
        return self._call("GET", f"{JOBS}/{quote(ident, safe='')}", target)

    def search(self, following: str, target: Target) -> Call:
        """Return the call for a page of jobs, newest first."""
        call = self._call("GET", JOBS, target)
        call.url += "?" + urlencode({"page": following or "0", "page_size": PAGE})
        return call

    def read_search(self, reply: UpstreamReply, sought: SoughtBatch, following: str) -> FoundBatches:
        """Return the job with this name, if it is on this page. Pages have numbers, and jobs that are created meanwhile
        only move the one that is sought to a later page."""
        jobs: list[_SentJob] = read_struct(PAGES, reply.read_all()).data
        found = tuple(_batch_of(job) for job in jobs if (job.metadata or {}).get(NAME_KEY) == sought.name)
        older = any(0 < count_of(job.created_at) < sought.since for job in jobs)
        is_last = len(jobs) < PAGE or older or found
        return FoundBatches(found, "" if is_last else str(count_of(following) + 1))

    def cancel(self, ident: str, target: Target) -> Call:
        """Return the call that cancels a job."""
        return self._call("POST", f"{JOBS}/{quote(ident, safe='')}/cancel", target)


def _batch_of(job: _SentJob) -> ProviderBatch:
    return ProviderBatch(
        ident=job.id,
        state=STATES.get(job.status, WORKING),
        word=job.status.lower(),
        total=count_of(job.total_requests),
        succeeded=count_of(job.succeeded_requests),
        failed=count_of(job.failed_requests),
        files=tuple(file for file in (job.output_file, job.error_file) if file),
        reason=next((str(error.message) for error in job.errors), ""),
        created_at=count_of(job.created_at),
    )
