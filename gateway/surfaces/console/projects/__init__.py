"""The pages of projects and their settings."""
