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
# A file that differs in one byte of its header is written anew.
"$ckpt" convert "$work/mount/in" -o "$work/mount/renamed" --rename 's/ln_f/ln_g/' --quiet > /dev/null
! filefrag -v "$work/mount/renamed/model.safetensors" | grep -q shared
