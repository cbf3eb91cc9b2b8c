# octavo_library(<folder> [PUBLIC deps...] [PRIVATE deps...])
# The static library octavo_<folder> of every source under src/<folder>. A dependency that is the
# name of another folder means that folder's target.
function(octavo_library folder)
  cmake_parse_arguments(ARG "" "" "PUBLIC;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cc)
  # Files of one instruction set are compiled apart, with their own flags (cmake/KernelIsas.cmake).
  list(FILTER sources EXCLUDE REGEX "/kernels/(x86|arm)/")
  add_library(octavo_${folder} STATIC ${sources})
  target_include_directories(octavo_${folder} PUBLIC ${CMAKE_SOURCE_DIR}/src
                                                     ${CMAKE_SOURCE_DIR}/include)
  foreach(scope PUBLIC PRIVATE)
    foreach(dependency ${ARG_${scope}})
      if(TARGET octavo_${dependency})
        set(dependency octavo_${dependency})
      endif()
      target_link_libraries(octavo_${folder} ${scope} ${dependency})
    endforeach()
  endforeach()
endfunction()

# octavo_unit_test(<folder> [deps...]): the program test_<folder> of tests/unit/<folder>/*_test.cc.
function(octavo_unit_test folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/unit/${folder}/*.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(test_${folder} ${sources})
  add_dependencies(unit_tests test_${folder})
  target_include_directories(test_${folder} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(test_${folder} PRIVATE octavo_${folder} GTest::gtest_main GTest::gmock
                                               fmt::fmt-header-only nlohmann_json::nlohmann_json
                                               ${ARGN})
  target_compile_definitions(test_${folder} PRIVATE OCTAVO_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(test_${folder} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS unit TIMEOUT 300)
endfunction()
