"""The shim of a pod: `python -m drivetrain.pod --directory DIR`.

It starts the ranks, forwards their output, passes on stop notices and enforces their deadline, and
writes `exit.json` when the last process of the pod is gone. Any program can be a rank.
"""
