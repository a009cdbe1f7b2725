"""Names of request fields by dialect or operation, so that errors and warnings use the caller's own field names.

Within the gateway a field has its name in chat completions.
"""

from gateway.dialects import anthropic
from gateway.errors import GatewayError
from gateway.neutral.embeddings import InputType
from gateway.neutral.parameters import ROWS, names_in

# The vendors' words for what the vectors of an embeddings request are for.
#
# Wire facts: the embeddings references of Cohere (`input_type`), Voyage (`input_type`), Jina (`task`) and of Google
# (`taskType`, at Vertex AI `task_type`).

INPUT_TYPE_WORDS: dict[str, InputType] = {
    "document": "document",
    "search_document": "document",
    "passage": "document",
    "retrieval.passage": "document",
    "retrieval_document": "document",
    "query": "query",
    "search_query": "query",
    "retrieval.query": "query",
    "retrieval_query": "query",
    "classification": "classification",
    "clustering": "clustering",
    "separation": "clustering",
    "similarity": "similarity",
    "semantic_similarity": "similarity",
    "text-matching": "similarity",
    "code_query": "code_query",
    "code.query": "code_query",
    "code_retrieval_query": "code_query",
    "code_document": "code_document",
    "code.passage": "code_document",
    "question_answering": "question_answering",
    "fact_verification": "fact_verification",
}


def read_input_type(word: str | None) -> InputType:
    """Return the meaning of a word of any vendor, "" for an unknown one."""
    return INPUT_TYPE_WORDS.get((word or "").lower(), "")


NAMES: dict[str, dict[str, str]] = {dialect: names_in(dialect) for row in ROWS for dialect in row.callers}


# Fields of a dialect that stand for service tiers.
TIER_FIELDS = {"anthropic": {tier: name for name, (tier, _) in anthropic.TIER_FIELDS.items()}}


def restate(error: GatewayError, surface: str) -> GatewayError:
    """Rename the field of `error` for the callers of a surface, also in the message if it is in backticks."""
    name = NAMES[surface].get(error.param)
    if name:
        error.message = error.message.replace(f"`{error.param}`", f"`{name}`")
        error.param = name
    return error


def reword(surface: str, warning: str) -> str:
    """Rename the field at the beginning of a warning, if any, for the callers of a surface."""
    first, space, rest = warning.partition(" ")
    if first == "service_tier":
        first = TIER_FIELDS.get(surface, {}).get(rest.partition(" ")[0], first)
    return NAMES.get(surface, {}).get(first, first) + space + rest
