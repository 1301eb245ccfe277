// build.cc - see build.h. Compiled for each build.
#include "tests/build.h"

#include <cstdlib>

std::string binary_dir() { return CKPT_BINARY_DIR; }

bool is_sanitized() { return CKPT_IS_SANITIZED != 0; }

bool is_thorough() { return !is_sanitized() || std::getenv("CKPT_TEST_FULL") != nullptr; }
