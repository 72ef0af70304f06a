"""Who may do what: tokens, their grants, and credentials that must not be stored."""
