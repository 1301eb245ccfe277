# An interrupted run leaves nothing; one that is killed leaves only temporary files, and can be run again.
set -m # so that background jobs do not ignore SIGINT
python3 - <<'END'
import json, struct
n = 1 << 30
text = json.dumps({"w": {"dtype": "F32", "shape": [n // 4], "data_offsets": [0, n]}}).encode()
text += b" " * (-len(text) % 8)
with open("big.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    file.truncate(8 + len(text) + n)
END
for signal in INT TERM HUP KILL; do
  ckpt convert big.safetensors -o out.safetensors -o folder --receipt folder/r.json &
  while ! ls -A | grep -q 'folder.ckpt-tmp'; do sleep 0.01; done
  kill -$signal $!
  wait $!
  echo $signal $?
  ls -A | sed -E 's/(ckpt-tmp\.).*/\1*/'
done 2>&1 | grep -v Killed
mkdir -p .trash && mv .*.ckpt-tmp.* .trash && rm -rf .trash
ckpt convert $DATA/gpt2-tiny -o out.safetensors -o folder --quiet
ls -A
