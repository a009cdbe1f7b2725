"""The surface for Cohere's own API: embeddings. Rerank has the same form in the gateway's own format."""
