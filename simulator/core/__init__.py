"""The compiled loop: schedulers and allocators as small functions, and a core that knows no policy."""
