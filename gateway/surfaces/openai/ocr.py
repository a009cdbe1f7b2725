"""POST /v1/ocr: the pages of a document as text."""

import re
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Decoder

from gateway.dialects.openai import NAME
from gateway.files.stored_documents import StoredDocumentExecutor
from gateway.media.pdf_reader import PDF, READER, is_pdf
from gateway.neutral.file_types import decode_base64, type_of
from gateway.neutral.hosted_uses import HostedUse
from gateway.neutral.own_files import check_foreign
from gateway.neutral.parts import WEB
from gateway.neutral.structured import OcrRequest
from gateway.neutral.usage import Units, Usage
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies.preference_checks import Routing
from gateway.surfaces.bodies.validation_errors import invalid, read_part
from gateway.surfaces.description.examples import PICTURE
from gateway.surfaces.openai.structured import Json, answer
from gateway.surfaces.web.answer_structs import JsonObject, ModelApiAnswer, describe_answer
from gateway.surfaces.web.facts import CostDetails, Facts, RoutingMetadata
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.worker.services import Services

ID_PREFIX = "ocr-"
MAX_PAGES = 1000  # pages of one document (Mistral API reference, OCR)
RANGE = re.compile(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?", re.ASCII)
DATA = re.compile(r"data:([\w.+-]{1,127}/[\w.+-]{1,127});base64,", re.ASCII)  # lengths: RFC 6838, section 4.2
LARGE = 1 << 18  # characters of base64
ONE_PAGE = ("image/png", "image/jpeg", "image/webp")  # pages; formats of images other than these may hold several
MAX_PAGES_LENGTH = 8_000  # characters of a list of pages
Address = Annotated[
    str, Meta(extra_json_schema={"pattern": r"^(https?://|data:[A-Za-z0-9_.+-]+/[A-Za-z0-9_.+-]+;base64,)"})
]


class DocumentAtUrl(Struct, tag_field="type", tag="document_url"):
    document_url: Address


class PageUrl(Struct):
    url: Address


class PageAtUrl(Struct, tag_field="type", tag="image_url"):
    image_url: Address | PageUrl


class StoredDocument(Struct, tag_field="type", tag="file"):
    """A file at the provider."""

    file_id: Annotated[str, Meta(min_length=1)]


OcrDocument = DocumentAtUrl | PageAtUrl | StoredDocument
# The document itself is passed on, with members that only the provider knows.
Document = Annotated[dict[str, Any], Meta(extra_json_schema=describe_answer(OcrDocument))]
Whole = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]  # JSON parsers read longer numbers as floats
Pages = Annotated[list[int], Meta(extra_json_schema={"minItems": 1, "items": {"minimum": 0}})]
Ranges = Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$"})]


class OcrBody(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    model: Annotated[str, Meta(min_length=1)]
    document: Document
    pages: Pages | Ranges | None = None
    include_image_base64: bool | None = None
    image_limit: Whole | None = None
    image_min_size: Whole | None = None
    bbox_annotation_format: dict[str, Any] | None = None
    document_annotation_format: dict[str, Any] | None = None
    document_annotation_prompt: str | None = None
    table_format: str | None = None
    extract_header: bool | None = None
    extract_footer: bool | None = None
    include_blocks: bool | None = None
    confidence_scores_granularity: str | None = None
    routing: Routing = None


# Each page with annotations has a price in addition to that of the page.
ANNOTATIONS = ("bbox_annotation_format", "document_annotation_format")
RELAYED_FIELDS = tuple(name for name in OcrBody.__struct_fields__ if name not in ("model", "routing"))


class OcrPage(TypedDict):
    """A page as the provider wrote it."""

    index: int
    markdown: str
    images: NotRequired[list[JsonObject]]
    dimensions: NotRequired[Any]


class OcrUsageAnswer(ModelApiAnswer, kw_only=True):
    pages_processed: int | UnsetType = UNSET
    cost: float
    is_byok: bool
    cost_details: CostDetails


OcrUsage = Annotated[Any, Meta(extra_json_schema=describe_answer(OcrUsageAnswer))]


class OcrAnswer(ModelApiAnswer, kw_only=True):
    pages: list[OcrPage]
    document_annotation: Any = UNSET
    model: str
    usage_info: OcrUsage
    metadata: RoutingMetadata


def read_document(services: Services, inbound: Inbound) -> Outbound:
    """Extract the text of each page."""
    uses_of = _annotations if isinstance(services.engine.executor, StoredDocumentExecutor) else _uses
    return answer(services, inbound, OcrRequest, DECODER, read, ID_PREFIX, write, uses_of=uses_of)


def _uses(body: OcrBody) -> tuple[HostedUse, ...]:
    """Return the document's file, if the provider stores it, and annotations, which have a price of their own."""
    check_foreign(str(body.document.get("file_id", "")))
    found = (HostedUse("", "document.file_id", "object"),) if body.document.get("file_id") else ()
    return (*found, *_annotations(body))


def _annotations(body: OcrBody) -> tuple[HostedUse, ...]:
    found = [HostedUse(NAME, name, "units", ("annotated_pages",)) for name in ANNOTATIONS if getattr(body, name)]
    return tuple(found)


def read(body: OcrBody) -> tuple[Json, Units | None]:
    """Return the upstream body and the possible number of pages. Raises InvalidRequest."""
    document = read_part("document", body.document, OcrDocument)
    address = _address_of(document)
    pages = _pages_of(body.pages)
    if pages is not None:
        maximum = likely = min(len(pages), MAX_PAGES)
    else:
        maximum, likely = _count_pages(address, body.document["type"])
    sent = {name: value for name in RELAYED_FIELDS if (value := getattr(body, name)) is not None}
    if pages is not None:
        sent["pages"] = pages
    unforeseen = isinstance(document, PageAtUrl) and not address.startswith("data:")
    annotated = any(getattr(body, name) for name in ANNOTATIONS)
    most, usual = (Usage(pages=count, annotated_pages=count * annotated) for count in (maximum, likely))
    return sent, Units(most, usual, usual if unforeseen else None)


def _address_of(document: OcrDocument) -> str:
    match document:
        case StoredDocument():
            return ""
        case DocumentAtUrl():
            param = "document.document_url"
            address = document.document_url
        case PageAtUrl(image_url=PageUrl(url=address)) | PageAtUrl(image_url=address):
            param = "document.image_url"
    if not address.startswith((*WEB, "data:")):
        raise invalid(param, "expected an http URL or a data URL")
    if address.startswith("data:") and not DATA.match(address):
        raise invalid(param, "a data URL must have a media type and be encoded in base64")
    return address


def _pages_of(given: list[int] | str | None) -> list[int] | None:
    """Return the page numbers, the first being 0; None: all."""
    if given is None:
        return None
    if isinstance(given, list):
        if not given or any(page < 0 for page in given):
            raise invalid("pages", "expected page numbers, the first being 0")
        return sorted(set(given[: MAX_PAGES + 1]))
    if len(given) > MAX_PAGES_LENGTH:
        raise invalid("pages", f"expected at most {MAX_PAGES_LENGTH:,} characters")
    pages: set[int] = set()
    for part in given.split(","):
        if len(pages) > MAX_PAGES:
            break
        ends = RANGE.fullmatch(part)
        if ends is None:
            raise invalid("pages", 'expected page numbers or ranges such as "0-4,7"')
        first = int(ends[1])
        last = int(ends[2] or ends[1])
        if last < first:
            raise invalid("pages", "the end of a range must not come before its beginning")
        pages.update(range(first, min(last, first + MAX_PAGES) + 1))
    return sorted(pages)


def _count_pages(address: str, kind: str) -> tuple[int, int]:
    """Return how many pages a document has at most, and likely: MAX_PAGES for a document that only the provider reads,
    that is unreadable, or in a format without a page count. An image at a URL likely has one page."""
    head = DATA.match(address)
    if head is None:
        return MAX_PAGES, 1
    try:
        data = compute_if(len(address) >= LARGE, decode_base64, address[head.end() :])
    except ValueError:
        raise invalid(f"document.{kind}", "the data URL is not valid base64") from None
    if is_pdf(data):
        facts = READER.read(data)
        if facts is None:
            return (MAX_PAGES, 1)
        return (min(facts.max_pages, MAX_PAGES), min(facts.pages, MAX_PAGES))
    # A file that claims to be a document, or contains one, may be read as that.
    if type_of(data) in ONE_PAGE and head[1].startswith("image/") and not _contains_pdf(data):
        return (1, 1)
    return (MAX_PAGES, 1)


def _contains_pdf(data: bytes) -> bool:
    return compute_if(len(data) >= LARGE, data.find, PDF) >= 0


def write(body: Json, facts: Facts) -> Json:
    """Return the provider's pages with their cost."""
    usage = OcrUsageAnswer.extend(body.get("usage_info") or {}, **facts.cost())
    return OcrAnswer.extend(body, model=facts.served, usage_info=usage, metadata=facts.metadata())


DECODER = Decoder(OcrBody)
ABOUT = About(
    "Extract the text of a document",
    request=OcrBody,
    answer=OcrAnswer,
    example={"model": "auto", "document": {"type": "image_url", "image_url": PICTURE}},
)
OPERATIONS = (Operation("POST", "/v1/ocr", read_document, body="json", paid=True, about=ABOUT),)
