"""Sign-in with identity providers: the way to the provider and back, its logout, and the settings of organizations."""
