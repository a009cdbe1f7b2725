"""The stored document of an OCR request that is too large for the request: it is uploaded to the provider that reads
it."""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.callers.access import logs_text
from gateway.engine.executor import Executor
from gateway.engine.planning import RoutePlan
from gateway.errors import GatewayError, NotSupported
from gateway.files.file_rows import FileRow
from gateway.files.project_files import Files
from gateway.files.provider_files import PlacedFile, ProviderFiles
from gateway.files.request_files import FILE_ID, LOST, MISSING, content_of_row, spooled
from gateway.media.pdf_reader import HEAD, READER, is_pdf
from gateway.neutral.request import Request
from gateway.neutral.structured import StructuredRequest
from gateway.neutral.usage import Units, Usage
from gateway.providers.protocol import Target
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import CallListener

DOCUMENT = "document"


class StoredDocumentExecutor(Executor[Request]):
    """The executor of one request with a stored document. It shares all parts of `executor`."""

    def __init__(
        self, executor: Executor[Request], row: FileRow, files: Files, at_providers: ProviderFiles, spool_dir: str
    ) -> None:
        vars(self).update(vars(executor))
        self._row = row
        self._files = files
        self._spool_dir = spool_dir
        self._upstreams = DocumentUpstreams(self._upstreams, row, files, at_providers)

    def _plan(self, context: RequestContext, request: Request) -> tuple[RoutePlan, Request]:
        """Plan as for every request, with the pages of the document."""
        self._upstreams.forbidden = not logs_text(context.caller.rules)  # type: ignore[attr-defined]
        units = request.requirements.units
        if units is not None and units.maximum.pages:
            pages = self._count_pages()
            if pages is not None:
                most, usual = (min(count, units.maximum.pages) for count in pages)
                annotated = units.maximum.annotated_pages > 0
                counts = [Usage(pages=count, annotated_pages=count * annotated) for count in (most, usual)]
                needs = replace(request.requirements, units=Units(*counts))
                request = replace(request, requirements=needs)
        return super()._plan(context, request)

    def _count_pages(self) -> tuple[int, int] | None:
        """Return how many pages the document has at most, and likely; None if that cannot be read. Unavailable."""
        with spooled(self._files, self._row, self._spool_dir) as spool:
            facts = READER.read_stored(spool) if is_pdf(spool.read(HEAD)) else None
        return None if facts is None else (facts.max_pages, facts.pages)


class DocumentUpstreams(Upstreams):
    """Sends the calls of one request, with its document as a file of the target's provider."""

    def __init__(self, upstreams: Upstreams, row: FileRow, files: Files, at_providers: ProviderFiles) -> None:
        vars(self).update(vars(upstreams))
        self.forbidden = True
        self._inner = upstreams
        self._row = row
        self._files = files
        self._at_providers = at_providers

    def send(
        self,
        request: Request,
        target: Target,
        deadline: float,
        listener: CallListener | None = None,
        should_abandon: Callable[[], bool] | None = None,
    ) -> Any:
        """Send the request and return its result. Errors of `Upstreams.send` and of `ProviderFiles.place`."""
        placed = self._place(target, deadline)
        send = partial(self._send_named, request, target, deadline, listener, should_abandon)
        try:
            return send(placed)
        except GatewayError as error:
            lost = error.upstream_status in LOST and not placed.fresh
            if not lost or not self._at_providers.forget_lost(placed, target):
                raise
        return send(self._place(target, deadline))

    def _place(self, target: Target, deadline: float) -> PlacedFile:
        too_large = self._row.size > target.provider.upload_mb << 20
        if self.forbidden or too_large or self._at_providers.codec_of(target) is None:
            raise NotSupported(MISSING.format(target.mapping.key), param=FILE_ID, code="file_not_usable")
        return self._at_providers.place(self._row, content_of_row(self._files, self._row), target, deadline)

    def _send_named(
        self,
        request: Request,
        target: Target,
        deadline: float,
        listener: CallListener | None,
        should_abandon: Callable[[], bool] | None,
        placed: PlacedFile,
    ) -> Any:
        """Send the request with the provider's name of the document."""
        if not isinstance(request, StructuredRequest):
            raise NotSupported(MISSING.format(target.mapping.key), param=FILE_ID)
        body = {**request.content(), DOCUMENT: {"type": "file", FILE_ID: placed.row.reference}}
        named = replace(request, decode=lambda: body, _decoded=body)
        try:
            return self._inner.send(named, target, deadline, listener, should_abandon)
        except GatewayError as error:
            error.message = error.message.replace(placed.row.reference, self._row.id)
            raise
