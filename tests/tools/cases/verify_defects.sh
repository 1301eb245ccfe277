# Verify names every problem, those too that keep a checkpoint from being opened: each shard, each tensor of --like.
cut() { # FILE...: all but its last five bytes
  truncate -s -5 "$@"
}
say() { # FOLDER [OPTION...]
  echo "\$ verify $*"
  ckpt verify "$@"
  echo "exit $?"
}
cp -rL "$DATA/llama-tiny" hf
cut hf/model-0000[12]*
say hf --headers
rm hf/model-00003*
echo '{' >hf/config.json
say hf
# Other verbs fail with one of them.
ckpt ls hf 2>&1
rm hf/*.index.json
say hf
# A shard that cannot be opened is one problem.
cp -rL "$DATA/llama-tiny" linked
ln -sf model-00002-of-00003.safetensors linked/model-00002-of-00003.safetensors
say linked
cp -rL "$DATA/gguf/split" gguf
rm gguf/*-00002-of-*
truncate -s -200 gguf/*-00003-of-*
say gguf
cp -rL "$DATA/dcp/fsdp4" dcp
cut dcp/__0_0.distcp
truncate -s 20000 dcp/__1_0.distcp
ckpt verify dcp --headers | sed "s/tensor '.*//" | sort -u
cp -rL "$DATA/dcpv2/fsdp" dcpv2
cut dcpv2/model_0.pt dcpv2/optimizer_1.pt
say dcpv2
# --like: every tensor that is missing, extra or of another shape; what is there is looked at all the same.
TINY="python3 $DATA/../tools/tiny.py"
$TINY like.safetensors 'a F32 1 1' 'b F32 1 1' 'c F32 2 1,2' 'd F32 1 1'
$TINY it.safetensors 'a F32 1 nan' 'c F32 1 1' 'e F32 1 1'
say it.safetensors --like like.safetensors
