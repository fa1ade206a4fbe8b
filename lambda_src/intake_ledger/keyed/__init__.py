"""Keys and identities of messages, and the locks of keys."""
