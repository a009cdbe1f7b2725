"""Words for the purpose of vectors, in the embeddings reference of each vendor."""

from gateway.dialects.field_names import read_input_type

VENDORS = {
    "cohere": "search_document document, search_query query, classification classification, clustering clustering",
    "voyage": "document document, query query",
    "jina": "retrieval.passage document, retrieval.query query, classification classification, separation clustering,"
    " text-matching similarity, code.query code_query, code.passage code_document",
    "google": "RETRIEVAL_DOCUMENT document, RETRIEVAL_QUERY query, CLASSIFICATION classification,"
    " CLUSTERING clustering, SEMANTIC_SIMILARITY similarity, CODE_RETRIEVAL_QUERY code_query,"
    " QUESTION_ANSWERING question_answering, FACT_VERIFICATION fact_verification",
    "nvidia": "passage document, query query",
    "own": "document document, query query, classification classification, clustering clustering,"
    " similarity similarity, code_query code_query, code_document code_document",
}


def test_the_words_of_every_vendor_are_understood() -> None:
    for vendor, pairs in VENDORS.items():
        for pair in pairs.split(", "):
            word, meaning = pair.split()
            assert read_input_type(word) == meaning, f"{vendor}: {word}"
    assert read_input_type("image") == read_input_type(None) == ""
