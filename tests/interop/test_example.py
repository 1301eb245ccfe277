"""docs/examples/ckpt.py where numpy is sure to be there: runs tests/install/ckpt_py.py, which compares every array."""
import os
import runpy
import sys

tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(tests, "../docs/examples"))
sys.dont_write_bytecode = True
sys.argv = ["ckpt_py.py", os.path.join(tests, "data")]
runpy.run_path(os.path.join(tests, "install/ckpt_py.py"), run_name="__main__")
