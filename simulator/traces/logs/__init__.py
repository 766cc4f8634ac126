"""Logs of servers and load generators as traces, a module per kind of log."""
