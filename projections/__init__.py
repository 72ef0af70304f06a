"""What is derived from the log, and how it is searched."""

import os

# Read when numpy is imported. OpenBLAS begins a thread for each processor then; where the system grants fewer, it sends
# this process SIGINT, as if somebody had typed Ctrl-C. What is multiplied here is small: more threads take longer.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
