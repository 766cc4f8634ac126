"""A run in a folder: written whole, read back, and checked before it is believed."""
