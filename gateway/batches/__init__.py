"""Batches: the requests of a file are sent in spare capacity or to batch APIs, and their results are stored as files.

A batch is a job (`batch_table`). A worker that claims it checks every line and holds the bound of all of them
(`line_checks`), then sends the lines as ordinary requests (`batch_runs`). The answer of a line and its usage row are
one entry of the journal (`line_results`), so that a crash loses no line and bills none twice. Lines of models with a
batch API at their provider are sent there (`native_sending`), and its results are delivered like responses
(`native_results`). `result_files` writes the
files at the end, and surfaces use `project_batches`. Only the surfaces know
the form of a line in a dialect (`line_port`).
"""
