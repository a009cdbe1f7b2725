"""The field of an embeddings call with the purpose of the vectors, or the prefix of its texts."""

from typing import Any

from gateway.catalogue.entries import Mapping
from gateway.neutral.embeddings import GENERAL, InputType

# A key of a mapping's `extra`: the name of the provider's field (`field`), and its words for the input types. Without
# a field, the words are prefixes of the texts.
INPUT_TYPES = "input_types"
FIELD = "field"


def write_input_type(kind: InputType, mapping: Mapping, body: dict[str, Any]) -> tuple[str, ...]:
    """Add the field to a body. Return a warning when the model does not distinguish this type."""
    if not kind:
        return ()
    words = mapping.extra.get(INPUT_TYPES, {})
    word = _word_of(kind, words)
    if word is None:
        return (f"input_type was left out: {mapping.key} does not distinguish {kind}.",)
    if FIELD in words:
        body[words[FIELD]] = word
    return ()


def prefix_of(kind: InputType, mapping: Mapping) -> str:
    """Return the prefix of each text that states the purpose of the vectors; "" for models with a field for it."""
    words = mapping.extra.get(INPUT_TYPES, {})
    if FIELD in words:
        return ""
    return _word_of(kind, words) or ""


def _word_of(kind: InputType, words: dict[str, str]) -> str | None:
    return words.get(kind) or words.get(GENERAL.get(kind, ""))
