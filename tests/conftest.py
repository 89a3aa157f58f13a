"""One thread in each test process, torch's and those of the commands that tests start: the tests themselves run side by side."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
