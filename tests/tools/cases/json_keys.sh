# The keys of --json that scripts rely on, for each status of the verbs that prove.
cat > keys.py <<'END'
import json, sys
def shape(value):
    if isinstance(value, dict):
        return "{" + ", ".join(key if shape(one) == "" else key + ": " + shape(one) for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + (shape(value[0]) or type(value[0]).__name__ if value else "") + "]"
    return ""
result = json.loads(sys.stdin.read())  # one object and no more
print(result["status"], shape(result))
END
try() {
  echo "\$ ckpt $*"
  code=0
  ckpt "$@" --json > said 2> /dev/null || code=$?
  python3 keys.py < said
  echo "exit $code"
}
tiny() { python3 "$DATA/../tools/tiny.py" "$@"; }
tiny a.safetensors 'w F32 2 1,2' 'v F32 1 1' 'x F32 1 1' 'only F32 1 1'
tiny b.safetensors 'w F32 2 1,3' 'v F16 1 1' 'x F32 2 1,1' 'other F32 1 1'
tiny nan.safetensors 'w F32 1 nan' 'z F32 2,2 0,0,0,0'
head -c 20 a.safetensors > cut.safetensors
try verify a.safetensors
try verify nan.safetensors
try verify missing
try hash a.safetensors
try hash a.safetensors --tensors
try hash a.safetensors cut.safetensors
try hash missing
try hash --files a.safetensors
ckpt hash a.safetensors > list 2> /dev/null
try hash --check list
sed 's/a.safetensors/b.safetensors/' list > wrong
try hash --check wrong
try diff a.safetensors a.safetensors
try diff a.safetensors b.safetensors
try diff a.safetensors missing
ckpt diff a.safetensors cut.safetensors --json 2> /dev/null
ckpt verify a.safetensors --cast f32 --json 2> /dev/null || echo "exit $?"
