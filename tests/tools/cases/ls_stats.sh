# Statistics of every dtype: columns, JSON, special values, the same for any threads and memory.
tiny() { python3 "$DATA/../tools/tiny.py" "$@"; }
ckpt ls "$DATA/safetensors/every-dtype.safetensors" --stats
ckpt ls "$DATA/safetensors/shapes.safetensors" --stats
tiny x.safetensors 'special F32 2,3 nan,inf,-inf,0,-0.0,3' 'none F16 2 nan' 'bool BOOL 4 1,0,1,1' 'long I64 2 -5,3' \
  'complex C64 2 3,4,0,0' 'scalar F64 - -2.5' 'huge F64 2 1e200,-1e200'
ckpt ls x.safetensors --stats
ckpt ls x.safetensors --stats --json | python3 -c '
import json, sys
for one in json.load(sys.stdin)["tensors"]:
  print({key: one[key] for key in ("name", "min", "max", "mean", "std", "nan", "inf", "zeros")})'
python3 - <<'END'
import json, struct
values = [((i * 2654435761) % 1000003) / 7.0 - 5000 for i in range(300000)]
header = json.dumps({"w": {"dtype": "F64", "shape": [1000, 300], "data_offsets": [0, 2400000]}}).encode()
open("big.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + struct.pack("<300000d", *values))
END
for run in '--threads 1' '--threads 2' '--threads 3 --memory 8M'; do
  ckpt ls big.safetensors --stats --json $run | cksum
done | uniq -c
ckpt ls big.safetensors --stats --json | python3 -c '
import json, statistics, sys
values = [((i * 2654435761) % 1000003) / 7.0 - 5000 for i in range(300000)]
one = json.load(sys.stdin)["tensors"][0]
close = lambda a, b: abs(a - b) <= 1e-9 * abs(b)
print(one["min"] == min(values), one["max"] == max(values), close(one["mean"], statistics.fmean(values)),
      close(one["std"], statistics.pstdev(values)))'
ckpt ls x.safetensors --stats --match 'b*' --plan=rows
ckpt ls x.safetensors --stats --match nothing
