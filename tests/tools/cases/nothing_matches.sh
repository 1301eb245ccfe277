# Every option of every verb that names tensors or keys: a value that matches nothing is exit 1, and says so.
python3 "$DATA/../tools/nothing_matches.py" "$DATA"
