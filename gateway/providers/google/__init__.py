"""Gemini's generateContent, as Google AI Studio, Vertex AI and their resellers speak it.

May not know any caller's dialect. Decided against: a key in the address (addresses are logged, headers are not), one
format of schemas for all models (newer ones take JSON Schema itself), and following a credential's own token address.
"""
