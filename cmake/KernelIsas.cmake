# Each instruction set's kernels are one file compiled with its own flags and chosen at run time.
# A new instruction set is its file, a line here and a line in src/kernels/dispatch.cc.
function(octavo_kernel_isa source)
  # g++ 12 takes the intrinsics' own _mm512_undefined_ps() for a mistake of the caller.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND ARGN -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/${source}
                              PROPERTIES COMPILE_OPTIONS "${ARGN}")
  target_sources(octavo_kernels PRIVATE ${CMAKE_SOURCE_DIR}/src/kernels/${source})
endfunction()

# Kernels say themselves where they fuse a multiplication with an addition: a compiler that does it
# on its own would make results depend on the tile that a row falls into.
target_compile_options(octavo_kernels PRIVATE -ffp-contract=off)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(octavo_kernels PRIVATE OCTAVO_KERNELS_X86=1)
  octavo_kernel_isa(x86/avx2.cc -mavx2 -mfma -mf16c)
  octavo_kernel_isa(x86/avx512.cc -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
  octavo_kernel_isa(x86/avx512_vnni.cc -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
                    -mfma -mf16c)
endif()
