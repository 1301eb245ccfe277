# Config is proven where transformers loaded a model whole, and nowhere else: what it said is in the cases.
python3 "$DATA/../tools/config_search.py" ckpt "$DATA/config_cases.jsonl"
