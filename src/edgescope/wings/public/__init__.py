"""Published figures of edge boards, and a result beside them."""
