# What holds for every target, whatever folder it is in: build type, ccache, hardening, sanitizers.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, RelWithDebInfo" FORCE)
endif()

find_program(CKPT_CCACHE ccache)
foreach(language C CXX)
  if(CKPT_CCACHE AND NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER ${CKPT_CCACHE})
  endif()
endforeach()

# No path of the building machine in what is shipped.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)

# Input is hostile: the cheap nets stay in release builds. Sanitizers have their own, which _FORTIFY_SOURCE would hide.
if(CKPT_SANITIZE)
  add_compile_options(-fsanitize=${CKPT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${CKPT_SANITIZE})
  if(CKPT_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL GNU) # a process starts sooner
    add_link_options(-static-libasan -static-libubsan)
  endif()
  if(NOT CKPT_SANITIZE MATCHES thread) # each start would relocate 300 thousand records of what is watched
    add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  endif()
else()
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>)
  add_compile_definitions($<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<NOT:$<CONFIG:Debug>>>:_FORTIFY_SOURCE=2>)
  add_link_options(LINKER:-z,relro,-z,now)
endif()
