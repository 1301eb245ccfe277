// SHA-256 in lanes gives what OpenSSL gives, message by message.
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "kernels/cpu/sha256/sha256.h"
#include "libckpt/base/digest.h"
}

namespace {

std::vector<uint8_t> random_bytes(size_t n) {
  std::mt19937_64 generator(n);
  std::vector<uint8_t> bytes(n + 7);
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const uint64_t word = generator();
    memcpy(&bytes[i], &word, 8);
  }
  bytes.resize(n);
  return bytes;
}

std::string sha256(const uint8_t *bytes, size_t n) {
  uint8_t digest[32];
  EVP_Digest(bytes, n, digest, nullptr, EVP_sha256(), nullptr);
  return std::string(reinterpret_cast<char *>(digest), sizeof digest);
}

std::string text(const uint8_t digest[32]) { return std::string(reinterpret_cast<const char *>(digest), 32); }

#if defined(__x86_64__)
template <size_t n_lanes>
void check_lanes(void (*hash)(const uint8_t *const *, size_t, uint8_t (*)[32])) {
  for (size_t n : {size_t{0}, size_t{64}, size_t{128}, size_t{4096 + 64}, size_t{1} << 20}) {
    const std::vector<uint8_t> bytes = random_bytes(n_lanes * (n + 1) + 1);  // of no alignment
    const uint8_t *messages[n_lanes];
    uint8_t digests[n_lanes][32];
    for (size_t lane = 0; lane < n_lanes; lane++) messages[lane] = &bytes[lane * (n + 1)];
    hash(messages, n, digests);
    for (size_t lane = 0; lane < n_lanes; lane++)
      EXPECT_EQ(text(digests[lane]), sha256(messages[lane], n)) << n << " bytes in lane " << lane << " of " << n_lanes;
  }
}

TEST(Sha256, LanesAreMessages) {
  for (bool has :
       {__builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512vl"), __builtin_cpu_supports("avx512bw")})
    if (!has) GTEST_SKIP() << "no AVX-512";
  check_lanes<8>(ckpt_sha256_x8);
  check_lanes<16>(ckpt_sha256_x16);
}
#endif

// However many leaves come at once, and whichever of them are hashed in lanes.
TEST(Sha256, AnyNumberOfLeaves) {
  enum { MOST = 28 };  // sixteen, eight, and some that are left
  const std::vector<uint8_t> bytes = random_bytes(MOST * CKPT_LEAF_BYTES);
  std::vector<std::string> wanted;
  const uint8_t *places[MOST];  // from the last to the first
  for (int i = 0; i < MOST; i++) {
    places[i] = &bytes[(MOST - 1 - i) * CKPT_LEAF_BYTES];
    wanted.push_back(sha256(places[i], CKPT_LEAF_BYTES));
  }
  ckpt_hasher *hasher = nullptr;
  ckpt_error error = {};
  ASSERT_EQ(ckpt_hasher_new(&hasher, &error), CKPT_OK);
  for (const ckpt_backend *backend : {&ckpt_backend_reference, &ckpt_backend_cpu})
    for (size_t n = 0; n <= MOST; n++) {
      uint8_t leaves[MOST + 1][32];
      memset(leaves, 0x5a, sizeof leaves);
      ASSERT_EQ(ckpt_digest_leaves(hasher, backend, places, n, leaves, &error), CKPT_OK) << error.message;
      for (size_t i = 0; i < n; i++) EXPECT_EQ(text(leaves[i]), wanted[i]) << backend->name << ' ' << i << " of " << n;
      EXPECT_EQ(text(leaves[n]), std::string(32, 0x5a)) << backend->name << " wrote past " << n;
    }
  ckpt_hasher_free(hasher);
}

}  // namespace
