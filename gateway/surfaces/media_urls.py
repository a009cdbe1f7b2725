"""Reads the URLs of images and files in requests."""

from gateway.neutral.parts import Media
from gateway.surfaces.validation_errors import invalid

PDF_START = "data:application/pdf"
PDF_NAME = "document.pdf"


def is_document(url: str) -> bool:
    """Return whether a data URL in a member for images is a PDF, as clients of vendors that take it there write it."""
    return url[: len(PDF_START)].lower() == PDF_START


def read_media(text: str, path: str, *, bare: bool = False) -> Media:
    """Return an http(s) or data URL, or (`bare`) base64 alone, as media. InvalidRequest with the dotted path."""
    if text[:5].lower() == "data:":
        head, comma, data = text[5:].partition(",")
        kind, *flags = head.split(";")
        if not comma or "base64" not in [flag.strip().lower() for flag in flags]:
            raise invalid(path, "a data URL must look like data:<media type>;base64,<data>")
        return Media(media_type=kind.strip().lower(), data=data)
    if text[:8].lower() == "https://" or text[:7].lower() == "http://":
        return Media(url=text)
    if bare:
        return Media(data=text)
    raise invalid(path, "expected an https URL or a data URL")
