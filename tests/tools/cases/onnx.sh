# A file of data beside a model: what stays of the replaced one is said, and a receipt of links tells their model's size.
ckpt convert "$DATA/onnx/dynamo.onnx" -o m.onnx --external-data --quiet
ckpt convert "$DATA/onnx/dynamo.onnx" -o m.onnx --force 2>&1 | grep -o 'm.onnx.data.*'
ls -A
ckpt convert "$DATA/onnx/dynamo.onnx" -o other.onnx 2>&1 | grep -o 'other.onnx.data.*'

check() { ckpt verify "$1" --receipt "$2" | grep -v 'not proven'; }
mkdir model
ckpt convert "$DATA/onnx/dynamo.onnx" -o model/w.safetensors --quiet
ckpt convert model/w.safetensors --graph "$DATA/onnx/dynamo.onnx" -o links.onnx --link --receipt links.json --quiet
check links.onnx links.json
sed -i 's/\("n_tensors":[0-9]*,"n_bytes":\)[0-9]*/\17/' links.json
check links.onnx links.json | sed 's/replay makes [0-9]*/replay makes N/'

# Beside a copy of the weights: the receipt's inputs do not lie there.
mkdir copy
cp -r links.onnx model copy
check copy/links.onnx links.json
