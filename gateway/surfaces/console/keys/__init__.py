"""The pages of API keys: the list, a key, and a new key with settings for clients."""
