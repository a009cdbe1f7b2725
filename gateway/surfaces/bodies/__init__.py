"""Bodies of requests that several surfaces read: validation, options of chats, lenient parsing."""
