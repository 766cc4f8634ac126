"""Public traces: the list of them, and how one is fetched and checked."""
