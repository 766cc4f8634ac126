"""Replay a request-length trace against an allocator and say where every slot of memory was."""
