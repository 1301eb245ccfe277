# What scan refuses, verify does not pass without a word: side files beside tensors, and calls of known names alone.
cp -r "$DATA/llama-tiny" model
cp "$DATA/scan/bad/torch.pt" model/training_args.bin
ckpt verify model | grep '^problem\|^warning\|^proven: pickles\|^not proven: pickles'
ckpt verify --headers model > /dev/null && echo 'headers alone: no side file is read'

# A class that nobody knows is said, as in a file of tensors.
printf '\200\002cmine\nArguments\n)\201}X\001\000\000\000aK\001sb.' > model/training_args.bin
ckpt verify model > said && echo "exit $?"
grep '^problem\|^warning\|^proven: pickles\|^not proven: pickles' said
ckpt scan model > /dev/null || echo "scan: exit $?"

# So is one that is no part of the checkpoint, in a folder below it too: whoever loads that folder runs it.
cp "$DATA/scan/good/plain2.pkl" model/training_args.bin
mkdir model/old
cp "$DATA/scan/bad/torch.pt" model/pytorch_model.bin
cp "$DATA/scan/bad/reduce2.pkl" model/old/state.pkl
ckpt verify model --quiet > said || echo "exit $?"
grep '^problem\|^warning\|^proven: pickles' said
rm -r model/old model/pytorch_model.bin
ln -s "$DATA/gpt2-tiny" model/other
ckpt verify model --quiet | grep '^problem\|^proven: pickles\|^not proven: pickles' | sed 's|/.*/other|OTHER|'
rm model/other

# One that is known.
cp "$DATA/scan/good/plain2.pkl" model/training_args.bin
ckpt verify model | grep '^problem\|^warning\|^proven: pickles\|^not proven: pickles'

# Names that are all known, and a call of what a call returned: all three verbs name it.
printf '\200\002}X\001\000\000\000actorch.nn.modules.linear\nIdentity\n)\201}b)Rs.' > data.pkl
python3 - <<'END'
import zipfile
with zipfile.ZipFile("value.pt", "w") as file:
    file.write("data.pkl", "archive/data.pkl")
END
ckpt scan value.pt | grep '^problem'
ckpt verify value.pt | grep '^problem'
ckpt inspect value.pt 2>&1 | grep 'unpickled'
