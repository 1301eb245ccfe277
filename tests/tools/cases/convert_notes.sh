# What else stands in the folder, what is left out and what a reader will miss is said; --quiet says nothing.
mkdir both && cp $DATA/gpt2-tiny/* both && printf 'PK\003\004' >both/pytorch_model.bin
closing() { sed -E 's/ in [0-9].*peak memory .*/ in TIME, RATE, PEAK/'; }
ckpt convert both -o one.safetensors 2>&1 >/dev/null | closing
ckpt convert both -o folder 2>&1 >/dev/null | closing
ls folder
ckpt convert one.safetensors -o bare 2>&1 >/dev/null | closing
ckpt convert one.safetensors -o bare2 --quiet 2>&1 >/dev/null

# optimizer states of a flat file
python3 - <<'END'
import json, struct
names = ["w"] + ["optimizer.state.w." + s for s in ("exp_avg", "exp_avg_sq", "step")]
header = {n: {"dtype": "F32", "shape": [4], "data_offsets": [16 * i, 16 * i + 16]} for i, n in enumerate(names)}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open("state.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes(64))
END
ckpt convert state.safetensors -o model.safetensors 2>&1 | closing
ckpt convert state.safetensors -o all.safetensors --include all 2>&1 | closing
ckpt convert state.safetensors -o optimizer.safetensors --include optimizer 2>&1 | closing
ckpt split state.safetensors -o parts --shard-size 20 2>&1 | closing
ckpt ls parts --include all
