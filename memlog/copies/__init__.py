"""Ways out of a memory and into it: backups, histories as lines, other servers' files."""
