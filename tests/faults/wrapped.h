// wrapped.h - calls of this program that fail when they are told to.
//
// The test is linked with --wrap for each function of the list in wrapped.cc, so that every call from libckpt's own
// objects comes by here: the n-th one of a kind fails once, all threads together. Unlike tests/faults/fault.c this
// works under sanitizers, reaches calls that it leaves alone (stat, mkdir, threads), and leaves libraries alone.
#ifndef TESTS_FAULTS_WRAPPED_H
#define TESTS_FAULTS_WRAPPED_H

#include <functional>

namespace wrapped {

enum Kind { kNone, kMemory, kRead, kWrite, kSync, kRename, kOpen, kSpace, kFolder, kLook, kThread, kShort, kKinds };

// What fails, and how: "memory", "read", ...
const char *NameOf(Kind kind);

// Arms one fault and disarms it at the end of its scope.
class Fault {
 public:
  Fault(Kind kind, long n);
  ~Fault();
  bool is_hit() const;
  long n_calls() const;  // of its kind so far

  Fault(const Fault &) = delete;
};

// Runs once, before the next renameat2: what another process does between a look and a rename.
extern std::function<void()> before_rename;

// Runs before each renameat and renameat2: what a kill in that moment leaves.
extern std::function<void()> before_each_rename;

}  // namespace wrapped

#endif
