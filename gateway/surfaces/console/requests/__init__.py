"""The pages of the request log: the list with filters and a live view, and the details of a request."""
