# Man pages and completions, printed by the command that was just built out of its option tables:
#   ckpt help --man [VERB]                        one page on stdout; ckpt-VERB.1 for each verb of `ckpt help --verbs`
#   ckpt help --completion bash | zsh | fish      one script on stdout
# A command that cannot print them (not built for this machine, an older one) installs without them, and says so.
#
#   cmake -DCKPT=... -DMAN_FOLDER=... -DDATA_FOLDER=... -P generated.cmake

function(print_to path)
  execute_process(COMMAND ${CKPT} help ${ARGN} OUTPUT_VARIABLE text RESULT_VARIABLE status ERROR_QUIET)
  if(status EQUAL 0 AND NOT text STREQUAL "")
    file(WRITE ${path} "${text}")
    message(STATUS "Installing: ${path}")
  else()
    message(STATUS "Without: ${path}")
  endif()
endfunction()

print_to(${MAN_FOLDER}/ckpt.1 --man)
execute_process(COMMAND ${CKPT} help --verbs OUTPUT_VARIABLE verbs RESULT_VARIABLE status ERROR_QUIET)
if(status EQUAL 0)
  string(REGEX MATCHALL "[a-z0-9-]+" verbs "${verbs}")
  foreach(verb ${verbs})
    print_to(${MAN_FOLDER}/ckpt-${verb}.1 --man ${verb})
  endforeach()
endif()
print_to(${DATA_FOLDER}/bash-completion/completions/ckpt --completion bash)
print_to(${DATA_FOLDER}/zsh/site-functions/_ckpt --completion zsh)
print_to(${DATA_FOLDER}/fish/vendor_completions.d/ckpt.fish --completion fish)
