/* torch.c - what torch.save writes: a zip archive (PyTorch 1.6 and later), or the stream of before.
 *
 *   <root>/data.pkl, byteorder, version, data/0, data/1, ...    records of the archive, mostly stored
 *   magic, protocol, system, object, keys (pickles), storages   the stream; see libckpt/codec/torch/read/stream.c
 *
 * Known by content: an archive whose first names are those of such records, or the magic pickle. What the object is,
 * and what its tensors are called, says libckpt/codec/torch/read/graph.h; docs/formats/torch.md has the bytes. */
#include "formats/torch/torch.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/torch/read/file.h"
#include "libckpt/codec/torch/state/groups.h"
#include "libckpt/codec/torch/state/state.h"
#include "libckpt/codec/torch/write/archive_write.h"
#include "libckpt/format/format.h"
#include "libckpt/index/arch.h"

static bool probe(const ckpt_probe *p) { return !p->is_folder && ckpt_torch_probe(p->head, p->n_head); }

/* ---- the row ----------------------------------------------------------------------------------------------------- */

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  (void)p;
  uint32_t file = 0; /* of a source in memory */
  uint64_t size;
  ckpt_torch_graph graph = {.root = NULL};
  ckpt_arena nodes;
  ckpt_status status;
  ckpt_torch_arena_init(&nodes, index);
  if (ckpt_source_root(index->source)[0] != '\0') CKPT_TRY(ckpt_source_add(index->source, name, &file, &size, err));
  CKPT_TRY_GOTO(ckpt_torch_file_read(&graph, index, file, options->stored_names, &nodes, err));
  if (!graph.is_state_dict) { /* such a dict is no object */
    ckpt_object *groups;
    CKPT_TRY_GOTO(ckpt_torch_groups_of(&groups, graph.optimizer, &nodes, err));
    CKPT_TRY_GOTO(ckpt_torch_state_set(index, graph.root, graph.top, groups, err));
  }
  CKPT_TRY_GOTO(ckpt_index_canonical_names(index, options->stored_names, options->like, err));
  CKPT_TRY_GOTO(ckpt_torch_graph_composites(&graph, index, err));
  if (index->objects != NULL) ckpt_arena_adopt(&index->arena, &nodes);
  CKPT_TRY_GOTO(ckpt_index_finish(index, err));
done:
  ckpt_torch_graph_free(&graph);
  ckpt_arena_free(&nodes);
  return status;
}

/* Who lies in whose storage. */
typedef struct sharing {
  const uint32_t *covers; /* ckpt_torch_covers */
  ckpt_torch_view *views; /* of each tensor that another covers */
} sharing;

static void view_of(const void *arg, uint32_t leaf, ckpt_torch_item *item) {
  const sharing *s = arg;
  item->storage = s->covers[leaf];
  item->view = item->storage == leaf ? NULL : &s->views[leaf];
}

/* Tensors that are views of others have no bytes of their own. NULL in *out: there is none. */
static ckpt_status find_views(sharing **out, ckpt_layout *layout, ckpt_error *err) {
  const ckpt_index *index = layout->index;
  const uint32_t *covers;
  *out = NULL;
  CKPT_TRY(ckpt_torch_covers(&covers, index, layout->arena, err));
  if (covers == NULL) return CKPT_OK;
  sharing *s = ckpt_arena_alloc(layout->arena, sizeof *s);
  CKPT_TRY_ALLOC(s, err);
  *s = (sharing){covers, ckpt_arena_array(layout->arena, index->n_tensors, sizeof *s->views)};
  CKPT_TRY_ALLOC(s->views, err);
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    if (covers[i] == i) continue;
    ckpt_torch_view_of(&s->views[i], &index->tensors[i], &index->tensors[covers[i]]);
    CKPT_TRY(ckpt_layout_elsewhere(layout, i, err));
  }
  *out = s;
  return CKPT_OK;
}

static ckpt_status lay(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  (void)options;
  const ckpt_object *root = layout->index->whole;
  ckpt_object *made = NULL;
  sharing *views;
  if (root == NULL) CKPT_TRY(ckpt_torch_make_state_dict(&made, layout->index, layout->arena, err));
  CKPT_TRY(find_views(&views, layout, err));
  CKPT_TRY(ckpt_layout_file_add(layout, NULL, err));
  return ckpt_torch_archive_lay(layout, root == NULL ? made : root, layout->index->n_tensors,
                                views == NULL ? NULL : view_of, views, err);
}

const ckpt_format ckpt_format_torch = {
    .name = "torch",
    .suffixes = ".pt .pth .bin",
    .caps = {.can_write = true,
             .aliases = true,
             .objects = true,
             .unread = true,
             .training_state = true,
             .dtypes = CKPT_TORCH_DTYPES,
             .max_rank = CKPT_MAX_RANK},
    .probe = probe,
    .read = read_index,
    .normalize = ckpt_torch_normalize,
    .layout = lay,
    .is_known = ckpt_torch_state_is_known,
};
