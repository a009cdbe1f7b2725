"""Gemini's generateContent, as served by Google AI Studio, Vertex AI and resellers.

May not know any caller's dialect. Decided against: a key in the URL (URLs are logged, headers are not), one format of
schemas for all models (newer ones accept JSON Schema itself), and using a credential's own token URL.
"""
