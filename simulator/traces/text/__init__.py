"""The text of a trace file: opened, cut into rows of CSV or JSON, and its fields read exactly."""
