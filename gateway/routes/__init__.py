"""Routes: model names of an organization whose rules choose the model of each request."""
