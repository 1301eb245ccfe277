# A cast that loses values is refused, and so is one of weights that mean nothing without their scales.
st() { # FILE HEADER PAYLOAD: a safetensors file; the payload with printf's escapes
  n=$(((${#2} + 7) / 8 * 8))
  printf "$(printf '\\%03o\\%03o\\000\\000\\000\\000\\000\\000' $((n % 256)) $((n / 256)))" >$1
  printf "%-${n}s$3" "$2" >>$1
}
try() { ckpt "$@" --quiet || echo "  exit $?" >&2; }

one='\000\000\200\077' # 1 in F32
st big.safetensors '{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"n":{"dtype":"I64","shape":[1],"data_offsets":[12,20]}}' \
  "$one"'\000\044\164\111\000\000\200\377\001\000\000\000\000\000\000\000' # 1, 1000000, -inf; 1
try convert big.safetensors -o x.safetensors --dtype f16
try convert big.safetensors -o x.safetensors --dtype f16 --json
ls x.safetensors 2>/dev/null
try convert big.safetensors -o x.safetensors --dtype f16 --allow-overflow
ckpt cat x.safetensors w
ckpt cat x.safetensors n
try convert big.safetensors -o y.safetensors --dtype bf16
ckpt cat y.safetensors w

st fp8.safetensors '{"plain":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[4,8]},"w_scale_inv":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}' \
  "$one"'\070\070\070\070'"$one"
try convert fp8.safetensors -o z.safetensors --dtype bf16
try convert fp8.safetensors -o z.safetensors --dtype 'plain=bf16'
try convert fp8.safetensors -o as-stored.safetensors
ckpt ls z.safetensors

# An infinity that the target has not is lost, whatever stands in its place.
python3 $DATA/../tools/tiny.py infinite.safetensors 'w F32 2 1,inf'
for dtype in f8_e4m3 f8_e4m3fnuz f8_e8m0; do try convert infinite.safetensors -o i.safetensors --dtype $dtype; done
try convert infinite.safetensors -o i.safetensors --dtype f8_e5m2

# Values that become zero are counted and said; a tensor of which nothing else is left is refused.
lost() { ckpt "$@" 2>&1 | grep "underflow\|ckpt"; }
python3 $DATA/../tools/tiny.py small.safetensors 'a F32 4 1,1e-9,-1e-9,0' 'b F32 3 1,1e-12,2' 'z F32 2 0'
lost convert small.safetensors -o small16.safetensors --dtype f16 --receipt small16.json
grep -o '"name":"[abz]"\|"n_underflow":[0-9]*' small16.json
ckpt convert small.safetensors -o s.safetensors --dtype f16 --json 2>/dev/null | grep -o '"n_underflow".*}\]'
ckpt convert small.safetensors -o s32.safetensors --dtype bf16 --json 2>/dev/null | grep -o '"n_underflow".*\],'
python3 $DATA/../tools/tiny.py gone.safetensors 'a F32 2 1' 'v F32 3 1e-9,0,2e-9'
try convert gone.safetensors -o g.safetensors --dtype f16
lost convert gone.safetensors -o g.safetensors --dtype f16 --allow-overflow

# The config ties the two: what would make them differ is no cast.
mkdir tied && cp $DATA/llama-tiny/tokenizer.json tied
echo '{"model_type": "llama", "tie_word_embeddings": true}' >tied/config.json
st tied/model.safetensors '{"lm_head.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"model.embed_tokens.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]}}' \
  "$one$one"
try convert tied -o t --dtype bf16
try convert tied -o u --dtype 'lm_head*=bf16'
ls -A
