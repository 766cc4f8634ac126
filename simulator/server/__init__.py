"""The server's hardware and model: what a GPU holds, what a token slot takes, and how large the pool is."""
