"""The surface for Cohere's own API: chats and embeddings. Rerank has the same form in the gateway's own format."""
