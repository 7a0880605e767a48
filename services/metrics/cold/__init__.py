"""Where old samples and old lines are in the object store: Parquet files below `cold/`.

Only this service reads, writes and deletes them (`drivetrain_schemas.access.STORE_ACCESS`), each
written once. Which files there are is in the service's own tables: a listing is never needed.
"""

COLD = "cold/"
SERIES = f"{COLD}series/"
LOGS = f"{COLD}logs/"
