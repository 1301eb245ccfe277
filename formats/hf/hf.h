/* hf.h - the parts of the Hugging Face folder format: hf.c (what is in a folder, the row), shards.c (the index
 * file), optimizer.c and order.c (a trainer's optimizer beside it), layout.c (writing). Not for other formats.
 */
#ifndef CKPT_FORMATS_HF_HF_H
#define CKPT_FORMATS_HF_HF_H

#include "libckpt/format/format.h"

#define CKPT_HF_INDEX_SUFFIX ".safetensors.index.json"
#define CKPT_HF_TORCH "pytorch_model.bin" /* older weights, where there is no safetensors file */
#define CKPT_HF_TORCH_INDEX "pytorch_model.bin.index.json"
#define CKPT_HF_ADAPTER \
  "adapter_model.bin" /* a PEFT adapter's, beside its adapter_config.json, where there is neither */
#define CKPT_HF_FSDP "pytorch_model_fsdp.bin" /* what accelerate gathers of FSDP, where there is neither */

/* Adds a file of the source to the index, safetensors or what torch.save writes, as its content says. As
 * ckpt_safetensors_read and ckpt_torch_file_read. */
ckpt_status ckpt_hf_read_weights_file(ckpt_index *index, uint32_t file, ckpt_error *err);

/* Reads the shards that an index file below the index's root names, and checks both against each other. EFORMAT,
 * ENOTFOUND (missing shards), ELIMIT, EIO, ENOMEM; problem notes where they disagree without doubt about the data. */
ckpt_status ckpt_hf_read_shards(ckpt_index *index, const char *index_name, ckpt_error *err);

/* Adds the states of the optimizer among the side files, under their parameters' names, and the Trainer's step. Where
 * it is not certain which state is which parameter's, it adds none. A note says how it knows, or why it does not. Names
 * are canonical, the index is not finished. EIO, ENOMEM, ELIMIT; as ckpt_index_add. */
ckpt_status ckpt_hf_read_optimizer(ckpt_index *index, ckpt_error *err);

/* As ckpt_format's slots. */
ckpt_status ckpt_hf_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err);
ckpt_status ckpt_hf_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err); /* as above */

void ckpt_hf_owns(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours); /* as above */

#endif
