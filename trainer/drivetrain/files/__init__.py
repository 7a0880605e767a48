"""The files of a job: its working directory, saved and put back over all attempts."""
