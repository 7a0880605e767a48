import sys

import habits

if __name__ == "__main__":
    print(sys.argv, __file__, __spec__.name, __package__, habits.square(3))
