"""Where old samples and old lines are in the object store: Parquet files below `cold/`.

Only this service reads, writes and deletes them (`drivetrain_schemas.access.STORE_ACCESS`), each
written once. Which files there are is in the service's own tables: a listing is never needed.
"""

from datetime import timedelta

# A process that lost its lock without knowing it may still write what it intended for so long.
LATE = timedelta(hours=1)
COLD = "cold/"
SERIES = f"{COLD}series/"
LOGS = f"{COLD}logs/"
