"""Files APIs of providers: the interface of their codecs, and the calls that are made with them."""
