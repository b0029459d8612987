"""These tests run in a process of their own, with `-p tests.on_second_device`: `tests/test_second_device.py` starts it.

Torch keeps a device until the process ends, and other tests should not see an accelerator.
"""

import sys

collect_ignore_glob = [] if "tests.on_second_device" in sys.modules else ["test_*.py"]
