"""The header fields of an answer, read from its head only when somebody asks for them."""

from itertools import repeat

END = b"\r\n\r\n"  # of a head
BLANKS = " \t"


def read_fields(received: bytes) -> dict[str, str]:
    """Fields by lower-case name, repeated ones joined (RFC 9110, section 5.2), of the head that `received` begins with.

    The parser has taken it and refuses lone line ends, folded lines and blanks before a colon (RFC 9112, section 5):
    so a line is a field.
    """
    lines = received[: received.find(END)].decode("latin-1").split("\r\n")[1:]
    if not lines:
        return {}
    # All at once, since an answer may have thirty.
    names, _, texts = zip(*map(str.partition, lines, repeat(":")), strict=True)
    keys = "\n".join(names).lower().split("\n")
    values = list(map(str.strip, texts, repeat(BLANKS)))
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
