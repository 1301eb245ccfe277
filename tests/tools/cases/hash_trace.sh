# A trace never takes the place of a file that is there, and a failed run leaves none.
cp -r $DATA/gpt2-tiny m && chmod -R u+w m
sum=$(sha256sum < m/model.safetensors)
ckpt hash m/model.safetensors --trace m/model.safetensors 2>&1
echo $?
[ "$sum" = "$(sha256sum < m/model.safetensors)" ] && echo untouched
ckpt hash m m --trace t.jsonl 2>&1
echo $?
ckpt convert m -o out.safetensors --trace out.safetensors 2>&1
echo $?
ckpt convert m -o out.safetensors --dtype f8_e4m3 --match '*wpe*' --trace t.jsonl --quiet
tail -n 1 t.jsonl | grep -c planned_peak
grep -c '"at_ms":[0-9.]*' t.jsonl
ls
# --check reads a pipe too, and goes on after a line that cannot be opened.
mkdir two && cp -r m two/a && cp -r m two/b
{ echo "ckpt1:$(printf '%064d' 0)  two"; ckpt hash m; } | ckpt hash --check - 2>&1
echo $?
ckpt hash m | ckpt hash --check /dev/stdin
