"""Finding by meaning: vectors of all rows, in memory and on the disk."""
