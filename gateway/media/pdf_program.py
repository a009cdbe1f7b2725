"""The program of a child process that reads one PDF: `python -I pdf_program.py`, the PDF on standard input.

It writes `pages most text` to standard output: the pages of the page tree, an upper bound of what any reader takes for
pages, and an upper bound of the bytes of text on those. It writes nothing for a file that cannot be read. The limits on
its memory and processor time come first; the file was made by a caller, so it may be built to exhaust both.

Nothing of the gateway is imported here: the process has neither its settings nor its secrets.
"""

import os
import re
import resource
import sys
import zlib
from io import BytesIO
from typing import Any

from pypdf import PdfReader
from pypdf.generic import ArrayObject, DictionaryObject, IndirectObject, StreamObject

MEMORY_BYTES = 1 << 30
CPU_LIMIT_S = 6
DEPTH = 40  # depth of the page tree, and of nested forms
# The names of page objects and object streams may be written with hexadecimal digits.
PAGE = re.compile(rb"/Type\s{0,8}/P(?:a|#61)(?:g|#67)(?:e|#65)(?![a-zA-Z#])")
STREAM = re.compile(rb"stream\r?\n")
OBJECT = re.compile(rb"(?<![0-9])[0-9]{1,10}\s{1,8}[0-9]{1,5}\s{1,8}obj\b")
NO_TABLE = b"\nstartxref\n0\n%%EOF\n"  # behind a file: a reader finds no table and rebuilds it
PAREN = re.compile(rb"\\.|[()]", re.DOTALL)
HEX = re.compile(rb"<([0-9A-Fa-f\s]*)>")
SHOWN_FORM = re.compile(rb"/([^\s/<>\[\](){}%]+)\s+Do\b")
# A character code of a font may stand for a whole text, so the shown text can be longer than its bytes.
LONG_TARGET = re.compile(rb"<([0-9A-Fa-f\s]{17,})>")
HEX_DIGITS_PER_CODE = 16
MAX_INFLATED_BYTES = 64 << 20

Count = tuple[int, int]


class Unreadable(Exception):
    """The file is ambiguous: readers interpret it in different ways."""


class Pages:
    """Computes pages and text below the nodes of a page tree. A node with two references counts twice and is computed
    once.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, Any], Count] = {}
        self._forms: dict[Any, int] = {}
        self._open: set[Any] = set()

    def count(self, reference: Any, inherited: Any, depth: int = 0) -> Count:
        """Return pages and bytes of text below a node."""
        node = _resolved(reference)
        if depth > DEPTH or not isinstance(node, DictionaryObject):
            raise Unreadable
        resources = node.raw_get("/Resources") if "/Resources" in node else inherited
        key = (_key(reference), _key(resources))
        if key in self._known:
            return self._known[key]
        if key in self._open:
            raise Unreadable
        self._open.add(key)
        if "/Kids" in node:
            below = [self.count(kid, resources, depth + 1) for kid in _array(node["/Kids"])]
            counted = (sum(pages for pages, _ in below), sum(text for _, text in below))
        else:
            counted = (1, self._text_of_page(node, resources))
        self._open.discard(key)
        self._known[key] = counted
        return counted

    def _text_of_page(self, page: DictionaryObject, resources: Any) -> int:
        contents = _resolved(page.get("/Contents"))
        streams = _array(contents) if isinstance(contents, ArrayObject) else [contents]
        data = b"\n".join(_data(_resolved(stream)) for stream in streams)
        text = self._text_of(data, resources, 0)
        for annotation in _array(_resolved(page.get("/Annots"))):
            text += self._text_of_annotation(_resolved(annotation))
        return text

    def _text_of_annotation(self, annotation: Any) -> int:
        if not isinstance(annotation, DictionaryObject) or "/AP" not in annotation:
            return 0
        shown = _resolved(_dictionary(annotation["/AP"]).raw_get("/N"))
        if isinstance(shown, StreamObject):
            return self._text_of_form(shown, None, 0)
        return sum(self._text_of_form(_resolved(form), None, 0) for form in _dictionary(shown).values())

    def _text_of_form(self, form: Any, inherited: Any, depth: int) -> int:
        if depth > DEPTH or not isinstance(form, StreamObject):
            raise Unreadable
        if form.get("/Subtype") == "/Image":
            return 0
        key = id(form)
        if key not in self._forms:
            self._forms[key] = -1
            resources = form.raw_get("/Resources") if "/Resources" in form else inherited
            self._forms[key] = self._text_of(_data(form), resources, depth + 1)
        if self._forms[key] < 0:
            raise Unreadable
        return self._forms[key]

    def _text_of(self, data: bytes, resources: Any, depth: int) -> int:
        resource_dictionary = _dictionary(_resolved(resources))
        text = _shown_bytes(data) * _longest_code(resource_dictionary)
        forms = _dictionary(_resolved(resource_dictionary.get("/XObject")))
        for name in SHOWN_FORM.findall(data):
            form = forms.get("/" + name.decode("latin-1"))
            if form is not None:
                text += self._text_of_form(_resolved(form), resources, depth)
        return text


def _resolved(value: Any) -> Any:
    if isinstance(value, IndirectObject):
        return value.get_object()
    return value


def _key(value: Any) -> Any:
    if isinstance(value, IndirectObject):
        return (value.idnum, value.generation)
    return id(value)


def _array(value: Any) -> list[Any]:
    """Yield the elements as written: references are not resolved."""
    value = _resolved(value)
    if value is None:
        return []
    if not isinstance(value, ArrayObject):
        raise Unreadable
    return [list.__getitem__(value, place) for place in range(len(value))]


def _dictionary(value: Any) -> Any:
    value = _resolved(value)
    if isinstance(value, DictionaryObject):
        return value
    return DictionaryObject()


def _data(stream: Any) -> bytes:
    if isinstance(stream, StreamObject):
        return stream.get_data()
    return b""


def _shown_bytes(data: bytes) -> int:
    """Return the number of bytes within strings: in parentheses, which may be nested, or as hexadecimal digits."""
    depth = begun = shown = 0
    for match in PAREN.finditer(data):
        sign = match[0]
        if sign == b"(":
            if not depth:
                begun = match.end()
            depth += 1
        elif sign == b")" and depth:
            depth -= 1
            if not depth:
                shown += match.start() - begun
    if depth:
        shown += len(data) - begun
    return shown + sum(len(text) // 2 + 1 for text in HEX.findall(data))


def _longest_code(resources: Any) -> int:
    """Return the maximum text length of one byte of a string."""
    longest = 1
    for font in _dictionary(resources.get("/Font")).values():
        codes = _dictionary(font).get("/ToUnicode")
        for target in LONG_TARGET.findall(_data(_resolved(codes))):
            longest = max(longest, -(-len(target) // HEX_DIGITS_PER_CODE))
    return longest


def _pages_anywhere(data: bytes) -> int:
    """Count page objects in the whole file, including earlier revisions and packed objects."""
    pages = len(PAGE.findall(data))
    left = MAX_INFLATED_BYTES
    for match in STREAM.finditer(data):
        head = data[max(0, match.start() - 512) : match.start()]
        if b"ObjStm" not in head and b"#" not in head:
            continue
        try:
            inflated = zlib.decompressobj().decompress(data[match.end() :], left)
        except zlib.error:
            continue
        left -= len(inflated)
        if left <= 0:
            raise Unreadable
        pages += len(PAGE.findall(inflated))
    return pages


def read(data: bytes) -> tuple[int, int, int]:
    """Return the pages of the tree, the maximum pages that any reader may find, and the maximum bytes of text on those.

    Readers differ in when they trust the table of objects, and rebuild it from the whole file if not. Both results
    count.
    """
    reader = PdfReader(BytesIO(data))
    pages, maximum, text = _count(reader, data)
    if not (reader.is_encrypted and _lists_every_object(reader, data)):  # packed objects are unreadable before that
        _, rebuilt_most, rebuilt_text = _count(PdfReader(BytesIO(data + NO_TABLE)), data)
        maximum = max(maximum, rebuilt_most)
        text = max(text, rebuilt_text)
    return pages, maximum, text


def _count(reader: PdfReader, data: bytes) -> tuple[int, int, int]:
    root = _dictionary(reader.trailer["/Root"])
    pages, text = Pages().count(root.raw_get("/Pages"), None)
    if not pages:
        raise Unreadable
    maximum = pages if reader.is_encrypted else max(pages, _pages_anywhere(data))
    return pages, maximum, -(-text * maximum // pages)


def _lists_every_object(reader: PdfReader, data: bytes) -> bool:
    listed = {place for places in reader.xref.values() for place in places.values()}
    return all(match.start() in listed for match in OBJECT.finditer(data))


def main() -> None:
    """Read standard input within the limits; any failure leaves standard output empty."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(10)
    try:
        facts = read(sys.stdin.buffer.read())
    except BaseException:
        os._exit(1)
    os.write(1, " ".join(map(str, facts)).encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    main()
