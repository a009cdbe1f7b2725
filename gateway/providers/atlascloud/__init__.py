"""Atlas Cloud's format of predictions: a task that names what it made."""
