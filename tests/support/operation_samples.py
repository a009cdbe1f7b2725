"""Draws requests of the operations other than chat, with members that the vendors' SDKs and references know.

Types of `openai` and `mistralai` say what members there are; those of Cohere, Jina, Voyage and of the gateway itself
are from their references. A text is drawn by the name of its member, as in support/sdk_samples.py.
"""

from __future__ import annotations

import importlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from hypothesis import strategies as st
from support import sdk_samples as sdk
from support.pdfs import packed

from gateway.providers.sandbox import speech

Json = dict[str, Any]
VOICE = "Ab1Cd2Ef3Gh4Ij5Kl6Mn"  # the id of a voice of the account at a vendor of speech
OBJECTS = frozenset((*sdk.STORED, VOICE, "voice_1"))
WORDS = ("word", "words of a sentence. " * 8, "long text " * 300)
PICTURES = (f"data:image/png;base64,{sdk.PICTURE}",)
BOOK = "data:application/pdf;base64," + b64encode(packed(12)).decode()
ANY_SIZE = ("auto", "1024x1024", "1024x1536", "3840x2160", "2K", "4K", "5000x5000")


class Sample(NamedTuple):
    """A request, as JSON or, with `files` or `form`, as a form."""

    path: str
    body: Json
    files: tuple[tuple[str, tuple[str, bytes]], ...] = ()
    form: bool = False


class Known(NamedTuple):
    """An operation: how a request of it begins, the SDKs' types of its members, and members beside those."""

    path: str
    begin: Callable[[sdk.Draw], Json]
    models: tuple[str, ...]
    types: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    form: bool = False
    streams: bool = False


@cache
def load(name: str) -> Any:
    module, _, kind = name.rpartition(".")
    return getattr(importlib.import_module(module), kind)


def text(draw: sdk.Draw) -> str:
    return draw(st.sampled_from(WORDS))


def texts(draw: sdk.Draw) -> list[str]:
    return draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))


# Members that no SDK has, or that it declares without their values.
BESIDE: dict[str, Callable[[sdk.Draw], Any]] = {
    "size": lambda draw: draw(st.sampled_from(ANY_SIZE)),
    "aspect_ratio": lambda draw: draw(st.sampled_from(("1:1", "16:9"))),
    "n": lambda draw: draw(st.sampled_from((1, 2, 4))),
    "partial_images": lambda draw: draw(st.sampled_from((1, 3))),
    "voice": lambda draw: draw(st.sampled_from(("alloy", "Sarah", VOICE, {"id": "voice_1"}))),
    "instructions": text,
    "keyterm": texts,
    "languages": lambda draw: ["en", "de"],
    "document": lambda draw: draw(st.sampled_from(DOCUMENTS)),
    "pages": lambda draw: draw(st.sampled_from(([0], [0, 1, 7], "0-2,4"))),
    "bbox_annotation_format": lambda draw: {"type": "json_object"},
    "document_annotation_format": lambda draw: {"type": "json_object"},
    "document_annotation_prompt": text,
    "max_tokens_per_doc": lambda draw: 4_096,
    "documents": lambda draw: [text(draw) for _ in range(draw(st.sampled_from((1, 90, 300))))],
    "input": lambda draw: draw(st.one_of(st.sampled_from(WORDS), st.lists(st.sampled_from(WORDS), min_size=1))),
    "token ids": lambda draw: [[1, 2, 3]],
    "images": lambda draw: list(PICTURES),
    "inputs": lambda draw: [{"content": [{"type": "image_url", "image_url": {"url": PICTURES[0]}}]}],
    "embedding_types": lambda draw: [draw(st.sampled_from(("float", "int8")))],
    "seconds": lambda draw: draw(st.sampled_from((1, 5, "8", 15))),
    "image": lambda draw: PICTURES[0],
    "reference_images": lambda draw: list(PICTURES) * draw(st.sampled_from((1, 3))),
    "reference_videos": lambda draw: [sdk.ADDRESSES[2]],
    "last_frame": lambda draw: PICTURES[0],
    "title": text,
    "service_tier": lambda draw: draw(st.sampled_from(("flex", "priority"))),
}
DOCUMENTS: tuple[Json, ...] = (
    {"type": "document_url", "document_url": sdk.ADDRESSES[1]},
    {"type": "document_url", "document_url": BOOK},
    {"type": "image_url", "image_url": sdk.ADDRESSES[0]},
    {"type": "image_url", "image_url": {"url": PICTURES[0]}},
    {"type": "file", "file_id": "file-1"},
    {"type": "document_url", "document_url": BOOK, "file_id": "file-1"},
    {"type": "document_url", "document_url": sdk.ADDRESSES[4]},
)
MISTRAL = "mistralai.client.models."
TRANSCRIBED = ("openai.types.audio.transcription_create_params.TranscriptionCreateParamsBase",)
HEARING = ("openai/whisper-1", "groq/whisper-large-v3")
OPERATIONS: dict[str, Known] = {
    "images": Known(
        "/v1/images/generations",
        lambda draw: {"prompt": text(draw)},
        ("openai/gpt-image-2", "openai/gpt-image-1", "google-ai-studio/gemini-3-pro-image", "xai/grok-imagine-image"),
        ("openai.types.image_generate_params.ImageGenerateParamsBase",),
        ("size", "n", "aspect_ratio", "partial_images", "service_tier"),
        streams=True,
    ),
    "image edits": Known(
        "/v1/images/edits",
        lambda draw: {"prompt": text(draw)},
        ("openai/gpt-image-2", "openai/gpt-image-1", "google-ai-studio/gemini-3-pro-image", "xai/grok-imagine-image"),
        ("openai.types.image_edit_params.ImageEditParamsBase",),
        ("size", "n", "aspect_ratio", "partial_images"),
        form=True,
        streams=True,
    ),
    "speech": Known(
        "/v1/audio/speech",
        lambda draw: {"input": text(draw), "voice": "Sarah"},
        ("openai/tts-1", "openai/gpt-4o-mini-tts", "elevenlabs/eleven-multilingual-v2"),
        ("openai.types.audio.speech_create_params.SpeechCreateParams",),
        ("voice", "instructions"),
    ),
    "speech of a chat model": Known(
        "/v1/audio/speech",
        lambda draw: {"input": text(draw), "voice": "Kore"},
        ("google-ai-studio/gemini-3.1-flash-tts-preview",),
        ("openai.types.audio.speech_create_params.SpeechCreateParams",),
        ("voice", "instructions"),
    ),
    "transcriptions": Known(
        "/v1/audio/transcriptions",
        lambda draw: {},
        (*HEARING, "openai/gpt-4o-transcribe", "mistral/voxtral-mini-transcribe-3-0"),
        (*TRANSCRIBED, MISTRAL + "AudioTranscriptionRequest"),
        ("keyterm", "languages"),
        form=True,
        streams=True,
    ),
    "translations": Known(
        "/v1/audio/translations",
        lambda draw: {},
        HEARING,
        ("openai.types.audio.TranslationCreateParams",),
        form=True,
    ),
    "ocr": Known(
        "/v1/ocr",
        lambda draw: {"document": BESIDE["document"](draw)},
        ("mistral/mistral-ocr-4-1", "mistral/mistral-ocr-2512"),
        (MISTRAL + "OCRRequest",),
        ("pages", "bbox_annotation_format", "document_annotation_format", "document_annotation_prompt"),
    ),
    "rerank": Known(
        "/v1/rerank",
        lambda draw: {"query": text(draw), "documents": BESIDE["documents"](draw)},
        ("cohere/rerank-v4.0-pro", "jina/jina-reranker-v3", "voyage/rerank-3"),
        beside=("max_tokens_per_doc", "n"),
    ),
    "moderations": Known(
        "/v1/moderations",
        lambda draw: {"input": BESIDE["input"](draw)},
        ("openai/omni-moderation-latest", "mistral/mistral-moderation-2603"),
        ("openai.types.ModerationCreateParams", MISTRAL + "ClassificationRequest"),
    ),
    "embeddings": Known(
        "/v1/embeddings",
        lambda draw: {"input": draw(st.one_of(st.just([[1, 2, 3]]), st.sampled_from(WORDS), st.just(list(WORDS))))},
        ("openai/text-embedding-3-small", "google-ai-studio/gemini-embedding-2", "cohere/embed-v4.0"),
        ("openai.types.EmbeddingCreateParams", MISTRAL + "EmbeddingRequest"),
    ),
    "embeddings of Cohere": Known(
        "/v2/embed",
        lambda draw: {"texts": texts(draw), "input_type": "search_query"},
        ("cohere/embed-v4.0", "openai/text-embedding-3-small"),
        beside=("images", "inputs", "embedding_types"),
    ),
    "embeddings of Gemini": Known(
        "/v1beta/models/MODEL:embedContent",
        lambda draw: {"content": {"parts": [{"text": text(draw)}]}},
        ("google-ai-studio/gemini-embedding-2", "openai/text-embedding-3-small"),
        ("google.genai.types.EmbedContentConfig",),
        ("title",),
    ),
    "videos": Known(
        "/v1/videos",
        lambda draw: {"prompt": text(draw)},
        ("xai/grok-imagine-video",),
        ("openai.types.VideoCreateParams",),
        ("seconds", "image", "reference_images", "reference_videos", "last_frame", "size"),
    ),
}


def draw_sample(draw: sdk.Draw, name: str) -> Sample:
    """A request of the operation with some of the members that are known for it."""
    known = OPERATIONS[name]
    model = draw(st.sampled_from(known.models))
    body = known.begin(draw)
    members = {
        member: hint
        for kind in known.types
        for member, hint, _ in sdk.members_of(load(kind))
        if member not in (*body, "model", "stream", "file", "file_id", "url", "image", "mask")
    }
    choices = sorted({*members, *known.beside})
    for member in draw(st.lists(st.sampled_from(choices), max_size=3, unique=True)):
        made = BESIDE.get(member)
        body[member] = made(draw) if made else sdk.value_of(draw, members[member], member, 1)
    if "MODEL" in known.path:
        return Sample(known.path.replace("MODEL", model), body)
    body["model"] = model
    if known.form:
        return Sample(known.path, body, draw_files(draw, name), form=True)
    return Sample(known.path, body)


def draw_files(draw: sdk.Draw, name: str) -> tuple[tuple[str, tuple[str, bytes]], ...]:
    if name != "image edits":
        seconds = draw(st.sampled_from((1.0, 3.0, 75.0)))
        return (("file", ("a.wav", sound_of(seconds))),)
    picture = ("a.png", b64decode(sdk.PICTURE))
    count = draw(st.sampled_from((1, 2)))
    files = [("image[]", picture)] * count
    return tuple(files + [("mask", picture)] * draw(st.sampled_from((0, 1))))


@cache
def sound_of(seconds: float) -> bytes:
    return speech.make("wav", seconds)


def as_form(body: Json) -> dict[str, Any]:
    """The fields of a form: lists are repeated, objects are JSON."""
    fields: dict[str, Any] = {}
    for name, value in body.items():
        if isinstance(value, list):
            fields[f"{name}[]"] = [one if isinstance(one, str) else json.dumps(one) for one in value]
        else:
            fields[name] = value if isinstance(value, str) else json.dumps(value)
    return fields
