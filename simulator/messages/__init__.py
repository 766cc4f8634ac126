"""What is shown to people: words, results that show themselves, and progress."""
