"""The search service: runs studies as ordinary jobs and finds the best trial."""

import os

# Its matrices are small: threads of the linear algebra cost more time than they save. This is read
# when numpy is loaded, so it stands before everything that does.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
