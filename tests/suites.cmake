# suites.cmake - a test of ctest for each suite of a test program.
#
# A process for each test, as gtest_discover_tests makes them, takes longer to start than most tests take, the more so
# under sanitizers. Included, it defines
#
#   add_suites(PROGRAM [PREFIX PREFIX] [ENVIRONMENT NAME=VALUE])
#
# which has the program asked for its suites when it has been linked: by this file, as a script.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(suites_script ${CMAKE_CURRENT_LIST_FILE})

  function(add_suites program)
    cmake_parse_arguments(PARSE_ARGV 1 suites "" "PREFIX;ENVIRONMENT" "")
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${program}_suites.cmake)
    set(timeout 300)
    if(CKPT_SANITIZE MATCHES thread) # which takes minutes for some
      set(timeout 1800)
    endif()
    add_custom_command(TARGET ${program} POST_BUILD VERBATIM BYPRODUCTS ${file}
      COMMAND ${CMAKE_COMMAND} -D program=$<TARGET_FILE:${program}> -D file=${file} -D prefix=${suites_PREFIX}
      -D environment=${suites_ENVIRONMENT} -D timeout=${timeout} -P ${suites_script})
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
  endfunction()
  return()
endif()

execute_process(COMMAND ${program} --gtest_list_tests OUTPUT_VARIABLE listed RESULT_VARIABLE status TIMEOUT 60)
if(NOT status EQUAL 0)
  file(REMOVE ${program}) # so that it is linked, and asked, again
  message(FATAL_ERROR "${program} --gtest_list_tests: ${status}\n${listed}")
endif()
string(REGEX REPLACE "  # [^\n]*" "" listed "${listed}") # parameters and types, which may have any letter
string(REPLACE "\n" ";" lines "${listed}")
set(suites)
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ ]+)\\.$")
    set(suite "${CMAKE_MATCH_1}")
    list(APPEND suites "${suite}")
    set("n_tests_${suite}" 0)
  elseif(line MATCHES "^  ")
    math(EXPR "n_tests_${suite}" "${n_tests_${suite}} + 1")
  endif()
endforeach()
set(tests)
foreach(suite IN LISTS suites)
  string(APPEND tests "add_test([=[${prefix}${suite}]=] [=[${program}]=] [=[--gtest_filter=${suite}.*]=])\n"
    "set_tests_properties([=[${prefix}${suite}]=] PROPERTIES COST ${n_tests_${suite}} TIMEOUT ${timeout}\n"
    "  ENVIRONMENT [=[${environment}]=])\n")
endforeach()
file(WRITE ${file} "${tests}")
