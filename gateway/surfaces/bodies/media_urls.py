"""Reads the URLs of images and files in requests."""

from gateway.neutral.parts import Media
from gateway.surfaces.bodies.validation_errors import invalid

DATA_START = "data:"
# The head of a data URL: its media type and parameters, which RFC 2397 means to be short. Without this limit, a URL of
# separators alone is split into as many parts.
MAX_HEAD_CHARS = 1_000
PDF_START = "data:application/pdf"
PDF_NAME = "document.pdf"


def is_document(url: str) -> bool:
    """Return whether a data URL in a member for images is a PDF, as clients of vendors that take it there write it."""
    return url[: len(PDF_START)].lower() == PDF_START


def split_data_url(text: str, path: str) -> tuple[str, str]:
    """Return the media type (in lower case) and the base64 of a data URL. InvalidRequest with the dotted path."""
    begin = len(DATA_START)
    comma = text.find(",", begin, begin + MAX_HEAD_CHARS)
    kind, *flags = text[begin : max(comma, begin)].split(";")
    if "base64" not in [flag.strip().lower() for flag in flags]:
        raise invalid(path, "a data URL must look like data:<media type>;base64,<data>")
    return kind.strip().lower(), text[comma + 1 :]


def read_media(text: str, path: str, *, bare: bool = False) -> Media:
    """Return an http(s) or data URL, or (`bare`) base64 alone, as media. InvalidRequest with the dotted path."""
    if text[: len(DATA_START)].lower() == DATA_START:
        kind, data = split_data_url(text, path)
        return Media(media_type=kind, data=data)
    if text[:8].lower() == "https://" or text[:7].lower() == "http://":
        return Media(url=text)
    if bare:
        return Media(data=text)
    raise invalid(path, "expected an https URL or a data URL")
