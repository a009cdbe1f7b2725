"""Batch APIs of providers: the interface of their codecs, and the calls that batches make with them."""
