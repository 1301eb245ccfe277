# kernels/cuda as the static library ckpt_cuda, where a CUDA compiler is found. It never becomes part of libckpt.so: tools
# and the trainer link it. Without it kernels/cuda/none says that there is no CUDA. cuBLASLt is loaded when it is needed.

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
find_program(CKPT_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT CKPT_NVCC)
  message(STATUS "CKPT_CUDA: no nvcc found, building without kernels/cuda")
else()
  set(CMAKE_CUDA_COMPILER ${CKPT_NVCC} CACHE FILEPATH "CUDA compiler")
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  add_library(ckpt_cuda STATIC ${cuda_sources})
  target_include_directories(ckpt_cuda PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(ckpt_cuda PRIVATE _GNU_SOURCE)
  # No product is contracted with a sum, on either side, so that results equal the CPU's.
  target_compile_options(ckpt_cuda PRIVATE --fmad=false -Xcompiler=-ffp-contract=off
    $<$<BOOL:${CKPT_WERROR}>:-Werror=all-warnings>)
  target_link_libraries(ckpt_cuda PUBLIC CUDA::cudart_static ${CMAKE_DL_LIBS} Threads::Threads PRIVATE $<LINK_ONLY:ckpt_static>)
endif()
