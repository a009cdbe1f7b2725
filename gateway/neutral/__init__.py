"""The neutral form: what a request, a stream and a result are, in no vendor's words.

Every surface reads into it and writes out of it; every protocol writes from it and reads into it. Frozen values,
no behaviour beyond small derivations, no vendor's wire names, no I/O. Opaque things that a provider hands out and
wants back unchanged (signatures, encrypted reasoning) are carried byte for byte with the name of their vendor.

What is made anew for every request or event (requests, needs, usage, choices, events) is a value by custom, never
changed after it is made: a struct where it is made most often, and no frozen data class, of which each field costs
70 ns, 8 µs a request in all.
"""
