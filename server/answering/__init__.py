"""What an answer holds, how it is cut to size, and where the next page begins."""
