"""A strict fake of vendors of images, sound, vectors, documents and videos: it bills everything that a request has.

with StrictServices() as services:
    ... call services.url + "/v1/images/generations", "/v2/rerank", "/v1/ocr" ...
    services.calls[0].bill  # nano-dollars of the whole answer
    services.calls[0].certain(received)  # of the least that was consumed when a caller had received these bytes
    services.calls[0].stored  # ids of the account's objects that reached it

Prices are those that the vendors publish, written down here once more.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, NamedTuple

from fakes.server import FakeServer, Progress, send, send_json
from multipart import MultipartParser, parse_options_header
from support import operation_samples as samples

from gateway.providers.sandbox import speech
from gateway.providers.sandbox.images import png

Json = dict[str, Any]
DOLLAR = 10**9
PIXEL = base64.b64encode(png(2, 2, "pixel")).decode()
SPOKEN_S = 4.0
BYTES_PER_TOKEN = 4
READ_IMAGE = 1_000  # tokens of an image that is read
FAITHFUL_IMAGE = 6_240  # more of them with high fidelity
THOUGHT = 1_500
UNSEEN_PAGES = 900  # of a document at an address
HEARD = ("mark-0 ", "mark-1 ", "mark-2 ", "and the rest.")
OBJECT_NAMES = ("file_id", "voice", "id")


class Tokens(NamedTuple):
    """Nano-dollars for a token of text, of media that are read, of text and of media that are made."""

    text: int
    media: int = 0
    written: int = 0
    made: int = 0


# https://developers.openai.com/api/docs/pricing, https://ai.google.dev/gemini-api/docs/pricing
IMAGES = {"gpt-image-2": Tokens(5_000, 8_000, made=30_000), "gpt-image-1": Tokens(5_000, 10_000, made=40_000)}
GOOGLE_IMAGES = {"gemini-3-pro-image": Tokens(2_000, 2_000, 12_000, 120_000)}
SPEECH = {"gpt-4o-mini-tts": Tokens(600, made=12_000), "gemini-3.1-flash-tts-preview": Tokens(1_000, made=20_000)}
TRANSCRIPTS = {"gpt-4o-transcribe": Tokens(2_500, 6_000, 10_000)}
# https://docs.x.ai/developers/pricing: an image that is made, and one that is read
XAI_IMAGE = (DOLLAR // 50, DOLLAR // 500)
XAI_VIDEO = ({"480p": DOLLAR // 20, "720p": DOLLAR * 7 // 100}, DOLLAR // 500)
# Dollars for an hour of sound: OpenAI, https://groq.com/pricing (ten seconds at least), https://mistral.ai/pricing
HOURS = {"whisper-1": 0.36, "whisper-large-v3": 0.111, "voxtral-mini-transcribe-3-0": 0.21}
CHARACTERS = {"tts-1": 15_000, "eleven_multilingual_v2": 80_000}
PAGES = {"mistral-ocr-4-1": (DOLLAR // 250, DOLLAR // 200), "mistral-ocr-2512": (DOLLAR // 500, DOLLAR * 3 // 1000)}
# https://cohere.com/pricing: a query with up to 100 documents of 500 tokens, those of the query included
SEARCH, DOCUMENTS, CHUNK = DOLLAR // 400, 100, 500
READ = {
    "text-embedding-3-small": Tokens(20),
    "gemini-embedding-2": Tokens(200),
    "embed-v4.0": Tokens(120, 470),
    "jina-reranker-v3": Tokens(50),
    "rerank-3": Tokens(50),
    "mistral-moderation-2603": Tokens(100),
    "omni-moderation-latest": Tokens(0),
}
SIZES = {"low": 272, "medium": 1_056}
LARGEST, LARGE = 16_384, 4_160


@dataclass
class ServiceCall(Progress):
    """A recorded request. `bills` has the least that was consumed once a caller has received each of the marks."""

    path: str
    body: Json = field(default_factory=dict)
    files: list[tuple[str, bytes]] = field(default_factory=list)
    number: int = 0
    bill: int = 0
    stored: list[str] = field(default_factory=list)
    sound: tuple[int, int, int] = (0, 0, 0)  # certain input, a second of sound, bytes of the whole sound
    marks: list[tuple[bytes, int]] = field(default_factory=list)

    def certain(self, received: bytes) -> int:
        least = max([bill for mark, bill in self.marks if mark in received], default=0)
        known, second, size = self.sound
        if second and received:
            pieces = re.findall(rb'"audio":"([^"]*)"', received)
            heard = sum(len(base64.b64decode(piece)) for piece in pieces) if pieces else len(received)
            least = max(least, known + int(second * SPOKEN_S * min(heard, size) / size))
        return least

    def texts(self, *names: str) -> int:
        """The tokens of members, whatever is in them."""
        return sum(map(tokens_of, (self.body.get(name) for name in names)))


def tokens_of(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode()) // BYTES_PER_TOKEN
    if isinstance(value, dict):
        return sum(map(tokens_of, value.values()))
    return sum(map(tokens_of, value)) if isinstance(value, list) else 0


def find_stored(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from find_stored(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from find_stored(inner, name)
    elif isinstance(value, str) and name in OBJECT_NAMES and value in samples.OBJECTS:
        yield f"{name}: {value}"


class StrictServices(FakeServer):
    """The services; `calls` are ServiceCall. With `boast`, answers report this many units that they did not use."""

    boast = 0

    def serve(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        call = ServiceCall(environ["PATH_INFO"])
        if environ["REQUEST_METHOD"] == "GET":
            return send_json(start, 200, self._look(call.path))
        read(call, environ)
        call.number = len(self.calls)
        self.calls.append(call)
        answer = next(answer for ending, answer in ANSWERS.items() if call.path.endswith(ending))(call)
        call.stored += find_stored(call.body)
        call.stored += [f"path: {one}" for one in samples.OBJECTS if f"/{one}/" in call.path]
        if isinstance(answer, dict):
            return send_json(start, 200, boasting(answer, self.boast) if self.boast else answer)
        kind, pieces = answer
        start("200 OK", [("Content-Type", kind)])
        return send(environ, pieces, call, gap_s=0.02)

    def _look(self, path: str) -> Json:
        """The state of a video: it is done."""
        body = self.calls[int(path.rpartition("-")[2])].body
        return {"status": "done", "video": {"url": "https://films.example.com/1.mp4", "duration": body["duration"]}}


def boasting(answer: Json, units: int) -> Json:
    """The answer with other counts of its units."""
    return {
        **answer,
        "usage_info": {"pages_processed": units},
        "meta": {"billed_units": {"search_units": units}},
        "usage": {"type": "duration", "seconds": units},
    }


def read(call: ServiceCall, environ: dict[str, Any]) -> None:
    raw = environ["wsgi.input"].read()
    kind, options = parse_options_header(environ["CONTENT_TYPE"])
    if kind != "multipart/form-data":
        call.body = json.loads(raw)
        return
    for part in MultipartParser(BytesIO(raw), options["boundary"], len(raw), strict=True):
        if part.filename is None:
            call.body.setdefault(part.name, []).append(part.value)
        else:
            call.files.append((part.name, part.raw))
    call.body = {name: found[0] if len(found) == 1 else found for name, found in call.body.items()}


def frames(events: list[Json]) -> tuple[str, list[bytes]]:
    return "text/event-stream", [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events]


def draw_images(call: ServiceCall) -> Any:
    body = call.body
    if body["model"].startswith("grok"):
        return draw_at_flat_price(call)
    price = IMAGES[body["model"]]
    count, size = int(body.get("n", 1)), body.get("size", "auto")
    edges = [int(edge) for edge in size.split("x")] if "x" in size else [1024, 1536]
    one = SIZES.get(body.get("quality", "auto"), LARGE)
    made = min(LARGEST, max(one, one * math.prod(edges) // 2**20))
    previews = 100 * int(body.get("partial_images", 0)) if body.get("stream") in (True, "true") else 0
    pictures = READ_IMAGE + FAITHFUL_IMAGE * (body.get("input_fidelity") == "high")
    text, seen = call.texts("prompt"), pictures * len(call.files)
    start = text * price.text + seen * price.media
    call.bill = start + (made * count + previews) * price.made
    details = {"text_tokens": text, "image_tokens": seen}
    usage = {"input_tokens": text + seen, "input_tokens_details": details, "output_tokens": made * count + previews}
    usage["total_tokens"] = text + seen + made * count + previews
    shared = {"quality": body.get("quality", "high"), "size": size, "output_format": "png", "background": "opaque"}
    if not previews and body.get("stream") not in (True, "true"):
        return {"created": 1, "data": [{"b64_json": PIXEL}] * count, **shared, "usage": usage}
    shared |= {"b64_json": PIXEL, "created_at": 1}
    events: list[Json] = []
    for number in range(int(body.get("partial_images", 0))):
        events.append({"type": "image_generation.partial_image", "partial_image_index": number, **shared})
        call.marks.append((b'"partial_image_index":%d' % number, start + 100 * (number + 1) * price.made))
    return frames([*events, {"type": "image_generation.completed", "usage": usage, **shared}])


def draw_at_flat_price(call: ServiceCall) -> Json:
    body = call.body
    made, seen = XAI_IMAGE
    pictures = body.get("images") or ([body["image"]] if "image" in body else [])
    count = int(body.get("n", 1))
    call.bill = made * count + seen * len(pictures)
    return {"data": [{"b64_json": PIXEL}] * count}


def generate(call: ServiceCall) -> Json:
    """Images or sound of Google's models."""
    model = call.path.rpartition("/")[2].partition(":")[0]
    parts = call.body["contents"][0]["parts"]
    text = sum(tokens_of(part.get("text")) for part in parts)
    config = call.body["generationConfig"]
    if "AUDIO" in config["responseModalities"]:
        price = SPEECH[model]
        seconds = 1 + 4 * text / 15
        made = int(25 * seconds)
        call.bill = text * price.text + made * price.made
        data = base64.b64encode(bytes(int(seconds) * 48_000)).decode()
        part = {"inlineData": {"mimeType": "audio/L16;codec=pcm;rate=24000", "data": data}}
        counts = {"promptTokenCount": text, "candidatesTokenCount": made, "totalTokenCount": text + made}
        return {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}], "usageMetadata": counts}
    price = GOOGLE_IMAGES[model]
    seen = 1_120 * sum("inlineData" in part for part in parts)
    made = 2_000 if (config.get("imageConfig") or {}).get("imageSize") == "4K" else 1_120
    call.bill = text * price.text + seen * price.media + THOUGHT * price.written + made * price.made
    counts = {"promptTokenCount": text + seen, "candidatesTokenCount": made, "thoughtsTokenCount": THOUGHT}
    details = {"promptTokensDetails": [{"modality": "IMAGE", "tokenCount": seen}]} if seen else {}
    details["candidatesTokensDetails"] = [{"modality": "IMAGE", "tokenCount": made}]
    part = {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
    usage: Json = {**counts, "totalTokenCount": text + seen + made + THOUGHT, **details}
    return {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}], "usageMetadata": usage}


def speak(call: ServiceCall) -> Any:
    body = call.body
    model = body.get("model") or body["model_id"]
    format = body.get("response_format") or re.split("[=_]", call.path + "mp3_")[-2]
    sound = speech.make(format if format in speech.ENCODERS else "mp3", SPOKEN_S)
    pieces = [sound[at : at + len(sound) // 8 + 1] for at in range(0, len(sound), len(sound) // 8 + 1)]
    if model in CHARACTERS:
        text = body.get("input") or body["text"]
        call.bill = len(text) * CHARACTERS[model]
        call.marks = [(b"", call.bill)]
        return "audio/mpeg", pieces
    price, text = SPEECH[model], call.texts("input", "instructions")
    made = int(SPOKEN_S * 20)
    call.bill = text * price.text + made * price.made
    call.sound = (text * price.text, 20 * price.made, len(sound))
    if body.get("stream_format") != "sse":
        return "audio/mpeg", pieces
    usage = {"input_tokens": text, "output_tokens": made, "total_tokens": text + made}
    events = [{"type": "speech.audio.delta", "audio": base64.b64encode(piece).decode()} for piece in pieces]
    return frames([*events, {"type": "speech.audio.done", "usage": usage}])


def hear(call: ServiceCall) -> Any:
    body, model = call.body, call.body["model"]
    [(_, sound)] = call.files
    seconds = seconds_of(sound)
    text = call.texts("prompt", "keywords[]", "context_bias", "languages[]")
    usage: Json = {"type": "duration", "seconds": seconds}
    if model in HOURS:
        length = max(seconds, 10.0) if "large" in model else seconds
        known = call.bill = int(HOURS[model] * DOLLAR * length / 3600)
        if "voxtral" in model:
            usage = {"prompt_audio_seconds": math.ceil(seconds), "prompt_tokens": text, "completion_tokens": 20}
    else:
        price, heard = TRANSCRIPTS[model], int(10 * seconds)
        known = text * price.text + heard * price.media
        call.bill = known + 8 * price.written
        details = {"text_tokens": text, "audio_tokens": heard}
        usage = {"type": "tokens", "input_tokens": text + heard, "input_token_details": details, "output_tokens": 8}
    call.marks = [(b"mark-%d" % number, known) for number in range(3)]
    whole = {"text": "".join(HEARD), "usage": usage}
    if body.get("stream") == "true":
        events = [{"type": "transcript.text.delta", "delta": piece} for piece in HEARD]
        return frames([*events, {"type": "transcript.text.done", **whole}])
    if body.get("response_format") == "verbose_json":
        whole |= {"language": "en", "duration": seconds, "segments": [], "words": []}
    return whole


def seconds_of(sound: bytes) -> float:
    """The length of a WAV file."""
    rate = struct.unpack_from("<I", sound, 28)[0]
    return (len(sound) - 44) / float(rate)


def read_pages(call: ServiceCall) -> Json:
    body = call.body
    page, annotated = PAGES[body["model"]]
    address = json.dumps(body["document"])
    there = 1 if "base64" in address or body["document"]["type"] == "image_url" else UNSEEN_PAGES
    count = len(body["pages"]) if "pages" in body else there
    marked = "bbox_annotation_format" in body or "document_annotation_format" in body
    call.bill = count * (annotated if marked else page)
    size = {"dpi": 200, "height": 10, "width": 10}
    rows = [{"index": number, "markdown": "# Page", "images": [], "dimensions": size} for number in range(count)]
    return {"pages": rows, "model": body["model"], "usage_info": {"pages_processed": count, "doc_size_bytes": 9}}


def rank(call: ServiceCall) -> Json:
    body = call.body
    query = tokens_of(body["query"])
    sizes = [tokens_of(document) for document in body["documents"]]
    rows = [{"index": index, "relevance_score": 0.5} for index in range(len(sizes))]
    if call.path == "/v2/rerank":
        chunks = sum(max(1, math.ceil((query + size) / CHUNK)) for size in sizes)
        searches = math.ceil(chunks / DOCUMENTS)
        call.bill = searches * SEARCH
        return {"id": "r-1", "results": rows, "meta": {"billed_units": {"search_units": searches}}}
    tokens = sum(sizes) + query * len(sizes)
    call.bill = tokens * READ[body["model"]].text
    return {"results": rows, "data": rows, "usage": {"total_tokens": tokens}}


def judge(call: ServiceCall) -> Json:
    body = call.body
    tokens = tokens_of([one.get("text") if isinstance(one, dict) else one for one in listed(body["input"])])
    call.bill = tokens * READ[body["model"]].text
    row = {"flagged": False, "categories": {"violence": False}, "category_scores": {"violence": 0.1}}
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}
    return {"id": "modr-1", "model": body["model"], "results": [row], "usage": usage}


def embed(call: ServiceCall) -> Json:
    body = call.body
    inputs = listed(body["input"])
    whole = [inputs] if isinstance(inputs[0], int) else inputs
    tokens = sum(len(one) if isinstance(one, list) else tokens_of(one) for one in whole)
    call.bill = tokens * READ[body["model"]].text
    rows = [{"object": "embedding", "index": index, "embedding": [0.1, 0.2]} for index in range(len(whole))]
    return {"object": "list", "data": rows, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def embed_batch(call: ServiceCall) -> Json:
    """Vectors of Google's models."""
    requests = call.body["requests"]
    tokens = sum(tokens_of([request["content"], request.get("title")]) for request in requests)
    call.bill = tokens * READ[call.path.rpartition("/")[2].partition(":")[0]].text
    return {"embeddings": [{"values": [0.1, 0.2]} for _ in requests], "usageMetadata": {"promptTokenCount": tokens}}


def embed_media(call: ServiceCall) -> Json:
    """Vectors of Cohere's models."""
    body = call.body
    parts = [part for one in body.get("inputs") or () for part in one["content"]]
    pictures = len(body.get("images") or ()) + sum("image_url" in part for part in parts)
    text = call.texts("texts") + sum(tokens_of(part.get("text")) for part in parts)
    price = READ[body["model"]]
    call.bill = text * price.text + READ_IMAGE * pictures * price.media
    count = len(body.get("texts") or body.get("images") or body["inputs"])
    (kind,) = body["embedding_types"]
    billed = {"input_tokens": text} | ({"image_tokens": READ_IMAGE * pictures} if pictures else {})
    return {"id": "e-1", "embeddings": {kind: [[1, 0]] * count}, "meta": {"billed_units": billed}}


def film(call: ServiceCall) -> Json:
    body = call.body
    seconds, seen = XAI_VIDEO
    pictures = len(body.get("reference_images") or ()) + ("image" in body)
    call.bill = seconds[body["resolution"]] * body["duration"] + seen * pictures
    return {"request_id": f"film-{call.number}"}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


ANSWERS: dict[str, Callable[[ServiceCall], Any]] = {
    "/images/generations": draw_images,
    "/images/edits": draw_images,
    ":generateContent": generate,
    "/audio/speech": speak,
    "/stream": speak,
    "/audio/transcriptions": hear,
    "/audio/translations": hear,
    "/ocr": read_pages,
    "/rerank": rank,
    "/moderations": judge,
    "/embeddings": embed,
    ":batchEmbedContents": embed_batch,
    "/embed": embed_media,
    "/videos/generations": film,
}
