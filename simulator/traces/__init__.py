"""Traces: which requests come when, and how long they are; read, drawn and written."""
