# octavo_textkit: the Rust static library of rust/textkit (tokenizers, chat templates), as an
# imported target. All presets share one Cargo target directory: switching presets rebuilds nothing.

find_program(CARGO cargo HINTS $ENV{CARGO_HOME}/bin $ENV{HOME}/.cargo/bin)
if(NOT CARGO)
  message(FATAL_ERROR "Octavo needs Cargo (Rust 1.87 or newer) to build rust/textkit, and found it "
                      "neither in PATH nor in $HOME/.cargo/bin: install it from https://rustup.rs")
endif()

find_package(Threads REQUIRED)

set(OCTAVO_CARGO_TARGET_DIR ${CMAKE_SOURCE_DIR}/build/cargo CACHE PATH
    "Where Cargo builds rust/textkit; presets share it")
set(_textkit_source_dir ${CMAKE_SOURCE_DIR}/rust/textkit)
set(_textkit_archive ${OCTAVO_CARGO_TARGET_DIR}/release/libtextkit.a)
file(GLOB_RECURSE _textkit_sources CONFIGURE_DEPENDS ${_textkit_source_dir}/src/*.rs)

# Cargo leaves the archive's time alone when nothing had to be rebuilt (a comment in a test file);
# touching it keeps Ninja from running Cargo again and again.
add_custom_command(
  OUTPUT ${_textkit_archive}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${OCTAVO_CARGO_TARGET_DIR}
          ${CARGO} build --release --locked --manifest-path ${_textkit_source_dir}/Cargo.toml
  COMMAND ${CMAKE_COMMAND} -E touch ${_textkit_archive}
  DEPENDS ${_textkit_sources} ${_textkit_source_dir}/Cargo.toml ${_textkit_source_dir}/Cargo.lock
  WORKING_DIRECTORY ${_textkit_source_dir}
  COMMENT "Building rust/textkit with Cargo"
  USES_TERMINAL
  VERBATIM)
add_custom_target(octavo_textkit_build DEPENDS ${_textkit_archive})

add_library(octavo_textkit STATIC IMPORTED GLOBAL)
set_target_properties(octavo_textkit PROPERTIES IMPORTED_LOCATION ${_textkit_archive})
target_include_directories(octavo_textkit INTERFACE ${_textkit_source_dir}/include)
target_link_libraries(octavo_textkit INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
add_dependencies(octavo_textkit octavo_textkit_build)
