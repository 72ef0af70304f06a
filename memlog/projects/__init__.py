"""The lives of projects: where they stand, how each is opened, and what it executes and reads."""
