// thorough.h - which build compares everything. Sanitizers look for what is wrong in memory, and fewer cases show that:
// what release compares in whole is sampled there, but with --full.
#ifndef CKPT_TESTS_THOROUGH_H
#define CKPT_TESTS_THOROUGH_H

#include <cstdlib>

inline bool is_thorough() { return CKPT_IS_SANITIZED == 0 || std::getenv("CKPT_TEST_FULL") != nullptr; }

#endif
