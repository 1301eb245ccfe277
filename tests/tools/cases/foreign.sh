# What is no checkpoint that this version reads is called by its name; links that cannot be followed, and why.
try() {
  echo "\$ ckpt $*"
  ckpt "$@" 2>&1
  echo "exit $?"
}
mkdir torch gguf many unpacked empty others
printf 'PK\003\004\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\026\000\000\000pytorch_model/data.pkl\200\002}q.' > torch/pytorch_model.bin
printf 'GGUF\003\000\000\000' > gguf/model.gguf
printf '\200\002\212\012\154\374\234\106\371\040\152\250\120\031.' > old.pt
printf '\200\004}.' > list.pkl
printf '\010\010\022\007pytorch\032\0052.1.0' > graph.onnx
printf 'PK\003\004' > zip
printf '\211HDF\015\012\032\012' > keras.h5
printf '\037\213\010' > model.tar.gz
for i in 1 2 3 4 5; do cp torch/pytorch_model.bin many/pytorch_model-$i.bin; done
echo '{"model_type":"gpt2"}' > torch/config.json
echo text > others/a.txt
for path in torch gguf many empty others old.pt list.pkl graph.onnx zip keras.h5 model.tar.gz torch/pytorch_model.bin \
  gguf/model.gguf torch/config.json; do
  try ls $path
done
try ls gguf --json

# Links out of the folder, into nothing and to themselves; another file does not take their place.
mkdir out nothing itself stands sub
cp "$DATA/gpt2-tiny/model.safetensors" real.safetensors
ln -s ../real.safetensors out/model.safetensors
ln -s nowhere nothing/model.safetensors
ln -s model.safetensors itself/model.safetensors
cp real.safetensors stands/adapter.safetensors
ln -s ../real.safetensors stands/model.safetensors
ln -s ../out sub/checkpoint.pt
mkdir other && ln -s ../out other/checkpoint
for path in out nothing itself stands sub other; do try ls $path; done

# Only what can be a repository is offered for download.
mkdir local
for path in org/name org/name@rev org/x.safetensors org/x.gguf local/name ./org/name a/b/c .org/name org/na:me; do
  try ls $path
done
