"""The same decisions on device memory."""
