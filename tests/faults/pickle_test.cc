// Every allocation of the pickle machine fails in turn: ENOMEM with a message, a report that has what came before, and
// (under AddressSanitizer) nothing left behind.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/faults/wrapped.h"

extern "C" {
#include "libckpt/codec/pickle/pickle.h"
}

namespace {

TEST(PickleFaults, EveryAllocation) {
  std::string bytes = "cos\nsystem\n0(F1.5\nS'text'\nV" + std::string(70000, 'x') + "\nr" + std::string(4, '\xff');
  bytes += "\x8a\x09" + std::string(9, 'a');
  for (int i = 0; i < 3000; i++) bytes += "(](N";  // stack and marks grow
  bytes += "N.";
  bool is_through = false;
  long n_faults = 0;
  for (long n = 1; !is_through; n++) {
    ckpt_arena arena;
    ckpt_arena_init(&arena, UINT64_C(1) << 30);
    ckpt_pickle_report report;
    memset(&report, 0x55, sizeof report);
    ckpt_pickle_options options = {};
    options.fetch = [](void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *) {
      static_cast<const std::string *>(arg)->copy(static_cast<char *>(dst), n_bytes, offset);
      return CKPT_OK;
    };
    options.arg = &bytes;
    options.n_bytes = bytes.size();
    options.report = &report;
    ckpt_error err = {};
    ckpt_object *root = nullptr;
    ckpt_status status;
    {
      wrapped::Fault fault(wrapped::kMemory, n);
      status = ckpt_pickle_read(&root, nullptr, &options, &arena, &err);
      is_through = !fault.is_hit();
    }
    if (status != CKPT_OK || is_through) {  // or an arena made do with a smaller block
      EXPECT_EQ(status, is_through ? CKPT_OK : CKPT_ENOMEM) << n << err.message;
    }
    EXPECT_EQ(err.message[0] != '\0', status != CKPT_OK);
    if (report.n_consumed > 12) {
      ASSERT_EQ(report.n_globals, 1u) << n;
      EXPECT_STREQ(report.globals[0]->name, "os.system");
    }
    n_faults += status != CKPT_OK;
    ckpt_arena_free(&arena);
  }
  EXPECT_GT(n_faults, 15);
}

}  // namespace
