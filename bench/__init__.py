"""The benchmark: what a request costs the gateway beside nginx and beside nothing at all. Run by hand, never a test.

Trust differences and ratios within one run, not absolute figures: CPU µs a good answer from /proc, medians over
rounds that interleave all targets. Decided against a load generator in Python or a public one: at these costs it,
not the gateway, would be measured. It knows the gateway's outside only (address, key, model).
"""
