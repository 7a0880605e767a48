import os
import sys

print(sys.argv, __spec__.name, __package__, os.path.samefile(sys.path[0], os.getcwd()))
raise SystemExit("a message")
