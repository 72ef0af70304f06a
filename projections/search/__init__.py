"""A search: who is asked, how long it waits, and the order of what was found."""
