# What differs and by how much: every list of the result, bits against values, tolerances, exact integers.
tiny() { python3 "$DATA/../tools/tiny.py" "$@"; }
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
tiny a.safetensors 'same F32 2 1,2' 'zero F32 2 0,1' 'nan F32 2 0x0000c07f00000040' 'long I64 2 9007199254740992,5' \
  'unsigned U64 1 18446744073709551615' 'matrix F32 2,3 1' 'only.a F32 3 0' 'shape F16 2,3 1' 'dtype F32 4 1,2,3.25' \
  'infinite F32 3 inf,1,-inf' 'complex C64 2 1,2,3,4' 'bool BOOL 2 1,0' 'empty F32 0,3 0' 'scalar F64 - 3' \
  'int I32 2 7'
tiny b.safetensors 'same F32 2 1,2' 'zero F32 2 -0.0,1' 'nan F32 2 0x0100c07f00000040' 'long I64 2 9007199254740993,5' \
  'unsigned U64 1 18446744073709551614' 'matrix F32 2,3 1,1,1,1,1.5,1' 'only.b F32 3 0' 'shape F16 3,2 1' \
  'dtype F16 4 1,2,3.25' 'infinite F32 3 inf,nan,inf' 'complex C64 2 1,2,6,8' 'bool BOOL 2 2,0' 'empty F32 0,3 0' \
  'scalar F64 - 3.5' 'int I64 2 7'
try diff a.safetensors b.safetensors
try diff a.safetensors b.safetensors --atol 0.5
try diff a.safetensors b.safetensors --rtol 0.5
try diff a.safetensors b.safetensors --cast f32
try diff a.safetensors a.safetensors
tiny large.safetensors 'large F32 3 1,1e6,-1e7'
try diff large.safetensors large.safetensors --cast f16
try diff large.safetensors large.safetensors --cast f16 --allow-overflow
ckpt diff a.safetensors b.safetensors --json --atol 0.5 | python3 -c '
import json, sys
for key, value in json.load(sys.stdin).items():
  print(key, value)'
ckpt diff a.safetensors b.safetensors --json > /dev/null; echo "exit $?"
ckpt diff a.safetensors a.safetensors --json
try diff a.safetensors nowhere.safetensors
try diff a.safetensors b.safetensors --plan=rows
