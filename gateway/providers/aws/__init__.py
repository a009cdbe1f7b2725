"""Temporary credentials of AWS roles."""
