"""Routes: model names of an organization with rules that choose the model of each request."""
