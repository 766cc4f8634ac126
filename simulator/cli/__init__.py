"""The command line: a module per command, its tables beside it."""
