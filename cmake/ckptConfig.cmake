# find_package(ckpt) gives the target ckpt::ckpt: libckpt.so and ckpt.h.
include(${CMAKE_CURRENT_LIST_DIR}/ckptTargets.cmake)
