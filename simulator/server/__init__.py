"""The server: its GPUs and models, how large its pool is, and what an iteration costs."""
