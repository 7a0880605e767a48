# Sourced by the install scripts of the images. Packages come only from requirements.lock, each
# checked by its hash, as wheels: nothing is compiled, and no script of a package runs.
# Which index they come from is the configuration of pip and uv (pip.conf, uv.toml, PIP_*, UV_*).

workplace=$(mktemp -d)
trap 'rm -rf "$workplace"' EXIT

# uv in the version of the lock file, outside of the directory that becomes the image; UV=path is
# one that is there already.
provide_uv() {
  # Names of this repository, which are installed from it and never asked of an index.
  printf 'drivetrain-schemas\ndrivetrain\n' >"$workplace/own"
  uv=${UV:-$workplace/uv/bin/uv}
  [ -z "${UV:-}" ] || return 0
  awk '/^uv==/ { on = 1 } on { print; if ($0 !~ /\\$/) exit }' requirements.lock >"$workplace/uv.lock"
  "${PYTHON:-python3}" -m venv "$workplace/uv"
  "$workplace/uv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    -r "$workplace/uv.lock"
}

# create_environment DIRECTORY: an empty virtual environment, without pip.
create_environment() {
  "$uv" venv --quiet --python "$("${PYTHON:-python3}" -c 'import sys; print(sys._base_executable)')" "$1"
}

# install_locked DIRECTORY ARGUMENT...: what the arguments of `uv pip install` ask for, as locked.
install_locked() {
  local directory=$1
  shift
  "$uv" pip install --quiet --python "$directory" --compile-bytecode --no-build \
    --require-hashes --constraints requirements.lock --excludes "$workplace/own" "$@"
}

# install_own DIRECTORY FOLDER...: distributions of this repository; their needs are there already.
install_own() {
  local directory=$1
  shift
  "$uv" pip install --quiet --python "$directory" --compile-bytecode --no-deps "$@"
}

# tell_size DIRECTORY: so that a build shows what grew.
tell_size() {
  printf '%s: %s MB, %s packages\n' "$1" "$(du -sm "$1" | cut -f1)" \
    "$("$uv" pip list --quiet --python "$1" --format freeze | wc -l)"
}
