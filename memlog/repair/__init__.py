"""What becomes of a damaged log: found, told, served as far as it is whole, and mended."""
