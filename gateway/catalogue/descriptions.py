"""Descriptions of models whose entry has none, made of what the catalogue knows of them."""

from gateway.catalogue.entries import Mapping, Model

KINDS = {
    "embedding": "embedding model",
    "rerank": "reranking model",
    "transcription": "transcription model",
    "ocr": "document reading model",
    "decision": "decision model",
    "video": "video model",
    "image": "image model",
    "audio": "speech model",
}
READ = {"image": "images", "audio": "audio", "video": "video", "pdf": "PDF files"}
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
MILLION = 1_000_000
THOUSAND = 1_000


def describe(model: Model, mappings: tuple[Mapping, ...], vendor: str) -> str:
    """A few sentences: what kind of model it is and whose, what it reads, what it can do, how much it takes."""
    made = f" by {vendor}" if vendor else ""
    first = f"{model.name or model.id} is {_kind(model, mappings)}{made}"
    if model.released:
        first += f", released in {MONTHS[int(model.released[5:7]) - 1]} {model.released[:4]}"
    told = [first, *_abilities(model, mappings), *_sizes(mappings)]
    return ". ".join(told) + "."


def _kind(model: Model, mappings: tuple[Mapping, ...]) -> str:
    outputs = model.output_modalities
    if "text" not in outputs:
        words = next((word for kind, word in KINDS.items() if kind in outputs), "model")
    elif any(one.reasoning for one in mappings):
        words = "reasoning model"
    else:
        words = "language model"
    if "text" in outputs and "image" in outputs:
        also = " that also makes images"
    else:
        also = ""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}{also}"


def _abilities(model: Model, mappings: tuple[Mapping, ...]) -> list[str]:
    told = []
    read = [word for kind, word in READ.items() if kind in model.input_modalities]
    if read:
        told.append(f"It reads {_join(['text', *read] if 'text' in model.input_modalities else read)}")
    able = [
        words
        for words, has in (
            ("tool calls", any(one.tools for one in mappings)),
            ("structured output", any(one.json_output_schema for one in mappings)),
            ("web search", any(one.web_search for one in mappings)),
        )
        if has
    ]
    if able:
        told.append(f"It supports {_join(able)}")
    return told


def _sizes(mappings: tuple[Mapping, ...]) -> list[str]:
    context = max(one.context_length for one in mappings)
    output = max(one.max_output for one in mappings)
    if not context:
        return []
    if output and "chat" in mappings[0].operations:
        limit = f" and writes up to {_short(output)}"
    else:
        limit = ""
    return [f"It takes up to {_short(context)} tokens{limit}"]


def _short(tokens: int) -> str:
    if tokens >= MILLION and tokens % MILLION < MILLION // 10:
        return f"{tokens // MILLION} million"
    return f"{tokens:,}"


def _join(words: list[str]) -> str:
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"
