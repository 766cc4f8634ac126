"""Answers to questions of size and choice, each from many runs."""
