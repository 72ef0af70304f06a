"""Finding by words: the index that tantivy keeps, and what is newer than it."""
