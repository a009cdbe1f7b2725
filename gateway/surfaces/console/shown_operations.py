"""Retained payloads of operations other than chat, as a page shows them: inputs, and results in a readable form."""

import base64
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from gateway.surfaces.console.shown_answers import read_whole
from gateway.surfaces.console.shown_conversation import (
    MAX_BYTES,
    ShownConversation,
    limit,
    load_request,
    read_conversation,
    read_settings,
    read_turns,
)
from gateway.surfaces.console.shown_parts import (
    MAX_PARTS,
    MAX_TEXT,
    Json,
    ShownMessage,
    ShownPart,
    as_dict,
    as_list,
    as_text,
    find_member,
    find_text,
    load,
    read_parts,
    read_picture,
    write_json,
)

MAX_ITEMS = 50  # inputs and results that are listed
SHOWN_NUMBERS = 6  # of a vector
SAMPLE = 65_536  # bytes by which text is distinguished from other content
CONVERSATIONS = ("", "chat", "realtime")
# Members that are inputs, by their label, in the order in which a page shows them.
INPUTS = {
    "instructions": "Instructions",
    "query": "Query",
    "prompt": "Prompt",
    "input": "Input",
    "inputs": "Input",
    "texts": "Input",
    "content": "Input",
    "requests": "Input",
    "state": "State",
    "questions": "Questions",
    "documents": "Documents",
    "document": "Document",
    "image": "Image",
    "images": "Images",
}


def is_text(body: bytes) -> bool:
    """Return whether bytes are text rather than sound, a picture or another file."""
    sample = body[:SAMPLE]
    if b"\0" in sample:
        return False
    try:
        sample.decode()
    except UnicodeDecodeError as error:
        return error.start > len(sample) - 4 and len(sample) < len(body)
    return True


def read_payload(operation: str, sent: bytes, answer: bytes) -> ShownConversation | None:
    """Return a payload as a conversation, or as inputs and results; None if it has neither."""
    if operation in CONVERSATIONS:
        return read_conversation(sent, answer)
    if len(answer) > MAX_BYTES:
        return None
    body, is_cut = load_request(sent)
    fields = as_dict(body)
    if "messages" in fields:  # images and sound of models that answer in chat
        return read_turns(fields, answer, is_cut)
    messages = list(_read_inputs(fields))
    answers = list(_read_results(fields, answer))
    if not messages and not answers:
        return None
    shown = ShownConversation(messages, answers, [], read_settings(fields, tuple(INPUTS)), 0, is_cut)
    limit(shown)
    return shown


# Inputs.


def _read_inputs(body: Json) -> Iterator[ShownMessage]:
    for name, label in INPUTS.items():
        if not body.get(name):
            continue
        parts = list(_read_values(body[name]))
        if parts:
            yield ShownMessage(label, parts)


def _read_values(value: Any) -> Iterator[ShownPart]:
    items = value if isinstance(value, list) else [value]
    if items and all(isinstance(item, int | float) for item in items):
        yield ShownPart("text", f"{len(items):,} token ids")
        return
    for item in islice(items, MAX_ITEMS):
        yield from _read_value(item)
    if len(items) > MAX_ITEMS:
        yield ShownPart("text", f"… and {len(items) - MAX_ITEMS:,} more")


def _read_value(item: Any) -> Iterator[ShownPart]:
    if isinstance(item, str):
        drawn = read_picture(item) if item.startswith(("data:", "iVBOR", "/9j/", "R0lGOD", "UklGR")) else None
        yield drawn or ShownPart("text", item[:MAX_TEXT])
    elif isinstance(item, list) and item and isinstance(item[0], int):
        yield ShownPart("text", f"{len(item):,} token ids")
    elif isinstance(item, dict):
        inner = find_member(as_dict(item.get("content")), "parts") or item.get("content") or item.get("parts") or item
        yield from read_parts(inner)
    elif item is not None:
        yield ShownPart("json", write_json(item)[:MAX_TEXT])


# Results.


def _read_results(asked: Json, answer: bytes) -> Iterator[ShownMessage]:
    if answer and not is_text(answer):
        yield ShownMessage("Result", [ShownPart("file", f"{len(answer):,} bytes of sound or another file")])
        return
    body = load(answer)
    if not isinstance(body, dict):
        text = answer.decode("utf-8", "replace").strip()
        if text:
            yield ShownMessage("Result", [ShownPart("text", text[:MAX_TEXT])])
        return
    if body.get("error") and not body.get("data"):
        yield from read_whole({"error": body["error"]})
        return
    for read in READERS:
        if parts := list(read(body, asked))[:MAX_PARTS]:
            yield ShownMessage("Result", parts)
            return


def _read_vectors(body: Json, asked: Json) -> Iterator[ShownPart]:
    """Yield embeddings: their number and their dimensions, and the first numbers of each."""
    found = [as_dict(one).get("embedding") for one in as_list(body.get("data"))]
    found += [as_dict(one).get("values") for one in [body.get("embedding"), *as_list(body.get("embeddings"))]]
    found += [one for one in as_list(body.get("embeddings")) if isinstance(one, list)]
    for vectors in as_dict(body.get("embeddings")).values():
        found += as_list(vectors)
    vectors = [vector for vector in found if isinstance(vector, list | str) and vector]
    if not vectors:
        return
    size = len(_numbers_of(vectors[0], None))
    yield ShownPart("text", f"{len(vectors):,} vector{'s' if len(vectors) != 1 else ''} of {size:,} dimensions")
    lines = []
    for number, vector in enumerate(vectors[:MAX_ITEMS]):
        beginning = ", ".join(f"{value:.5g}" for value in _numbers_of(vector, SHOWN_NUMBERS))
        lines.append(f"{number}: [{beginning}, …]")
    yield ShownPart("json", "\n".join(lines), "The first numbers of each")


def _numbers_of(vector: list[Any] | str, limit: int | None) -> list[float]:
    """Return the numbers of a vector, also of one in base64 of little-endian 32-bit floats."""
    if isinstance(vector, list):
        return [value for value in vector[:limit] if isinstance(value, int | float)]
    try:
        raw = base64.b64decode(vector if limit is None else vector[: 8 * limit], validate=True)
    except ValueError:
        return []
    return [value for (value,) in struct.iter_unpack("<f", raw[: len(raw) // 4 * 4])][:limit]


def _read_pictures(body: Json, asked: Json) -> Iterator[ShownPart]:
    for one in as_list(body.get("data"))[:MAX_ITEMS]:
        item = as_dict(one)
        if any(name in item for name in ("b64_json", "url")):
            yield read_picture(find_text(item, "b64_json", "url"))
            if find_text(item, "revised_prompt"):
                yield ShownPart("text", f"Prompt as the model revised it: {item['revised_prompt']}"[:MAX_TEXT])


def _read_ranks(body: Json, asked: Json) -> Iterator[ShownPart]:
    documents = as_list(asked.get("documents"))
    for one in (as_list(body.get("results")) or as_list(body.get("data")))[:MAX_ITEMS]:
        item = as_dict(one)
        score, index = item.get("relevance_score"), item.get("index")
        if not isinstance(score, int | float) or not isinstance(index, int):
            continue
        document = documents[index] if 0 <= index < len(documents) else item.get("document", "")
        text = as_text(document) or find_text(as_dict(document), "text")
        yield ShownPart("text", f"{score:.4f} · document {index}: {text}"[:MAX_TEXT])


def _read_verdicts(body: Json, asked: Json) -> Iterator[ShownPart]:
    for number, one in enumerate(as_list(body.get("results"))[:MAX_ITEMS]):
        item = as_dict(one)
        if "flagged" not in item and "categories" not in item:
            continue
        categories = as_dict(item.get("categories"))
        raised = [name for name, is_raised in categories.items() if is_raised is True]
        scores = as_dict(item.get("category_scores"))
        about = ", ".join(f"{name} {_round(scores.get(name))}".strip() for name in raised) or "nothing"
        yield ShownPart("text", f"Input {number}: {about} flagged"[:MAX_TEXT], failed=bool(raised))
        if scores:
            yield ShownPart("json", write_json(scores)[:MAX_TEXT], "Scores")


def _round(score: Any) -> str:
    return f"{score:.3f}" if isinstance(score, int | float) else ""


def _read_pages(body: Json, asked: Json) -> Iterator[ShownPart]:
    for one in as_list(body.get("pages"))[:MAX_ITEMS]:
        item = as_dict(one)
        number = write_json(item.get("index", ""), 0)
        yield ShownPart("text", f"Page {number}\n\n{as_text(item.get('markdown'))}"[:MAX_TEXT])


def _read_transcript(body: Json, asked: Json) -> Iterator[ShownPart]:
    if isinstance(body.get("text"), str):
        yield ShownPart("text", body["text"][:MAX_TEXT])
        segments = [as_dict(one) for one in as_list(body.get("segments"))[:MAX_PARTS]]
        lines = [f"{write_json(one.get('start', ''), 0)} s: {as_text(one.get('text')).strip()}" for one in segments]
        if lines:
            yield ShownPart("json", "\n".join(lines)[:MAX_TEXT], "Segments")


def _read_rest(body: Json, asked: Json) -> Iterator[ShownPart]:
    """Yield the answer as it is, without what the gateway adds to each."""
    rest = {name: value for name, value in body.items() if name not in ("metadata", "usage", "object")}
    yield ShownPart("json", write_json(rest)[:MAX_TEXT], "Answer")


ReadResult = Callable[[Json, Json], Iterator[ShownPart]]
READERS: tuple[ReadResult, ...] = (
    _read_vectors,
    _read_pictures,
    _read_ranks,
    _read_verdicts,
    _read_pages,
    _read_transcript,
    _read_rest,
)
