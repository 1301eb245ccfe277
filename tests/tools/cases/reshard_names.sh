# names of a wrapped model stay as stored between ZeRO and universal, and are canonical elsewhere; the optimizer goes along
cp -r $DATA/zero/wrapped run
ckpt reshard run -o three --to zero --stage 3 --dp 3 --quiet
ckpt ls three --names stored | cut -d ' ' -f 1
ckpt reshard run -o dcp --to dcp --quiet
ckpt ls dcp --names stored | cut -d ' ' -f 1
ckpt reshard dcp -o back --to zero --stage 1 --quiet
ckpt diff run back --include all --quiet
