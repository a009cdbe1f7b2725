"""Generated descriptions of models without one in their entry."""

from calendar import month_name

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
MILLION = 1_000_000


def describe(model: Model, mappings: tuple[Mapping, ...], vendor: str) -> str:
    """Return a few sentences: kind and vendor of the model, its inputs, capabilities and limits."""
    origin = f" by {vendor}" if vendor else ""
    first = f"{model.name or model.id} is {_kind(model, mappings)}{origin}"
    if model.released:
        first += f", released in {month_name[int(model.released[5:7])]} {model.released[:4]}"
    sentences = [first, *_abilities(model, mappings), *_sizes(mappings)]
    return ". ".join(sentences) + "."


def _kind(model: Model, mappings: tuple[Mapping, ...]) -> str:
    outputs = model.output_modalities
    if "text" not in outputs:
        words = next((word for kind, word in KINDS.items() if kind in outputs), "model")
    elif any(mapping.reasoning for mapping in mappings):
        words = "reasoning model"
    else:
        words = "language model"
    if "text" in outputs and "image" in outputs:
        also = " that also makes images"
    else:
        also = ""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}{also}"


def _abilities(model: Model, mappings: tuple[Mapping, ...]) -> list[str]:
    sentences = []
    read = [word for kind, word in READ.items() if kind in model.input_modalities]
    if read:
        sentences.append(f"It reads {_join(['text', *read] if 'text' in model.input_modalities else read)}")
    able = [
        words
        for words, has in (
            ("tool calls", any(mapping.tools for mapping in mappings)),
            ("structured output", any(mapping.json_output_schema for mapping in mappings)),
            ("web search", any(mapping.web_search for mapping in mappings)),
        )
        if has
    ]
    if able:
        sentences.append(f"It supports {_join(able)}")
    return sentences


def _sizes(mappings: tuple[Mapping, ...]) -> list[str]:
    context = max(mapping.context_length for mapping in mappings)
    output = max(mapping.max_output for mapping in mappings)
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
