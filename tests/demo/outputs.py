"""What ONNX Runtime computes with models from the same inputs: exit 1 where one gives other outputs than the first.

    outputs.py MODEL MODEL...

Without onnxruntime it says so and ends well: `./dev interop` has it.
"""
import importlib.util
import sys

if importlib.util.find_spec("onnxruntime") is None or importlib.util.find_spec("numpy") is None:
    print("onnxruntime is not installed here (./dev interop runs this with it)")
    sys.exit(0)

import numpy as np
import onnxruntime


def outputs(path):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feeds = {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) else 3 for d in i.shape]
        feeds[i.name] = np.arange(np.prod(shape)).reshape(shape).astype("i8" if "int64" in i.type else "f4")
    return session.run(None, feeds)


first = outputs(sys.argv[1])
for path in sys.argv[2:]:
    same = all(a.tobytes() == b.tobytes() for a, b in zip(first, outputs(path), strict=True))
    print("%s: %s" % (path, "the outputs of %s, bit for bit" % sys.argv[1] if same else "OTHER OUTPUTS"))
    if not same:
        sys.exit(1)
