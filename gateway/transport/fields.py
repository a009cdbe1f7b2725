"""The header fields of an answer, read from its head only when somebody asks for them."""

END = b"\r\n\r\n"


def find_head(received: bytes) -> bytes:
    """The head that received bytes begin with, without the empty line behind it."""
    return received[: received.find(END)]


def read_fields(head: bytes) -> dict[str, str]:
    """Fields by lower-case name, repeated ones joined (RFC 9110, section 5.2), of a head that the parser took.

    The parser refuses lone line ends, folded lines and blanks before a colon (RFC 9112, section 5), so that a line is
    a field.
    """
    headers: dict[str, str] = {}
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, text = line.partition(":")
        name, text = name.lower(), text.strip(" \t")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers
