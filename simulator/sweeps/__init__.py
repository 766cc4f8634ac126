"""Many runs: planned as a grid, carried out by executors, kept in a journal."""
