"""Closed-book questions: better say that one does not know than guess."""
