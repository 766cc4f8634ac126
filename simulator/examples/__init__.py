"""Runs that teach: a figure of the PagedAttention paper, and the lessons."""
