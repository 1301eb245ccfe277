/* print.c - `.metadata`: the pickle that torch.distributed.checkpoint reads first, printed as it goes along.
 *
 * It is meant for torch 2.4 to 2.15 (the tests load it in 2.4, 2.9 and 2.15): classes by NEWOBJ and BUILD, properties
 * of five parts (newer releases add strides, which older ones refuse), no storage_meta (a path of this machine and a
 * random id). What repeats is kept in the pickle's memo when it is first met. */
#include <stdio.h>
#include <string.h>

#include "formats/dcp/write.h"
#include "libckpt/codec/pickle/write.h"
#include "libckpt/codec/torch/read/graph.h"

#define METADATA "torch.distributed.checkpoint.metadata"

/* What is kept: globals, texts (which have no module), and what is made of them. */
typedef enum kept {
  KEPT_TENSOR_STORAGE,
  KEPT_PROPERTIES,
  KEPT_CHUNK,
  KEPT_INDEX,
  KEPT_INFO,
  KEPT_BYTES_STORAGE,
  KEPT_SIZE,
  KEPT_TEXT_PROPERTIES,
  KEPT_TEXT_SIZE,
  KEPT_TEXT_CHUNKS,
  KEPT_TEXT_OFFSETS,
  KEPT_TEXT_SIZES,
  KEPT_TEXT_FQN,
  KEPT_TEXT_INDEX,
  KEPT_TEXT_OFFSET,
  KEPT_TEXT_PATH,
  KEPT_TEXT_LENGTH,
  KEPT_LAYOUT,
  KEPT_MEMORY_FORMAT,
  KEPT_TEXT_TRANSFORMS,
  KEPT_TRANSFORMS,
  N_KEPT
} kept;

static const struct {
  const char *module, *text;
} named[N_KEPT] = {
    [KEPT_TENSOR_STORAGE] = {METADATA, "TensorStorageMetadata"},
    [KEPT_PROPERTIES] = {METADATA, "TensorProperties"},
    [KEPT_CHUNK] = {METADATA, "ChunkStorageMetadata"},
    [KEPT_INDEX] = {METADATA, "MetadataIndex"},
    [KEPT_INFO] = {"torch.distributed.checkpoint.filesystem", "_StorageInfo"},
    [KEPT_BYTES_STORAGE] = {METADATA, "BytesStorageMetadata"},
    [KEPT_SIZE] = {"torch", "Size"},
    [KEPT_TEXT_PROPERTIES] = {NULL, "properties"},
    [KEPT_TEXT_SIZE] = {NULL, "size"},
    [KEPT_TEXT_CHUNKS] = {NULL, "chunks"},
    [KEPT_TEXT_OFFSETS] = {NULL, "offsets"},
    [KEPT_TEXT_SIZES] = {NULL, "sizes"},
    [KEPT_TEXT_FQN] = {NULL, "fqn"},
    [KEPT_TEXT_INDEX] = {NULL, "index"},
    [KEPT_TEXT_OFFSET] = {NULL, "offset"},
    [KEPT_TEXT_PATH] = {NULL, "relative_path"},
    [KEPT_TEXT_LENGTH] = {NULL, "length"},
    [KEPT_LAYOUT] = {"torch.serialization", "_get_layout"},
    [KEPT_MEMORY_FORMAT] = {METADATA, "_MEM_FORMAT_ENCODING"},
    [KEPT_TEXT_TRANSFORMS] = {NULL, "transform_descriptors"},
    [KEPT_TRANSFORMS] = {NULL, "stream.zstd/1"},
};

/* A pickle with what it keeps. Numbers in the memo are one more than they are; 0: not met yet. */
typedef struct printer {
  const ckpt_layout *layout;
  const ckpt_dcp_folder *folder;
  ckpt_pickle_writer w;
  uint32_t memo[N_KEPT], dtypes[CKPT_N_DTYPES];
  uint32_t file, file_memo; /* the file whose name was printed last, plus one, and its number */
} printer;

static bool recall(printer *p, uint32_t number) {
  if (number != 0) ckpt_pickle_recall(&p->w, number - 1);
  return number != 0;
}

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

/* The callable above with one argument is called. */
static void call(printer *p) {
  ckpt_pickle_put_tuple(&p->w, 1);
  ckpt_pickle_put_reduce(&p->w);
}

static void put(printer *p, kept what) {
  if (recall(p, p->memo[what])) return;
  const char *text = named[what].text;
  if (named[what].module == NULL)
    ckpt_pickle_put_text(&p->w, text, strlen(text));
  else
    ckpt_pickle_put_global(&p->w, named[what].module, text);
  if (what == KEPT_LAYOUT) {
    ckpt_pickle_put_text(&p->w, "torch.strided", 13);
    call(p);
  }
  if (what == KEPT_MEMORY_FORMAT) {
    ckpt_pickle_put_int(&p->w, 0); /* contiguous */
    call(p);
  }
  if (what == KEPT_TRANSFORMS) ckpt_pickle_put_tuple(&p->w, 1);
  p->memo[what] = ckpt_pickle_keep(&p->w) + 1;
}

static void put_dtype(printer *p, ckpt_dtype dtype) {
  if (recall(p, p->dtypes[dtype])) return;
  const char *name, *class;
  (void)ckpt_torch_type(dtype, &name, &class);
  ckpt_pickle_put_global(&p->w, "torch", name);
  p->dtypes[dtype] = ckpt_pickle_keep(&p->w) + 1;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static void put_text(printer *p, const char *text) { ckpt_pickle_put_text(&p->w, text, strlen(text)); }

/* An instance and the dict of its attributes, which follow; `end` closes both. */
static void begin(printer *p, kept class) {
  put(p, class);
  ckpt_pickle_put_empty_tuple(&p->w);
  ckpt_pickle_put_newobj(&p->w);
  ckpt_pickle_put_empty_dict(&p->w);
  ckpt_pickle_put_mark(&p->w);
}

static void end(printer *p) {
  ckpt_pickle_put_setitems(&p->w);
  ckpt_pickle_put_build(&p->w);
}

static void put_size(printer *p, const uint64_t *axes, uint32_t rank) {
  put(p, KEPT_SIZE);
  ckpt_pickle_put_u64s(&p->w, axes, rank);
  call(p);
}

static void put_properties(printer *p, ckpt_dtype dtype) {
  put(p, KEPT_PROPERTIES);
  ckpt_pickle_put_empty_tuple(&p->w);
  ckpt_pickle_put_newobj(&p->w);
  ckpt_pickle_put_mark(&p->w);
  put_dtype(p, dtype);
  put(p, KEPT_LAYOUT);
  ckpt_pickle_put_bool(&p->w, false); /* requires_grad */
  put(p, KEPT_MEMORY_FORMAT);
  ckpt_pickle_put_bool(&p->w, false); /* pin_memory */
  ckpt_pickle_put_tuple(&p->w, 5);
  ckpt_pickle_put_build(&p->w);
}

static void put_chunk(printer *p, const ckpt_dcp_chunk *chunk) {
  uint64_t starts[CKPT_MAX_RANK], counts[CKPT_MAX_RANK];
  uint32_t rank = ckpt_dcp_box(p->layout, chunk, starts, counts);
  begin(p, KEPT_CHUNK);
  put(p, KEPT_TEXT_OFFSETS);
  put_size(p, starts, rank);
  put(p, KEPT_TEXT_SIZES);
  put_size(p, counts, rank);
  end(p);
}

/* ---- the dicts --------------------------------------------------------------------------------------------------- */

/* BytesStorageMetadata() */
static void put_item(printer *p) {
  put(p, KEPT_BYTES_STORAGE);
  ckpt_pickle_put_empty_tuple(&p->w);
  ckpt_pickle_put_newobj(&p->w);
}

/* TensorStorageMetadata of the tensor at a place in order of names */
static void put_tensor(printer *p, uint32_t place) {
  const ckpt_dcp_folder *f = p->folder;
  const ckpt_tensor *tensor = &p->layout->index->tensors[p->layout->index->by_name[place]];
  uint64_t shape[CKPT_MAX_RANK];
  (void)ckpt_tensor_units(tensor, shape);
  begin(p, KEPT_TENSOR_STORAGE);
  put(p, KEPT_TEXT_PROPERTIES);
  put_properties(p, (ckpt_dtype)tensor->dtype);
  put(p, KEPT_TEXT_SIZE);
  put_size(p, shape, tensor->rank);
  put(p, KEPT_TEXT_CHUNKS);
  ckpt_pickle_put_empty_list(&p->w);
  for (uint32_t k = f->first[place]; k < f->first[place + 1]; k++) {
    put_chunk(p, &f->chunks[k]);
    ckpt_pickle_put_append(&p->w);
  }
  end(p);
}

/* A path of one key is the name once more, which the memo has. */
static void put_path(printer *p, const ckpt_object *path, uint32_t memo) {
  uint64_t n = path == NULL ? 1 : path->n;
  if (n > 3) ckpt_pickle_put_mark(&p->w);
  for (uint64_t k = 0; k < n; k++)
    if (path != NULL && path->items[k]->kind == CKPT_OBJECT_INT)
      ckpt_pickle_put_int(&p->w, path->items[k]->integer);
    else if (n == 1)
      ckpt_pickle_recall(&p->w, memo);
    else
      ckpt_pickle_put_text(&p->w, path->items[k]->text, path->items[k]->n);
  ckpt_pickle_put_tuple(&p->w, n);
}

/* Place of a chunk's tensor in order of names: the last whose chunks do not begin behind it. */
static uint32_t place_of(const printer *p, uint32_t chunk) {
  uint32_t low = 0;
  for (uint32_t high = p->layout->index->n_tensors; high - low > 1;) {
    uint32_t middle = low + (high - low) / 2;
    if (p->folder->first[middle] <= chunk)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* The name of a file; file_memo is kept for what follows in the same file. */
static void put_file(printer *p, uint32_t file) {
  if (file + 1 == p->file) {
    ckpt_pickle_recall(&p->w, p->file_memo);
    return;
  }
  put_text(p, p->layout->files[file].name);
  p->file_memo = ckpt_pickle_keep(&p->w);
  p->file = file + 1;
}

/* The _StorageInfo of [offset, offset + n_bytes) of a file, behind its index. */
static void put_info(printer *p, uint32_t file, uint64_t offset, uint64_t n_bytes, bool is_zstd) {
  begin(p, KEPT_INFO);
  put(p, KEPT_TEXT_PATH);
  put_file(p, file);
  put(p, KEPT_TEXT_OFFSET);
  ckpt_pickle_put_u64(&p->w, offset);
  put(p, KEPT_TEXT_LENGTH);
  ckpt_pickle_put_u64(&p->w, n_bytes);
  if (is_zstd) {
    put(p, KEPT_TEXT_TRANSFORMS);
    put(p, KEPT_TRANSFORMS);
  }
  end(p);
  ckpt_pickle_put_setitem(&p->w);
}

/* Of a chunk of the tensor at a place, under one of its names. */
static void put_place(printer *p, uint32_t number, uint32_t place, uint32_t memo) {
  const ckpt_dcp_folder *f = p->folder;
  const ckpt_dcp_chunk *chunk = &f->chunks[number];
  const ckpt_segment *segments = p->layout->files[chunk->file].segments;
  const ckpt_segment *head = &segments[chunk->segment - 1], *tail = &segments[chunk->segment + 1];
  uint64_t starts[CKPT_MAX_RANK], counts[CKPT_MAX_RANK];
  uint32_t rank = ckpt_dcp_box(p->layout, chunk, starts, counts);
  begin(p, KEPT_INDEX);
  put(p, KEPT_TEXT_FQN);
  ckpt_pickle_recall(&p->w, memo);
  put(p, KEPT_TEXT_INDEX);
  ckpt_pickle_put_u64(&p->w, number - f->first[place]);
  put(p, KEPT_TEXT_OFFSET);
  put_size(p, starts, rank);
  end(p);
  put_info(p, chunk->file, head->offset, tail->offset + tail->n_bytes - head->offset, p->folder->is_zstd);
}

/* Of an item: its index has no offset. */
static void put_item_place(printer *p, uint32_t number, const ckpt_object *value, uint32_t memo) {
  const ckpt_archive *carried = ckpt_dcp_carried(p->layout->index, value);
  const ckpt_segment *segment = &p->layout->files[0].segments[number];
  begin(p, KEPT_INDEX);
  put(p, KEPT_TEXT_FQN);
  ckpt_pickle_recall(&p->w, memo);
  put(p, KEPT_TEXT_INDEX);
  ckpt_pickle_put_none(&p->w);
  end(p);
  put_info(p, 0, segment->offset, segment->n_bytes, p->folder->is_zstd || (carried != NULL && carried->is_zstd));
}

/* {MetadataIndex: _StorageInfo}, as items and chunks lie in the files, so that each file's name is printed once; then
 * the chunks under the other names of their tensors. */
static void put_places(printer *p) {
  const ckpt_dcp_folder *f = p->folder;
  ckpt_pickle_put_empty_dict(&p->w);
  for (uint32_t k = 0, i = 0; k < f->n_names && i < f->n_items; k++) {
    const ckpt_object *value = ckpt_dcp_name_at(p->layout, f, k).value;
    if (value != NULL) put_item_place(p, i++, value, f->memo[k]);
  }
  for (uint32_t i = 0; i < f->n_chunks; i++) {
    uint32_t place = place_of(p, f->by_file[i]);
    put_place(p, f->by_file[i], place, f->memo[f->first_name[place]]);
  }
  for (uint32_t k = 0; k < f->n_names; k++) {
    ckpt_dcp_named item = ckpt_dcp_name_at(p->layout, f, k);
    if (item.value != NULL || f->first_name[item.place] == k) continue;
    for (uint32_t i = f->first[item.place]; i < f->first[item.place + 1]; i++) put_place(p, i, item.place, f->memo[k]);
  }
}

/* {name: TensorStorageMetadata or BytesStorageMetadata} */
static void put_names(printer *p) {
  ckpt_pickle_put_empty_dict(&p->w);
  for (uint32_t k = 0; k < p->folder->n_names; k++) {
    ckpt_dcp_named item = ckpt_dcp_name_at(p->layout, p->folder, k);
    char text[CKPT_DCP_NAME_BYTES + 1]; /* ckpt_dcp_layout has seen that it fits */
    if (item.path == NULL)
      put_text(p, item.text);
    else
      ckpt_pickle_put_text(&p->w, text, ckpt_dcp_path_text(text, item.path));
    p->folder->memo[k] = ckpt_pickle_keep(&p->w);
    if (item.value == NULL)
      put_tensor(p, item.place);
    else
      put_item(p);
    ckpt_pickle_put_setitem(&p->w);
  }
}

/* {name: path} */
static void put_paths(printer *p) {
  ckpt_pickle_put_empty_dict(&p->w);
  for (uint32_t k = 0; k < p->folder->n_names; k++) {
    ckpt_pickle_recall(&p->w, p->folder->memo[k]);
    put_path(p, ckpt_dcp_name_at(p->layout, p->folder, k).path, p->folder->memo[k]);
    ckpt_pickle_put_setitem(&p->w);
  }
}

void ckpt_dcp_print_metadata(const ckpt_layout *layout, const void *folder, ckpt_stream *out) {
  printer p = {.layout = layout, .folder = folder, .w = ckpt_pickle_start(out)};
  ckpt_pickle_put_global(&p.w, METADATA, "Metadata");
  ckpt_pickle_put_empty_tuple(&p.w);
  ckpt_pickle_put_newobj(&p.w);
  ckpt_pickle_put_empty_dict(&p.w);
  ckpt_pickle_put_mark(&p.w);
  put_text(&p, "state_dict_metadata");
  put_names(&p);
  put_text(&p, "planner_data");
  put_paths(&p);
  put_text(&p, "storage_data");
  put_places(&p);
  put_text(&p, "version");
  put_text(&p, "1.0.0");
  end(&p);
  ckpt_pickle_stop(&p.w);
}
