# What `cmake --install` puts where: header, libraries, pkg-config and CMake packages, the command with its man pages
# and completions.

include(CMakePackageConfigHelpers)
set(cmake_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ckpt)

install(FILES ${PROJECT_SOURCE_DIR}/libckpt/ckpt.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS ckpt_shared EXPORT ckptTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ckpt_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

# Relative to the .pc file, so that `cmake --install --prefix` and unpacked archives work.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
  OUTPUT_VARIABLE CKPT_PC_PREFIX)
list(JOIN ckpt_requires " " ckpt_pc_requires)
foreach(kind INCLUDE LIB)
  cmake_path(APPEND CKPT_PC_${kind}DIR "\${prefix}" ${CMAKE_INSTALL_${kind}DIR})
endforeach()
configure_file(cmake/libckpt.pc.in ${PROJECT_BINARY_DIR}/libckpt.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/libckpt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(EXPORT ckptTargets NAMESPACE ckpt:: DESTINATION ${cmake_package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ckptConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/ckptConfig.cmake ${PROJECT_BINARY_DIR}/ckptConfigVersion.cmake
  DESTINATION ${cmake_package_folder})

if(TARGET ckpt)
  # What is installed and no more, below build/ as it will lie below the prefix: `./dev demo` builds it.
  add_custom_target(product DEPENDS ckpt ckpt-train ckpt_static ckpt_shared
    COMMAND ${CMAKE_COMMAND} -DCKPT=$<TARGET_FILE:ckpt> -DMAN_FOLDER=${PROJECT_BINARY_DIR}/share/man/man1
      -DDATA_FOLDER=${PROJECT_BINARY_DIR}/share -P ${PROJECT_SOURCE_DIR}/cmake/generated.cmake)
  install(TARGETS ckpt ckpt-train RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # Man pages and completions come out of the command's own option tables.
  install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" \"-DCKPT=$<TARGET_FILE:ckpt>\"
    \"-DMAN_FOLDER=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1\"
    \"-DDATA_FOLDER=\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\"
    -P \"${PROJECT_SOURCE_DIR}/cmake/generated.cmake\" COMMAND_ERROR_IS_FATAL ANY)")
endif()
