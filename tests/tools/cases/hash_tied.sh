# A tied model has another digest where no config.json says which of the two names counts: that is said, with the remedy.
gpt2="$DATA/gpt2-tiny"
ckpt convert "$gpt2" -o d -o m.bin 2>&1 >sums | grep -v 'peak memory'
wanted=$(sed 's/ .*//;q' sums)
ckpt hash m.bin 2>&1
ckpt hash m.bin --like d 2>&1
sed 's/d$/m.bin/;q' sums >list
ckpt hash --check list 2>&1
ckpt verify m.bin --digest "$wanted" | grep -v proven
ckpt verify m.bin --like d --digest "$wanted" | grep -v proven
# Nothing is to be said of an untied model, of one with a config, of names as they are stored, of a digest that is right.
ckpt hash m.bin --names stored 2>&1 >sum
ckpt hash "$gpt2" 2>&1 >sum
ckpt verify m.bin --digest "$(ckpt hash m.bin --quiet | cut -d' ' -f1)" | grep -c hashed
ckpt convert "$DATA/llama-tiny" -o l.bin 2>&1 >sum | grep -v 'peak memory'
