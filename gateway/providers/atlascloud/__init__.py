"""Atlas Cloud's prediction format: a task that names its outputs."""
