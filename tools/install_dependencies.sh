#!/usr/bin/env bash
# Installs what building and testing Octavo needs and this machine lacks: Debian packages through apt-get,
# Python packages into .venv. Does nothing, quickly, when everything is there.
# usage: tools/install_dependencies.sh [build|test|lint]
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-build}

say() { printf '== %s\n' "$*"; }
fail() { printf 'octavo set-up: %s\n' "$*" >&2; exit 1; }

# One line a package: what must be there, and the Debian package that brings it.
needed() {
  case $1 in
    build)
      echo "command:g++ g++"
      echo "command:cmake cmake"
      echo "command:ninja ninja-build"
      echo "command:ccache ccache"
      echo "file:/usr/include/fmt/format.h libfmt-dev"
      echo "file:/usr/include/nlohmann/json.hpp nlohmann-json3-dev"
      echo "file:/usr/include/CLI/CLI.hpp libcli11-dev"
      echo "file:/usr/include/gtest/gtest.h libgtest-dev"
      echo "file:/usr/include/gmock/gmock.h libgmock-dev"
      echo "file:/usr/include/benchmark/benchmark.h libbenchmark-dev"
      echo "python-venv python3-venv" ;;
    test)
      needed build
      echo "command:qemu-x86_64 qemu-user" ;;
    lint)
      needed build
      echo "command:clang++-16 clang-16"
      echo "command:clang-format-16 clang-format-16"
      echo "command:clang-tidy-16 clang-tidy-16" ;;
    *) fail "unknown purpose '$1', expected build, test or lint" ;;
  esac
}

present() {
  case $1 in
    command:*) command -v "${1#command:}" >/dev/null ;;
    file:*) [ -e "${1#file:}" ] ;;
    python-venv) python3 -c 'import ensurepip, venv' 2>/dev/null ;;
  esac
}

rust_is_recent() {  # the textkit crates need Rust 1.87
  local cargo=cargo version
  command -v cargo >/dev/null || cargo=$HOME/.cargo/bin/cargo
  version=$("$cargo" --version 2>/dev/null | sed -nE 's/^cargo 1\.([0-9]+).*/\1/p')
  [ -n "$version" ] && [ "$version" -ge 87 ]
}

missing=()
while read -r what package; do
  present "$what" || missing+=("$package")
done < <(needed "$purpose")
rust_is_recent || missing+=(cargo-web rustc-web)

if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null ||
    fail "these are missing, and there is no apt-get to install them: ${missing[*]} (Debian's names)"
  say "installing ${missing[*]}"
  sudo=
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "root or sudo is needed to install ${missing[*]}"
    sudo=sudo
  fi
  log=$(mktemp)
  { $sudo apt-get update && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
    { tail -n 5 "$log" >&2; fail "apt-get could not install ${missing[*]}; its whole output is in $log"; }
  rm -f "$log"
fi

# Python: one environment for the scripts and tests, made anew when a requirements file changes.
requirements=(tools/requirements.txt)
[ "$purpose" = test ] && requirements+=(tests/requirements.txt)
stamp=.venv/installed-$purpose
wanted=$(cat "${requirements[@]}" | sha256sum)
if [ ! -x .venv/bin/python ] || [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  say "installing Python packages into .venv"
  [ -x .venv/bin/python ] || python3 -m venv .venv || fail "python3 -m venv .venv failed"
  arguments=()
  for file in "${requirements[@]}"; do arguments+=(-r "$file"); done
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${arguments[@]}" ||
    fail "pip could not install ${requirements[*]}; is a package index reachable?"
  echo "$wanted" >"$stamp"
fi
