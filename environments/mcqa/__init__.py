"""Multiple-choice question answering: name the right option letter in the demanded format."""
