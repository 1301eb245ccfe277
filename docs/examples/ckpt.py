"""ckpt.py - a checkpoint of any format that libckpt reads, as numpy arrays; nothing is imported, unpickled or run.

    import ckpt
    state = ckpt.load("model/")                 # {"model.embed_tokens.weight": array, ...}
    bits = ckpt.load("model/", bits=True)       # as stored, see below

numpy has no bf16 and no 8-, 6- or 4-bit floats. They become float32, which holds each of their values exactly; with
bits=True they become uint16 (bf16) or uint8 (8 bits) of the stored bits, and 6 and 4 bits are refused: they are packed.
"""
import ctypes as c
import os

import numpy as np

NATIVE = dict(bool="?", u8="u1", u16="u2", u32="u4", u64="u8", i8="i1", i16="i2", i32="i4", i64="i8", f64="f8",
              f32="f4", f16="f2", c64="c8", c128="c16")  # names of libckpt and numpy


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("file", c.c_char * 512), ("tensor", c.c_char * 256), ("message", c.c_char * 1024)]


class Tensor(c.Structure):  # ckpt_tensor, as far as it is used here
    _fields_ = [("name", c.c_char_p), ("aliases", c.POINTER(c.c_char_p)), ("shape", c.POINTER(c.c_uint64)),
                ("n_elements", c.c_uint64), ("n_bytes", c.c_uint64), ("extents", c.c_void_p), ("n_extents", c.c_uint32),
                ("storage", c.c_uint32), ("rank", c.c_uint8), ("dtype", c.c_uint8), ("role", c.c_uint8)]


lib = c.CDLL(os.environ.get("CKPT_LIBRARY", "libckpt.so.0"))
lib.ckpt_open.argtypes = [c.POINTER(c.c_void_p), c.c_char_p, c.c_void_p, c.POINTER(Error)]
lib.ckpt_read.argtypes = [c.c_void_p, c.POINTER(Tensor), c.c_void_p, c.c_int, c.c_void_p, c.c_size_t, c.POINTER(Error)]
lib.ckpt_index_count.argtypes, lib.ckpt_index_count.restype = [c.c_void_p], c.c_size_t
lib.ckpt_index_at.argtypes, lib.ckpt_index_at.restype = [c.c_void_p, c.c_size_t], c.POINTER(Tensor)
lib.ckpt_index_free.argtypes, lib.ckpt_index_free.restype = [c.c_void_p], None
lib.ckpt_dtype_name.argtypes, lib.ckpt_dtype_name.restype = [c.c_int], c.c_char_p
lib.ckpt_dtype_parse.argtypes = [c.c_char_p]
lib.ckpt_error_text.argtypes, lib.ckpt_error_text.restype = [c.POINTER(Error), c.c_char_p, c.c_size_t], c.c_char_p


def check(status, err):
    if status != 0:
        text = c.create_string_buffer(2048)  # the call's result points into it
        raise OSError(lib.ckpt_error_text(err, text, len(text)).decode())


def read(index, tensor, bits):
    t, err = tensor.contents, Error()
    name, as_dtype = lib.ckpt_dtype_name(t.dtype).decode(), 0  # 0: as stored
    if name not in NATIVE and not bits:
        as_dtype = lib.ckpt_dtype_parse(b"f32")
    kind = NATIVE.get(name, "f4" if not bits else "u2" if name == "bf16" else "u1")
    array = np.empty(t.shape[:t.rank] if t.rank else (), np.dtype(kind))
    check(lib.ckpt_read(index, tensor, None, as_dtype, array.ctypes.data, array.nbytes, err), err)
    return array


def load(path, bits=False):
    """Every tensor of the checkpoint by name; other names of the same tensor share its array."""
    index, err, state = c.c_void_p(), Error(), {}
    check(lib.ckpt_open(index, os.fsencode(path), None, err), err)
    try:
        for i in range(lib.ckpt_index_count(index)):
            tensor = lib.ckpt_index_at(index, i)
            array = state[tensor.contents.name.decode()] = read(index, tensor, bits)
            aliases, j = tensor.contents.aliases, 0  # NULL, or names up to a NULL
            while aliases and aliases[j]:
                state[aliases[j].decode()], j = array, j + 1
    finally:
        lib.ckpt_index_free(index)
    return state
