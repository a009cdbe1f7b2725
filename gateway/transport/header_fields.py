"""The header fields of a response, parsed from its head only when they are needed."""

from itertools import repeat

HEAD_END = b"\r\n\r\n"
WHITESPACE = " \t"


def read_fields(received: bytes) -> dict[str, str]:
    """Return the fields of the head at the start of `received`, by lower-case name, repeated ones joined (RFC 9110,
    section 5.2).

    The parser has accepted the head and refuses lone line ends, folded lines and blanks before a colon (RFC 9112,
    section 5), so each line is a field.
    """
    lines = received[: received.find(HEAD_END)].decode("latin-1").split("\r\n")[1:]
    if not lines:
        return {}
    # All lines at once, since a response may have thirty fields.
    names, _, texts = zip(*map(str.partition, lines, repeat(":")), strict=True)
    keys = "\n".join(names).lower().split("\n")
    values = list(map(str.strip, texts, repeat(WHITESPACE)))
    headers = dict(zip(keys, values, strict=True))
    if len(headers) == len(keys):
        return headers
    return _join_repeated(keys, values)


def _join_repeated(keys: list[str], values: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for key, text in zip(keys, values, strict=True):
        if key in headers:
            headers[key] = f"{headers[key]}, {text}"
        else:
            headers[key] = text
    return headers
