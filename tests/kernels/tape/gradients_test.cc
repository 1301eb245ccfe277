// Backward of every kernel of the tape, in f64, against finite differences of its forward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

extern "C" {
#include "kernels/ref/tape/tape_kernels.h"
}

namespace {

using Doubles = std::vector<double>;

void Launch(ckpt_tape_kernel_id id, const void *args, size_t n) { ckpt_tape_kernels_ref_f64.run[id](args, 0, n); }

Doubles Normal(size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  Doubles out(n);
  for (double &x : out) x = normal(engine);
  return out;
}

// The sum of outputs, each times its weight, is differentiated by every element of every input. `backward` gets those
// weights as the outputs' gradient and fills gradients, one for each input.
void ExpectGradients(
    const char *what, std::vector<Doubles> inputs, const std::function<Doubles(const std::vector<Doubles> &)> &forward,
    const std::function<void(const std::vector<Doubles> &, const Doubles &, std::vector<Doubles> *)> &backward) {
  const Doubles weights = Normal(forward(inputs).size(), 99);
  auto total = [&] {
    const Doubles out = forward(inputs);
    double sum = 0;
    for (size_t i = 0; i < out.size(); i++) sum += out[i] * weights[i];
    return sum;
  };
  std::vector<Doubles> gradients;
  for (const Doubles &input : inputs) gradients.emplace_back(input.size(), 0.0);
  backward(inputs, weights, &gradients);
  const double step = 1e-5;
  for (size_t i = 0; i < inputs.size(); i++)
    for (size_t j = 0; j < inputs[i].size(); j++) {
      const double kept = inputs[i][j];
      inputs[i][j] = kept + step;
      const double above = total();
      inputs[i][j] = kept - step;
      const double below = total();
      inputs[i][j] = kept;
      const double expected = (above - below) / (2 * step);
      EXPECT_NEAR(gradients[i][j], expected, 1e-7 * std::max(1.0, std::fabs(expected)))
          << what << ": input " << i << ", element " << j;
    }
}

TEST(TapeGradients, Activations) {
  const size_t n = 20;
  for (ckpt_tape_kernel_id id : {CKPT_KERNEL_silu_mul, CKPT_KERNEL_gelu, CKPT_KERNEL_gelu_exact})
    ExpectGradients(
        "activation", {Normal(n, 1), Normal(n, 2)},
        [&](const std::vector<Doubles> &in) {
          Doubles out(n);
          ckpt_activation_args a = {};
          a.a = in[0].data(), a.b = in[1].data(), a.out = out.data();
          Launch(id, &a, n);
          return out;
        },
        [&](const std::vector<Doubles> &in, const Doubles &d, std::vector<Doubles> *gradients) {
          ckpt_activation_args a = {};
          a.a = in[0].data(), a.b = in[1].data(), a.d_out = d.data();
          a.d_a = (*gradients)[0].data(), a.d_b = (*gradients)[1].data();
          Launch((ckpt_tape_kernel_id)(id + 1), &a, n);
        });
}

// Outputs are the norm and the sum, which goes on as the residual stream.
TEST(TapeGradients, Dropout) {
  const size_t tokens = 6, width = 7, n = tokens * width;
  auto drop = [&](const double *x, double *y) {
    ckpt_dropout_args a = {};
    a.x = x, a.y = y, a.n_columns = width, a.length = 3;
    a.dropout = {3, 1 / 0.6, (uint32_t)(0.4 * 4294967296.0), 2, 1};
    Launch(CKPT_KERNEL_dropout, &a, tokens);
  };
  ExpectGradients(
      "dropout", {Normal(n, 1)},
      [&](const std::vector<Doubles> &in) {
        Doubles out(n);
        drop(in[0].data(), out.data());
        EXPECT_NEAR((double)std::count(out.begin(), out.end(), 0.0) / (double)n, 0.4, 0.15);
        return out;
      },
      [&](const std::vector<Doubles> &, const Doubles &d, std::vector<Doubles> *gradients) {
        drop(d.data(), (*gradients)[0].data());
      });
}

TEST(TapeGradients, NormsWithTheirResidual) {
  const size_t rows = 3, width = 19, n = rows * width;
  for (bool is_rms : {true, false})
    ExpectGradients(
        is_rms ? "rmsnorm" : "layernorm", {Normal(n, 1), Normal(n, 2), Normal(width, 3), Normal(is_rms ? 0 : width, 4)},
        [&](const std::vector<Doubles> &in) {
          Doubles out(2 * n), mean(rows), inverse(rows);
          ckpt_norm_args a = {};
          a.x = in[0].data(), a.residual = in[1].data(), a.weight = in[2].data(), a.bias = in[3].data();
          a.y = out.data(), a.sum = &out[n], a.mean = mean.data(), a.inverse = inverse.data();
          a.n_columns = width, a.epsilon = 1e-3;
          Launch(is_rms ? CKPT_KERNEL_rmsnorm : CKPT_KERNEL_layernorm, &a, rows);
          return out;
        },
        [&](const std::vector<Doubles> &in, const Doubles &d, std::vector<Doubles> *gradients) {
          Doubles sum(n), y(n), mean(rows), inverse(rows);
          ckpt_norm_args a = {};
          a.x = in[0].data(), a.residual = in[1].data(), a.weight = in[2].data(), a.bias = in[3].data();
          a.y = y.data(), a.sum = sum.data(), a.mean = mean.data(), a.inverse = inverse.data();
          a.n_columns = width, a.epsilon = 1e-3;
          Launch(is_rms ? CKPT_KERNEL_rmsnorm : CKPT_KERNEL_layernorm, &a, rows);
          ckpt_norm_backward_args b = {};
          b.x = sum.data(), b.weight = in[2].data(), b.mean = is_rms ? nullptr : mean.data();
          b.inverse = inverse.data(), b.d_y = d.data(), b.d_sum = &d[n], b.d_x = (*gradients)[0].data();
          b.d_residual = (*gradients)[1].data(), b.d_weight = (*gradients)[2].data();
          b.d_bias = is_rms ? nullptr : (*gradients)[3].data(), b.n_tokens = rows, b.n_columns = width;
          Launch(is_rms ? CKPT_KERNEL_rmsnorm_weights : CKPT_KERNEL_layernorm_weights, &b, width);
          Launch(is_rms ? CKPT_KERNEL_rmsnorm_backward : CKPT_KERNEL_layernorm_backward, &b, rows);
        });
}

TEST(TapeGradients, EmbeddingAndBias) {
  const size_t vocabulary = 4, tokens = 6, width = 3, length = 3;
  const std::vector<int32_t> ids = {1, 0, 1, 3, 1, 0};
  auto args = [&](const Doubles &table, double *out) {
    ckpt_embedding_args a = {};
    a.table = const_cast<double *>(table.data()), a.out = out, a.ids = ids.data();
    a.n_tokens = tokens, a.n_columns = width, a.length = length;
    return a;
  };
  ExpectGradients(
      "embedding", {Normal(vocabulary * width, 1), Normal(length * width, 2), Normal(width, 3)},
      [&](const std::vector<Doubles> &in) {
        Doubles out(tokens * width);
        ckpt_embedding_args a = args(in[0], out.data());
        a.position_table = in[1].data();
        Launch(CKPT_KERNEL_embedding, &a, tokens);
        ckpt_bias_args b = {out.data(), const_cast<double *>(in[2].data()), tokens, width, width};
        Launch(CKPT_KERNEL_bias, &b, tokens);
        return out;
      },
      [&](const std::vector<Doubles> &, const Doubles &d, std::vector<Doubles> *gradients) {
        ckpt_embedding_args a = args((*gradients)[0], const_cast<double *>(d.data()));
        Launch(CKPT_KERNEL_embedding_backward, &a, width);
        a = args((*gradients)[1], const_cast<double *>(d.data()));
        a.ids = nullptr;
        Launch(CKPT_KERNEL_embedding_backward, &a, width);
        ckpt_bias_args b = {const_cast<double *>(d.data()), (*gradients)[2].data(), tokens, width, width};
        Launch(CKPT_KERNEL_bias_backward, &b, width);
      });
}

TEST(TapeGradients, Rope) {
  const size_t tokens = 3, heads = 2, width = 6, n = tokens * heads * width;
  Doubles table(tokens * width);
  const float frequencies[] = {1, 0.2F, 0.03F};
  ckpt_rope_table_args t = {table.data(), frequencies, nullptr, width, tokens};
  Launch(CKPT_KERNEL_rope_table, &t, tokens);
  auto rotate = [&](const double *x, double *y, bool is_inverse) {
    ckpt_rope_args r = {x, table.data(), y, heads, width, is_inverse, false};
    Launch(CKPT_KERNEL_rope, &r, tokens);
  };
  ExpectGradients(
      "rope", {Normal(n, 1)},
      [&](const std::vector<Doubles> &in) {
        Doubles out(n);
        rotate(in[0].data(), out.data(), false);
        return out;
      },
      [&](const std::vector<Doubles> &, const Doubles &d, std::vector<Doubles> *gradients) {
        rotate(d.data(), (*gradients)[0].data(), true);
      });
}

TEST(TapeGradients, Attention) {
  const size_t rows = 2, length = 7, heads = 4, kv_heads = 2, width = 3, tokens = rows * length;
  const size_t n = tokens * heads * width, n_kv = tokens * kv_heads * width;
  std::vector<int32_t> documents(tokens);
  std::vector<uint8_t> mask(tokens, 1);
  for (size_t i = 0; i < tokens; i++) documents[i] = i % length >= 4;
  mask[0] = mask[length + 5] = 0;
  for (size_t window : {0, 3})
    for (bool hides : {false, true}) {
      const double rate = window != 0 ? 0.3 : 0;
      auto args = [&](const std::vector<Doubles> &in, double *o, double *log_sum) {
        ckpt_attention_args a = {};
        a.q = in[0].data(), a.k = in[1].data(), a.v = in[2].data(), a.o = o, a.log_sum = log_sum;
        a.documents = hides ? documents.data() : nullptr, a.mask = hides ? mask.data() : nullptr;
        a.q_stride = a.o_stride = heads * width, a.k_stride = a.v_stride = kv_heads * width;
        a.n_rows = rows, a.length = length, a.n_heads = heads, a.n_kv_heads = kv_heads;
        a.head_width = width, a.window = window, a.scale = 0.7;
        a.dropout = {9, 1 / (1 - rate), (uint32_t)(rate * 4294967296.0), 1, 4};
        return a;
      };
      ExpectGradients(
          "attention", {Normal(n, 1), Normal(n_kv, 2), Normal(n_kv, 3)},
          [&](const std::vector<Doubles> &in) {
            Doubles o(n), log_sum(tokens * heads);
            ckpt_attention_args a = args(in, o.data(), log_sum.data());
            Launch(CKPT_KERNEL_attention, &a, rows * heads);
            return o;
          },
          [&](const std::vector<Doubles> &in, const Doubles &d, std::vector<Doubles> *gradients) {
            Doubles o(n), log_sum(tokens * heads);
            ckpt_attention_args a = args(in, o.data(), log_sum.data());
            Launch(CKPT_KERNEL_attention, &a, rows * heads);
            a.d_o = d.data(), a.d_q = (*gradients)[0].data(), a.d_k = (*gradients)[1].data();
            a.d_v = (*gradients)[2].data();
            Launch(CKPT_KERNEL_attention_backward, &a, rows * kv_heads);
          });
    }
}

TEST(TapeGradients, Loss) {
  const size_t rows = 4, width = 21;
  const std::vector<int32_t> targets = {3, -100, 0, 20};
  for (const double smoothing : {0.0, 0.3})
    ExpectGradients(
        "loss", {Normal(rows * width, 1)},
        [&](const std::vector<Doubles> &in) {
          Doubles logits = in[0], p(rows);
          ckpt_loss_args a = {logits.data(), p.data(), targets.data(), width, 1, false, smoothing};
          Launch(CKPT_KERNEL_loss, &a, rows);
          return p;
        },
        [&](const std::vector<Doubles> &in, const Doubles &d, std::vector<Doubles> *gradients) {
          Doubles p(rows);
          (*gradients)[0] = in[0];
          for (size_t r = 0; r < rows; r++) {  // the loss is -log p
            ckpt_loss_args a = {&(*gradients)[0][r * width], &p[r], &targets[r], width, -d[r], true, smoothing};
            Launch(CKPT_KERNEL_loss, &a, 1);
          }
        });
}

}  // namespace
