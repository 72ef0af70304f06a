"""One file on the disk: LMDB, its tables, and how far either can be trusted."""
