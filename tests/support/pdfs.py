"""Generates malicious PDFs."""

import zlib
from collections.abc import Sequence

PAGE = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 3 0 R>>"
CATALOG = b"<</Type/Catalog/Pages 2 0 R>>"


def packed(
    pages: int, text: bytes = b"", declared: int | None = None, decoy: bytes = b"", repeated: bool = False
) -> bytes:
    """Return a PDF with all objects in one compressed stream. `declared` is its /Count, `text` is on each page;
    `repeated`: its tree contains one page object this many times."""
    kids = b"10 0 R " * pages if repeated else b" ".join(b"%d 0 R" % (10 + page) for page in range(pages))
    tree = b"<</Type/Pages/Count %d/Kids[%s]>>" % (pages if declared is None else declared, kids)
    objects = [(1, CATALOG), (2, tree), *((10 + page, PAGE) for page in range(1 if repeated else pages))]
    body = bytearray(b"%PDF-1.5\n" + decoy)
    contents = len(body)
    body += stream(3, b"BT (%s) Tj ET" % text)
    pack = len(body)
    body += stream(4, *_pack(objects))
    table = len(body)
    rows = {3: (1, contents, 0), 4: (1, pack, 0), 5: (1, table, 0)}
    rows |= {number: (2, 4, index) for index, (number, _) in enumerate(objects)}
    size = 10 + pages
    written = b"".join(_row(*rows.get(number, (0, 0, 0))) for number in range(size))
    body += stream(5, written, b"/Type/XRef/Size %d/W[1 4 2]/Root 1 0 R" % size)
    return bytes(body + b"startxref\n%d\n%%%%EOF\n" % table)


def plain(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """Return a PDF with these objects, numbered from 1; the first is the catalogue."""
    body, places = bytearray(b"%PDF-1.4\n"), []
    for number, one in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    table = len(body)
    body += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    body += b"".join(b"%010d 00000 n \n" % place for place in places)
    return bytes(
        body + b"trailer<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, table)
    )


def updated(before: bytes, number: int, changed: bytes, size: int) -> bytes:
    """Return the PDF with an object replaced by an incremental update."""
    place = len(before)
    body = before + b"%d 0 obj\n%s\nendobj\n" % (number, changed)
    table = len(body)
    last = before.rindex(b"startxref") + 10
    previous = int(before[last : before.index(b"\n", last)])
    body += b"xref\n%d 1\n%010d 00000 n \n" % (number, place)
    return body + b"trailer<</Size %d/Root 1 0 R/Prev %d>>\nstartxref\n%d\n%%%%EOF\n" % (size, previous, table)


def stream(number: int, data: bytes, head: bytes = b"") -> bytes:
    """Return a compressed stream object."""
    packed_data = zlib.compress(data, 9)
    dictionary = b"%s/Filter/FlateDecode/Length %d" % (head, len(packed_data))
    return b"%d 0 obj\n<<%s>>stream\n%s\nendstream endobj\n" % (number, dictionary, packed_data)


def _pack(objects: list[tuple[int, bytes]]) -> tuple[bytes, bytes]:
    heads, data = [], bytearray()
    for number, one in objects:
        heads.append(b"%d %d" % (number, len(data)))
        data += one + b" "
    head = b" ".join(heads) + b" "
    return head + bytes(data), b"/Type/ObjStm/N %d/First %d" % (len(objects), len(head))


def _row(kind: int, where: int, index: int) -> bytes:
    return bytes([kind]) + where.to_bytes(4, "big") + index.to_bytes(2, "big")
