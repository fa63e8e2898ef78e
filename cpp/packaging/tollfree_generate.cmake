# tollfree_generate(TARGET target PROTOS file.proto ... [IMPORT_DIR dir]): adds to a target what protoc, grpc_cpp_plugin and
# protoc-gen-tollfree-cpp make of protos.
function(tollfree_generate)
  cmake_parse_arguments(ARG "" "TARGET;IMPORT_DIR" "PROTOS" ${ARGN})
  if(NOT ARG_TARGET OR NOT ARG_PROTOS OR ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tollfree_generate: TARGET and PROTOS are needed, and nothing but IMPORT_DIR beside them")
  endif()
  if(NOT ARG_IMPORT_DIR)
    set(ARG_IMPORT_DIR .)
  endif()
  get_filename_component(import_dir "${ARG_IMPORT_DIR}" ABSOLUTE)
  find_program(PROTOC protoc REQUIRED)
  find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
  set(out "${CMAKE_CURRENT_BINARY_DIR}/tollfree_generated/${ARG_TARGET}")
  file(MAKE_DIRECTORY "${out}")
  if(TARGET ${TOLLFREE_CPP_GENERATOR})
    set(generator "$<TARGET_FILE:${TOLLFREE_CPP_GENERATOR}>")
  else()
    set(generator "${TOLLFREE_CPP_GENERATOR}")
  endif()
  foreach(proto ${ARG_PROTOS})
    get_filename_component(path "${proto}" ABSOLUTE)
    file(RELATIVE_PATH name "${import_dir}" "${path}")
    string(REGEX REPLACE "\\.proto$" "" stem "${name}")
    # A file without services has no tollfree.h: nothing waits for that one.
    set(made "${out}/${stem}.pb.cc" "${out}/${stem}.pb.h" "${out}/${stem}.grpc.pb.cc" "${out}/${stem}.grpc.pb.h")
    add_custom_command(OUTPUT ${made}
      COMMAND "${PROTOC}" "-I${import_dir}" "--cpp_out=${out}" "--grpc_out=${out}" "--plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN}"
        "--tollfree-cpp_out=${out}" "--plugin=protoc-gen-tollfree-cpp=${generator}" "${path}"
      DEPENDS "${path}" ${TOLLFREE_CPP_GENERATOR} VERBATIM)
    target_sources(${ARG_TARGET} PRIVATE ${made})
  endforeach()
  target_include_directories(${ARG_TARGET} PUBLIC $<BUILD_INTERFACE:${out}>)
endfunction()
