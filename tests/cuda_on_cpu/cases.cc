// cases.cc - the cases: shapes around the sizes of warps and blocks, NaN and infinity, rows that see nothing.
#include "cases.h"

extern "C" {
#include "libckpt/base/dtype.h"
}

namespace cuda_cases {

namespace {

const float kOdd[] = {NAN, INFINITY, -INFINITY, 0.0F, -0.0F, 1e-40F, -88.0F, 120.0F, -200.0F, 3e38F};

void MakeOdd(Floats &x, size_t n) {
  for (size_t i = 0; i < n && i < x.size() && i < 10; i++) x[i] = kOdd[i];
}

Floats Elements(Machine &m, size_t n, bool adds) {
  Floats a = Normal(n, 1, 3), out;
  MakeOdd(a, n);
  const Floats before = Normal(n, 2);
  ckpt_activation_args args = {};
  args.a = m.Put(a), args.b = m.Put(Normal(n, 3)), args.d_out = m.Put(Normal(n, 4));
  args.adds_a = args.adds_b = adds;
  for (ckpt_tape_kernel_id id : {CKPT_KERNEL_silu_mul, CKPT_KERNEL_gelu, CKPT_KERNEL_gelu_exact}) {
    args.out = m.Zeros(n), args.d_a = m.Put(before), args.d_b = m.Put(before);
    m.Run(id, &args, n);
    m.Run((ckpt_tape_kernel_id)(id + 1), &args, n);
    for (const void *at : {(const void *)args.out, (const void *)args.d_a, (const void *)args.d_b})
      m.Get(out, static_cast<const float *>(at), n);
  }
  ckpt_dropout_args drop = {};
  float *dropped = m.Put(before);
  drop.x = args.b, drop.y = dropped, drop.n_columns = n, drop.length = 1, drop.adds = adds;
  drop.dropout = {5, 1.25, 0x33333333, 1, 2};
  m.Run(CKPT_KERNEL_dropout, &drop, 1);
  m.Get(out, dropped, n);
  args.d_b = nullptr;  // nobody wants it
  m.Run(CKPT_KERNEL_silu_mul_backward, &args, n);
  float *sum = m.Put(before);
  const ckpt_add_args add = {args.a, sum};
  m.Run(CKPT_KERNEL_add, &add, n);
  m.Get(out, sum, n);
  return out;
}

struct NormCase {
  size_t rows, width;
  bool is_rms, has_residual, adds;
};

Floats Norms(Machine &m, const NormCase &c) {
  const size_t n = c.rows * c.width;
  Floats x = Normal(n, 1), out;
  if (c.width == 300) MakeOdd(x, 2);
  const Floats before = Normal(n, 6);
  ckpt_norm_args a = {};
  a.x = m.Put(x), a.weight = m.Put(Normal(c.width, 2)), a.bias = m.Put(Normal(c.width, 3)), a.y = m.Zeros(n);
  a.mean = m.Zeros(c.rows), a.inverse = m.Zeros(c.rows), a.n_columns = c.width, a.epsilon = 1e-5;
  if (c.has_residual) a.residual = m.Put(Normal(n, 4)), a.sum = m.Zeros(n);
  m.Run(c.is_rms ? CKPT_KERNEL_rmsnorm : CKPT_KERNEL_layernorm, &a, c.rows);
  ckpt_norm_backward_args b = {};
  b.x = c.has_residual ? a.sum : a.x, b.weight = a.weight, b.inverse = a.inverse, b.mean = c.is_rms ? nullptr : a.mean;
  b.d_y = m.Put(Normal(n, 5)), b.d_x = m.Put(before), b.d_weight = m.Put(Normal(c.width, 7));
  b.d_bias = c.is_rms ? nullptr : m.Put(Normal(c.width, 8));
  b.n_tokens = c.rows, b.n_columns = c.width, b.adds_x = c.adds, b.adds_residual = !c.adds;
  if (c.has_residual) b.d_sum = m.Put(Normal(n, 9)), b.d_residual = m.Put(before);
  m.Run(c.is_rms ? CKPT_KERNEL_rmsnorm_weights : CKPT_KERNEL_layernorm_weights, &b, c.width);
  m.Run(c.is_rms ? CKPT_KERNEL_rmsnorm_backward : CKPT_KERNEL_layernorm_backward, &b, c.rows);
  auto get = [&](const void *at, size_t count) {
    if (at != nullptr) m.Get(out, static_cast<const float *>(at), count);
  };
  get(a.sum, n), get(a.y, n), get(a.mean, c.rows), get(a.inverse, c.rows), get(b.d_x, n), get(b.d_residual, n);
  get(b.d_weight, c.width), get(b.d_bias, c.width);
  return out;
}

Floats EmbeddingAndBias(Machine &m, size_t rows, size_t width, bool has_positions) {
  const size_t vocabulary = 5, n = rows * width;
  Floats out;
  ckpt_embedding_args e = {};
  float *table = m.Put(Normal(vocabulary * width, 1)), *gradient = m.Put(Normal(vocabulary * width, 2));
  float *made = m.Zeros(n);
  e.out = made, e.table = table, e.ids = m.Put(Below(rows, (int32_t)vocabulary, 3));
  e.position_table = has_positions ? m.Put(Normal(rows * width, 4)) : nullptr;
  e.positions = has_positions ? m.Put(Below(rows, (int32_t)rows, 5)) : nullptr;
  e.n_tokens = rows, e.n_columns = width, e.length = 4;
  m.Run(CKPT_KERNEL_embedding, &e, rows);
  m.Get(out, made, n);
  e.out = m.Put(Normal(n, 6)), e.table = gradient;
  m.Run(CKPT_KERNEL_embedding_backward, &e, width);
  m.Get(out, gradient, vocabulary * width);
  e.has_padding = true, e.padding = 2;
  m.Run(CKPT_KERNEL_embedding_backward, &e, width);
  m.Get(out, gradient, vocabulary * width);
  e.has_padding = false;
  float *places = m.Zeros(std::max(rows, (size_t)4) * width);
  e.ids = nullptr, e.table = places;
  m.Run(CKPT_KERNEL_embedding_backward, &e, width);
  m.Get(out, places, std::max(rows, (size_t)4) * width);
  float *y = m.Put(Normal(rows * (width + 3), 7)), *bias = m.Put(Normal(width, 8));
  const ckpt_bias_args b = {y, bias, rows, width, width + 3};
  m.Run(CKPT_KERNEL_bias, &b, rows);
  m.Run(CKPT_KERNEL_bias_backward, &b, width);
  m.Get(out, y, rows * (width + 3));
  m.Get(out, bias, width);
  return out;
}

Floats Rope(Machine &m, size_t rows, bool has_positions) {
  const size_t heads = 3, width = 16, n = rows * heads * width;
  Floats frequencies = {1, 0.5F, 0.3F, 0.1F, 0.03F, 0.01F, 1e-3F, 1e-4F}, out;
  float *table = m.Zeros(rows * width), *y = m.Zeros(n), *back = m.Put(Normal(n, 2));
  const ckpt_rope_table_args t = {table, m.Put(frequencies), has_positions ? m.Put(Below(rows, 131072, 1)) : nullptr,
                                  width, rows};
  m.Run(CKPT_KERNEL_rope_table, &t, rows);
  ckpt_rope_args r = {m.Put(Normal(n, 3)), table, y, heads, width, false, false};
  m.Run(CKPT_KERNEL_rope, &r, rows);
  r.is_inverse = r.adds = true, r.y = back;
  m.Run(CKPT_KERNEL_rope, &r, rows);
  m.Get(out, table, rows * width);
  m.Get(out, y, n);
  m.Get(out, back, n);
  return out;
}

Floats Loss(Machine &m, size_t rows, size_t width) {
  const size_t n = rows * width;
  Floats logits = Normal(n, 1, 4), out;
  std::vector<int32_t> targets = Below(rows, (int32_t)width, 2);
  if (rows > 3) targets[3] = -100;
  if (width == 300 && rows > 2) logits[5] = NAN, logits[301] = INFINITY, logits[602] = -INFINITY;
  for (const double smoothing : {0.0, 0.1})
    for (bool has_gradient : {false, true}) {
      float *x = m.Put(logits), *p = m.Put(Floats(rows, 7));
      const ckpt_loss_args l = {x, p, m.Put(targets), width, 0.25, has_gradient, smoothing};
      m.Run(CKPT_KERNEL_loss, &l, rows);
      m.Get(out, x, n);
      m.Get(out, p, rows);
    }
  return out;
}

Floats Optimizer(Machine &m, size_t n) {
  Floats gradients = Normal(n, 1), averages = Normal(n, 3), out;
  if (n > 100) gradients[7] = INFINITY, gradients[9] = 1e-30F, gradients[11] = 0, averages[11] = 1e-38F;
  const size_t n_blocks = (n + CKPT_SQUARE_BLOCK - 1) / CKPT_SQUARE_BLOCK;
  Floats squares = Normal(n, 4);
  for (float &x : squares) x *= x;
  float *w = m.Put(Normal(n, 2)), *average = m.Put(averages), *average_sq = m.Put(squares);
  const ckpt_adamw_args a = {w,   average, average_sq, m.Put(gradients), 1 - 1e-4, 0.1, 1e-3, 0.999, 1e-3 / 0.7,
                             0.4, 1e-8,    0.37};
  m.Run(CKPT_KERNEL_adamw, &a, n);
  double *sums = m.Put(std::vector<double>(n_blocks, 0));
  const ckpt_square_sum_args s = {m.Put(Normal(n, 5)), sums, n};
  m.Run(CKPT_KERNEL_square_sum, &s, n_blocks);
  m.Get(out, w, n);
  m.Get(out, average, n);
  m.Get(out, average_sq, n);
  m.Get(out, sums, n_blocks);
  return out;
}

// One attention call: shapes, and which tokens are hidden how.
struct AttentionCase {
  size_t rows, length, heads, kv_heads, width, window;
  bool has_documents, has_mask, adds, is_packed;
  double dropout = 0;
  bool is_odd = false;
};

Floats Attention(Machine &m, const AttentionCase &c) {
  const size_t tokens = c.rows * c.length, q_width = c.heads * c.width, kv_width = c.kv_heads * c.width;
  const size_t stride = q_width + 2 * kv_width;
  std::vector<int32_t> documents(tokens);
  std::vector<uint8_t> mask(tokens, 1);
  for (size_t t = 0; t < tokens; t++) documents[t] = (int32_t)(t % c.length / 5);
  for (size_t t = 0; t < std::min(c.length, (size_t)3); t++) mask[t] = 0;
  ckpt_attention_args a = {};
  Floats out;
  Floats odd = Normal(tokens * stride, 1);
  for (size_t i = 0; c.is_odd && i < 10; i++) odd[i * odd.size() / 10 + i * 7] = kOdd[i];
  float *values = m.Put(odd), *gradients = m.Put(Normal(tokens * stride, 2));
  a.q = values, a.k = values + q_width, a.v = values + q_width + kv_width;
  a.d_q = gradients, a.d_k = gradients + q_width, a.d_v = gradients + q_width + kv_width;
  a.q_stride = a.k_stride = a.v_stride = stride, a.o_stride = q_width;
  if (!c.is_packed) {
    a.q = m.Put(Normal(tokens * q_width, 3)), a.k = m.Put(Normal(tokens * kv_width, 4));
    a.v = m.Put(Normal(tokens * kv_width, 5)), a.d_q = m.Put(Normal(tokens * q_width, 6));
    a.d_k = m.Put(Normal(tokens * kv_width, 7)), a.d_v = m.Put(Normal(tokens * kv_width, 8));
    a.q_stride = q_width, a.k_stride = a.v_stride = kv_width;
  }
  a.o = m.Zeros(tokens * q_width), a.log_sum = m.Zeros(tokens * c.heads), a.d_o = m.Put(Normal(tokens * q_width, 9));
  a.deltas = m.Put(Floats(tokens * c.heads, NAN));
  a.documents = c.has_documents ? m.Put(documents) : nullptr, a.mask = c.has_mask ? m.Put(mask) : nullptr;
  a.n_rows = c.rows, a.length = c.length, a.n_heads = c.heads, a.n_kv_heads = c.kv_heads;
  a.head_width = c.width, a.window = c.window, a.scale = 0.3, a.adds_q = a.adds_k = a.adds_v = c.adds;
  a.dropout = {11, 1 / (1 - c.dropout), (uint32_t)(c.dropout * 4294967296.0), 2, 5};
  const size_t n_blocks = (c.length + CKPT_ATTENTION_BLOCK - 1) / CKPT_ATTENTION_BLOCK;
  m.Run(CKPT_KERNEL_attention, &a, c.rows * c.heads * n_blocks);
  m.Run(CKPT_KERNEL_attention_backward, &a, c.rows * c.kv_heads);
  m.Get(out, static_cast<const float *>(a.o), tokens * q_width);
  m.Get(out, static_cast<const float *>(a.log_sum), tokens * c.heads);
  if (c.is_packed) {
    m.Get(out, gradients, tokens * stride);
    return out;
  }
  m.Get(out, static_cast<const float *>(a.d_q), tokens * q_width);
  m.Get(out, static_cast<const float *>(a.d_k), tokens * kv_width);
  m.Get(out, static_cast<const float *>(a.d_v), tokens * kv_width);
  return out;
}

// Blocks of any bytes: infinite and NaN scales too.
Floats Blocks(Machine &m, ckpt_dtype dtype) {
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  const size_t n_blocks = 150, n = n_blocks * row->block_elements;
  std::mt19937 engine((uint32_t)dtype);
  std::vector<uint8_t> bytes(n_blocks * row->block_bytes);
  for (uint8_t &byte : bytes) byte = (uint8_t)engine();
  Floats out;
  for (int i = 0; i < 2; i++) {  // a grid is brought to the device once
    float *values = m.Zeros(n);
    EXPECT_TRUE(m.device()->table->dequantize(m.device(), dtype, values, m.Put(bytes), n));
    m.Get(out, values, n);
  }
  EXPECT_FALSE(m.device()->table->dequantize(m.device(), CKPT_BF16, nullptr, nullptr, 0));
  return out;
}

void AddRows(std::vector<Case> &all) {
  for (size_t width : {1, 15, 16, 17, 64, 300})
    for (int flags = 0; flags < 4; flags++) {
      const NormCase c = {(size_t)(width == 64   ? 19
                                   : width == 17 ? 75
                                                 : 5),
                          width, (flags & 1) != 0, (flags & 2) != 0, width % 2 == 0};
      all.push_back({"Norm" + std::to_string(width) + "x" + std::to_string(flags),
                     [c](Machine &m) { return Norms(m, c); }, width == 17});
    }
  for (size_t width : {1, 7, 64, 300})
    for (size_t rows : {1, 9, 20, 300}) {
      const std::string name = std::to_string(rows) + "x" + std::to_string(width);
      all.push_back({"EmbeddingAndBias" + name, [=](Machine &m) { return EmbeddingAndBias(m, rows, width, rows != 9); },
                     rows == 300 && width == 64});
      if (rows < 300)
        all.push_back({"Loss" + name, [=](Machine &m) { return Loss(m, rows, width); }, rows == 9 && width == 300});
    }
  all.push_back({"LossOfParts", [](Machine &m) { return Loss(m, 2, 3 * 2048 + 21); }, true});
}

}  // namespace

std::vector<Case> All() {
  std::vector<Case> all;
  for (size_t n : {1, 31, 129, 700})
    for (bool adds : {false, true})
      all.push_back(
          {"Elements" + std::to_string(n) + (adds ? "Added" : ""), [=](Machine &m) { return Elements(m, n, adds); }});
  AddRows(all);
  for (size_t rows : {1, 9})
    for (bool has_positions : {false, true})
      all.push_back({"Rope" + std::to_string(rows) + (has_positions ? "Positions" : ""),
                     [=](Machine &m) { return Rope(m, rows, has_positions); }});
  for (size_t n : {1, 777, 3 * 4096 + 5})
    all.push_back({"Optimizer" + std::to_string(n), [=](Machine &m) { return Optimizer(m, n); }});
#define CKPT_READ(dtype, name, grid) \
  all.push_back({"Blocks_" #name, [](Machine &m) { return Blocks(m, CKPT_##dtype); }});
#include "kernels/ref/quant/read.def"
#undef CKPT_READ
  const AttentionCase attention[] = {{1, 1, 1, 1, 8, 0, false, false, false, false},
                                     {2, 70, 2, 1, 16, 0, false, true, true, false},
                                     {1, 67, 2, 2, 33, 0, true, false, false, false, 0.3},
                                     {1, 68, 4, 2, 20, 9, false, false, true, true},
                                     {1, 64, 1, 1, 64, 64, true, true, false, true, 0.5},
                                     {2, 66, 2, 1, 256, 40, true, true, false, false},
                                     {1, 63, 2, 1, 4, 0, false, false, true, false},
                                     {1, 65, 3, 1, 5, 0, true, false, false, true},
                                     {1, 130, 2, 1, 64, 0, false, false, true, true},
                                     {1, 130, 2, 1, 80, 70, false, true, false, false, 0.2},
                                     {1, 130, 2, 2, 128, 64, false, false, true, false},
                                     {1, 130, 1, 1, 256, 100, false, false, true, true, 0.1},
                                     {1, 129, 1, 1, 63, 1, false, false, false, false},
                                     {1, 65, 3, 1, 130, 0, false, false, false, true},
                                     {1, 130, 2, 1, 66, 0, true, true, true, true, 0, true},
                                     {1, 130, 2, 2, 64, 0, false, false, false, true, 0, true}};
  for (size_t i = 0; i < sizeof attention / sizeof *attention; i++) {
    const AttentionCase c = attention[i];
    all.push_back({"Attention" + std::to_string(i), [c](Machine &m) { return Attention(m, c); }, i == 1});
  }
  all.push_back({"AttentionThatSeesNothing", [](Machine &m) {
                   const AttentionCase c = {1, 3, 2, 1, 4, 0, false, true, false, false};
                   return Attention(m, c);
                 }});
  return all;
}

}  // namespace cuda_cases
