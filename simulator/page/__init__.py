"""A run as one page of HTML to scrub through."""
