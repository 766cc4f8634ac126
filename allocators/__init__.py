"""Memory managers for a KV cache: which slots belong to which request, address by address."""
