# A receipt's inputs are looked for from the current folder, then beside the receipt; when they are nowhere, it is said.
mkdir work kept && cp "$DATA/gpt2-tiny/model.safetensors" work/in.safetensors
(cd work && ckpt convert in.safetensors -o out.safetensors --receipt r.json --quiet)
(cd work && ckpt verify out.safetensors --receipt r.json | tail -n 1)
ckpt verify work/out.safetensors --receipt work/r.json | tail -n 1
cp work/r.json kept/r.json
ckpt verify work/out.safetensors --receipt kept/r.json 2>&1 | sed "s|$PWD|HERE|"
cp work/in.safetensors kept/ && ckpt verify work/out.safetensors --receipt kept/r.json | tail -n 1
# The command line says where an input lies now; what it says must be about one, and the values are compared as ever.
rm kept/in.safetensors && mv work/in.safetensors away=it.safetensors
ckpt verify work/out.safetensors --receipt kept/r.json --input in.safetensors=away=it.safetensors | tail -n 1
for input in in.safetensors=nowhere.safetensors other=away=it.safetensors in.safetensors= nothing; do
  ckpt verify work/out.safetensors --receipt kept/r.json --input $input 2>&1
  echo "exit $?"
done
ckpt verify work/out.safetensors --input in.safetensors=x 2>&1 || echo "exit $?"
python3 "$DATA/../tools/tiny.py" other.safetensors 'w F32 1 1'
ckpt verify work/out.safetensors --receipt kept/r.json --input in.safetensors=other.safetensors | head -n 2
ckpt verify work/out.safetensors --receipt kept/r.json --input in.safetensors=a --input in.safetensors=b 2>&1 || echo "exit $?"
mv away=it.safetensors work/in.safetensors
# Among several outputs the receipt's folder tells, or the content and the name.
mkdir two && ckpt convert "$DATA/gpt2-tiny" -o two/a -o two/b.safetensors --receipt two/r.json --quiet
mv two there && (cd there && ckpt verify a --receipt r.json 2>&1 | tail -n 1)
mv there/a there/c && (cd there && ckpt verify c --receipt r.json 2>&1 | sed "s|$PWD|HERE|")
(cp work/in.safetensors there && cd there && ckpt convert in.safetensors -o d -o e.safetensors --receipt s.json --quiet)
ckpt verify there/e.safetensors --receipt there/s.json | tail -n 1
# Another version is a note, another verb a refusal, another decision a problem.
sed 's/"version":"/"version":"9/; s/"from":"f32"/"from":"f16"/' work/r.json > work/forged.json
ckpt verify work/out.safetensors --receipt work/forged.json 2>&1 | grep -v proven | sed 's/ [0-9.]*$/ V/; s/version [0-9.]*,/version V,/' | head -n 3
sed 's/"verb":"convert"/"verb":"merge"/' work/r.json > work/forged.json
ckpt verify work/out.safetensors --receipt work/forged.json 2>&1
echo "exit $?"
