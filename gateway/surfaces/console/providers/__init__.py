"""`/console/providers`: providers with their keys and health, and the provider keys of organizations."""
