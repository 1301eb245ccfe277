"""Writes the seeds of tests/fuzz/corpus/{json,safetensors,hf_index}: small inputs that reach different code.

python make_fuzz_corpus.py
"""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "fuzz", "corpus")


def write(target, name, content):
    os.makedirs(os.path.join(out, target), exist_ok=True)
    with open(os.path.join(out, target, name), "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())


write("json", "tokens", r'{"a":{"b":[1,-2.5e+3,true,false,null]},"c":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}')
write("json", "python", '{"x": NaN, "y": [Infinity, -Infinity], "a": {}}')
write("json", "nested", "[" * 40 + "{}" + "]" * 40)
write("json", "multibyte", '"\u00e9\u20ac\U0001F600"')
write("json", "indented", '{\n  "a": {\n    "b": 1\n  },\n  "dtype": "float32"\n}\n')
for name in ("every-dtype", "names", "shapes", "pad-3", "nothing"):
    with open(os.path.join(here, "safetensors", name + ".safetensors"), "rb") as f:
        write("safetensors", name, f.read())
for name in ("noted-hole", "noted-trailing", "overlap", "size-wrong", "name-twice"):
    with open(os.path.join(here, "..", "golden-errors", "safetensors", name + ".safetensors"), "rb") as f:
        write("safetensors", name, f.read())
write("hf_index", "good", '{"metadata":{"total_size":2},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}')
write("hf_index", "missing", '{"weight_map":{"x":"a.safetensors","y":"c.safetensors"}}')
write("hf_index", "other", '{"weight_map":{"y":"a.safetensors"},"metadata":null,"more":[{}]}')
write("hf_index", "escape", '{"weight_map":{"x":"../../etc/hostname","y":"./b.safetensors"}}')
