#!/bin/bash
# Whole unchanged files share their blocks where the file system can: convert onto a small XFS made for the purpose.
#   reflink.sh CKPT DATA      needs root, a loop device and mkfs.xfs; exits 77 (skipped) where one is missing
set -euo pipefail
ckpt=$1 data=$2
command -v mkfs.xfs > /dev/null && command -v filefrag > /dev/null || { echo "skipped: no mkfs.xfs or filefrag"; exit 77; }
work=$(mktemp -d)
trap 'umount "$work/mount" 2> /dev/null || true; rm -rf "$work"' EXIT
mkdir "$work/mount"
truncate -s 400M "$work/image"
mkfs.xfs -q -m reflink=1 "$work/image"
mount -o loop "$work/image" "$work/mount" 2> /dev/null || { echo "skipped: cannot mount a loop device"; exit 77; }
cp -r "$data/gpt2-tiny" "$work/mount/in"
sync
"$ckpt" convert "$work/mount/in" -o "$work/mount/out" --quiet > "$work/line"
cmp "$work/mount/in/model.safetensors" "$work/mount/out/model.safetensors"
filefrag -v "$work/mount/out/model.safetensors" | grep -q shared || { echo "the weights were copied"; exit 1; }
"$ckpt" hash "$work/mount/out" | cut -d' ' -f1 | cmp - <(cut -d' ' -f1 "$work/line")
# A file that differs in its header or in some tensors shares the rest; what is written over it is its own.
check() {
  filefrag -v "$work/mount/$1/model.safetensors" | grep -q shared || { echo "$1: all was copied"; exit 1; }
  "$ckpt" hash "$work/mount/$1" | cut -d' ' -f1 | cmp - <(cut -d' ' -f1 "$work/line")
}
"$ckpt" convert "$work/mount/in" -o "$work/mount/renamed" --rename 's/ln_f/ln_g/' --quiet > "$work/line"
check renamed
mkdir "$work/lora"
module=base_model.model.transformer.h.0.attn.c_attn
python3 "$data/../tools/tiny.py" "$work/lora/adapter_model.safetensors" "$module.lora_A.weight F32 2,48 0.5,-0.25" \
  "$module.lora_B.weight F32 144,2 0.125,0.5"
echo '{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["c_attn"],"fan_in_fan_out":true}' \
  > "$work/lora/adapter_config.json"
"$ckpt" merge "$work/mount/in" --adapter "$work/lora" --allow-partial -o "$work/mount/merged" --quiet > "$work/line"
check merged
"$ckpt" merge "$data/gpt2-tiny" --adapter "$work/lora" --allow-partial -o "$work/elsewhere" --quiet > /dev/null
cmp "$work/elsewhere/model.safetensors" "$work/mount/merged/model.safetensors"
cmp "$data/gpt2-tiny/model.safetensors" "$work/mount/in/model.safetensors"
# Another size: written anew.
"$ckpt" convert "$work/mount/in" -o "$work/mount/half" --dtype '*.h.0.attn.c_attn.weight=f16' --quiet > /dev/null
! filefrag -v "$work/mount/half/model.safetensors" | grep -q shared
