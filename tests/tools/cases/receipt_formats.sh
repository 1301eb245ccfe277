# Receipts of formats that write names in a structure of their own, with states, objects, ties and side files.
check() { ckpt verify "$1" --receipt "$2" | sed 's/^\(not \)\{0,1\}proven: side files.*/side files: \1proven/'; }
ckpt reshard "$DATA/dcp/fsdp4" -o ranks --to dcp --world 3 --receipt ranks.json --quiet
check ranks ranks.json
ckpt consolidate ranks -o all.pt --receipt all.json --quiet
check all.pt all.json
ckpt convert all.pt -o again.pt --receipt again.json --quiet
check again.pt again.json
ckpt reshard "$DATA/gpt2-tiny" -o tied --to dcp --world 2 --receipt tied.json --quiet
check tied tied.json
ckpt consolidate tied -o folder --receipt folder.json --quiet
check folder folder.json
ckpt hash "$DATA/gpt2-tiny" tied folder | sed "s,$DATA/,,"

ckpt reshard "$DATA/dcp/fsdp4" -o packed --to dcp --world 3 --zstd 3 --receipt packed.json --quiet
check packed packed.json

# The dtype in config.json follows what is written, wherever the config came from; side files go all the way.
ckpt consolidate tied -o half --dtype f16 --quiet
grep dtype half/config.json
ls -A tied folder
