"""The vendors' words for what the vectors of an embeddings request are for.

Wire facts: the embeddings references of Cohere (`input_type`), Voyage (`input_type`), Jina (`task`) and of Google
(`taskType`, at Vertex AI `task_type`).
"""

from gateway.neutral.embeddings import InputType

WORDS: dict[str, InputType] = {
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
    return WORDS.get((word or "").lower(), "")
