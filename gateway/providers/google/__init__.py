"""Gemini's generateContent, as served by Google AI Studio, Vertex AI and resellers.

The package knows no caller's dialect. Decided against: a key in the URL (URLs are logged, headers are not), one schema
format for all models (newer ones accept JSON Schema), and the token URL that a service account names.
"""
