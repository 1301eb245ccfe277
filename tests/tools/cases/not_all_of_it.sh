# What looked whole and was not: each of these was exit 0, or a misleading message.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" >said 2>&1
  status=$?
  grep -v 'peak memory' said
  echo "exit $status"
}
tiny() { python3 "$DATA/../tools/tiny.py" "$@"; }
echo '# FP8 of ComfyUI and of TensorRT-LLM is not cast without its scale'
tiny fp8.safetensors 'x.weight F8_E4M3 2,2 0x38383838' 'x.scale_weight F32 - 2' 'y.scale F32 2 1'
tiny trt.safetensors 'x.weight I8 2,2 0x01020304' 'x.weights_scaling_factor F32 - 2'
try convert fp8.safetensors -o no.safetensors --dtype f32
try convert trt.safetensors -o no.safetensors --dtype bf16
echo "# optimizer states below optim.state are none of the model's"
cp -r "$DATA/dcp/mcore" "$DATA/llama-tiny" .
try convert mcore -o model.safetensors --dtype bf16
try ls model.safetensors
try convert mcore -o all.pt --dtype bf16
ckpt ls all.pt --include all | awk '{print $1, $2}'
echo '# a file and a folder of one name'
try convert llama-tiny -o out -o out/tokenizer.json/
echo '# the name that the folder of --like lacks is the tied head'
mkdir like
tiny like2.safetensors 'model.embeddings.weight F32 3,2 1,2,3' 'odd_head.weight F32 3,2 1,2,3'
tiny like/model.safetensors 'model.embeddings.weight F32 3,2 1,2,3'
tiny other.safetensors 'model.embeddings.weight F32 3,2 1,2,3' 'odd_head.weight F32 3,2 1,2,4'
echo '{"model_type": "strange", "tie_word_embeddings": true}' >like/config.json
try convert like2.safetensors --like like -o tied
try diff tied like
try convert other.safetensors --like like -o never
echo '# two names of one tensor of GPT-NeoX'
mkdir neox old
tiny old/model.safetensors 'gpt_neox.embed_in.weight F32 3,2 1,2,3'
tiny neox/model.safetensors 'gpt_neox.embed_in.weight F32 3,2 1,2,3' 'lm_head.weight F32 3,2 1,2,3'
echo '{"model_type": "gpt_neox", "tie_word_embeddings": true}' | tee old/config.json >neox/config.json
try hash neox old
try diff neox old
try convert neox -o neox.pt
try consolidate neox.pt --like old -o again
ckpt ls again
echo "# experts' files that do not say whose they are"
cp -r "$DATA/zero/moe-stage0" moe
cat >open.py <<'END'
import sys, zipfile
for path in sys.argv[1:]:
    with zipfile.ZipFile(path) as old:
        records = [(name, old.read(name)) for name in old.namelist()]
    with zipfile.ZipFile(path, "w") as new:
        for name, content in records:
            new.writestr("archive" + name[name.index("/"):], content)
END
ckpt verify moe | grep -c order
python3 open.py moe/*/*.pt
ckpt verify moe | grep order
echo '# JSON holds an object whole, or not at all'
cp "$DATA/../golden-errors/torch/noted-object-deep.pt" deep.pt
try cat deep.pt w
try cat deep.pt w --json
