# The whole help of the command and of one verb with every section.
ckpt help
ckpt --help >help && ckpt -h | cmp - help
ckpt help convert
ckpt --version
