"""Writes safetensors-verdicts.tsv: small damaged files in hexadecimal and what the reference reader says of each.

Columns: accept or refuse, the file's bytes, the reference's message. Made with safetensors 0.8.0:
    python make_safetensors_verdicts.py
"""
import os
import random
import sys

from safetensors import deserialize

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else here

T = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


def info(dtype='"F32"', shape="[1]", offsets="[0,4]", more=""):
    return '{"dtype":%s,"shape":%s,"data_offsets":%s%s}' % (dtype, shape, offsets, more)


def file(header, payload=b"\1\2\3\4", n=None):
    header = header if isinstance(header, bytes) else header.encode()
    return (len(header) if n is None else n).to_bytes(8, "little") + header + payload


cases = [file('{"a":%s}' % T)]
for text in ["%s", " %s", "\n%s", "\t %s", "%s   ", "%s\n", "%s\0", "%sx", "%s{}", "[%s]", "/**/%s", "\ufeff%s"]:
    cases.append(file(text % ('{"a":%s}' % T)))
for value in ["null", "1", '"x"', "[]", "{}", "true", T[:-1], T + "}", "[" + T + "]"]:
    cases.append(file('{"a":%s}' % value))
for key in ['"\\u0061\\n"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00"', '"\\ud800\\u0041"', '"\\x"', '"\x01"', "a", "1",
            "null", '"\u00e9"', "'a'", '"a""b"', '"a', '"a\\"']:
    cases.append(file("{%s:%s}" % (key, T)))
for raw in [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80"]:
    cases.append(file(b'{"%s":%s}' % (raw, T.encode())))
for dtype in ['"f32"', '"F\\u0033\\u0032"', '"F32 "', '"C128"', '""', "null", "1", '["F32"]', '"I128"', '"F8_E4M3FN"']:
    cases.append(file('{"a":%s}' % info(dtype)))
for shape in ["[]", "[1,1]", "[2]", "[0]", "[-1]", "[-0]", "[1.0]", "[1e0]", "[01]", "[+1]", "[1,]", "[,1]", "[null]", '["1"]', "[[1]]",
              "1", "null", "{}", "[18446744073709551616]", "[18446744073709551615]", "[4294967296,4294967296]",
              "[9223372036854775808,2]", "[1,1,1,1,1,1,1,1]", "[0x1]", "[1 1]"]:
    cases.append(file('{"a":%s}' % info(shape=shape)))
# Extents are multiplied in order: a zero in front of the overflow saves it.
for shape in ["[4611686018427387904,4611686018427387904,0]", "[4611686018427387904,0,4611686018427387904]",
              "[0,4611686018427387904,4611686018427387904]", "[4611686018427387904,0]", "[9223372036854775808,2,0]",
              "[18446744073709551615,1,0]", "[4294967296,2147483648,0]"]:
    cases.append(file('{"a":%s}' % info(shape=shape, offsets="[0,0]"), b""))
for offsets in ["[0]", "[]", "[0,4,4]", "[4,0]", "[1,5]", "[0,3]", "[0,5]", "[0,8]", "[-0,4]", "[0,4.0]", "[0,-4]", '["0",4]', "[0,null]",
                "{}", "null", "[0,18446744073709551615]", "[18446744073709551612,18446744073709551615]",
                "[18446744073709551614,2]", "[0,4e0]", "[0 ,4 ]", "[00,4]"]:
    cases.append(file('{"a":%s}' % info(offsets=offsets)))
for more in [',"x":1', ',"x":{"y":[1,2,{}]}', ',"x":NaN', ',"shape":[1]', ',"dtype":"F32"', ',"data_offsets":[0,4]', ",",
             ',"x"', ',"x":', ',"x":tru', ',"x":"\\u12"', ',"x":1.', ',"x":[1,]', ',"x":1,"x":2', ',"":""', ',"x":-', ',"x":1e5', ',"x":1e999',
             ',"x":[-1e999]', ',"x":0e999', ',"x":1e-999', ',"x":1e308', ',"x":1.8e308', ',"x":1' + "0" * 308, ',"x":1' + "0" * 309]:
    cases.append(file('{"a":%s}' % info(more=more)))
for text in ['{"dtype":"F32","shape":[1]}', '{"dtype":"F32","data_offsets":[0,4]}', '{"shape":[1],"data_offsets":[0,4]}',
             '{"Dtype":"F32","shape":[1],"data_offsets":[0,4]}', '{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}',
             '{ "dtype" : "F32" , "shape" : [ 1 ] , "data_offsets" : [ 0 , 4 ] }']:
    cases.append(file('{"a":%s}' % text))
for metadata in ["{}", "null", "[]", "1", '"x"', '{"k":"v"}', '{"k":1}', '{"k":null}', '{"k":{}}', '{"k":"v","l":"w"}', '{"k"}', '{"k":"v",}',
                 '{1:"v"}', '{"k":"\\u00e9\\n"}']:
    cases.append(file('{"__metadata__":%s,"a":%s}' % (metadata, T)))
    cases.append(file('{"a":%s,"__metadata__":%s}' % (T, metadata)))
cases.append(file('{"__metadata__":{"a":"1"},"__metadata__":{"b":"2"},"a":%s}' % T))
A, B = info(), info(offsets="[4,8]")
for payload in (4, 7, 8, 9, 12):
    for first, second in [(A, B), (B, A), (A, A), (A, info(offsets="[2,6]")), (A, info(offsets="[5,9]")),
                          (info(shape="[0]", offsets="[0,0]"), A), (info(shape="[0]", offsets="[4,4]"), A),
                          (info(shape="[0]", offsets="[2,2]"), A), (info(shape="[0]", offsets="[9,9]"), A)]:
        cases.append(file('{"a":%s,"b":%s}' % (first, second), bytes(range(payload))))
for n in (0, 1, 2, 7, 57, 59, 100, 2**31, 2**32, 2**63, 2**64 - 1, 100000001):
    cases.append(file('{"a":%s}' % T, n=n))
for text in ("", "{}", "{", "}", "[]", "null", '""', "0", " ", "{},", "{ }", "{}{}"):
    for payload in (b"", b"x"):
        cases.append(file(text, payload))
cases += [b"", b"\0" * 7, b"\0" * 8, b"{}"]

# A NUL in a text: it is another text than its beginning.
for text in [info().replace('"%s"' % key, '"%s\\u0000"' % key) for key in ("dtype", "shape", "data_offsets", "F32")] + [
        info(more=',"%s\\u0000z":1' % key) for key in ("dtype", "shape", "data_offsets", "")]:
    cases.append(file('{"a":%s}' % text))
for key in ("__metadata__", "__metadata__\\u0000", "\\u005f_metadata__"):
    for value in ('{"k":"v"}', '{"k":1}'):
        cases.append(file('{"%s":%s,"a":%s}' % (key, value, T)))

rng = random.Random(1)
base = file('{"__metadata__":{"k":"v"},"a":%s,"b\\n":{"dtype":"I16","shape":[2,1],"data_offsets":[4,8]}}  ' % T, bytes(range(8)))
pieces = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"0", b"1", b"9", b"-", b".", b"e", b"\\", b"\\u0000"[:5], b" ", b"\n", b"\0", b"\x80",
          b"null", b"F", b"a"]
for _ in range(500):
    b = bytearray(base)
    for _ in range(rng.choice((1, 1, 1, 2))):
        at = rng.randrange(8, len(b) - 8)
        kind = rng.randrange(4)
        if kind == 0:
            b[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del b[at]
        elif kind == 2:
            b[at:at] = rng.choice(pieces)
        else:
            b[at:at + 1] = rng.choice(pieces)
    b[:8] = (len(b) - 16).to_bytes(8, "little")
    cases.append(bytes(b))

seen = set()
with open(os.path.join(out, "safetensors-verdicts.tsv"), "w") as f:
    for case in cases:
        if case in seen:
            continue
        seen.add(case)
        try:
            deserialize(case)
            verdict, why = "accept", ""
        except Exception as error:
            verdict, why = "refuse", str(error).replace("Error while deserializing: ", "").split(", expected one of")[0]
        f.write("%s\t%s\t%s\n" % (verdict, case.hex(), why.encode("unicode_escape").decode()[:120]))
