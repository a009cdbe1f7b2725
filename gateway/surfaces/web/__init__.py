"""Callers' HTTP: requests, responses, credentials, and the guard around every operation."""
