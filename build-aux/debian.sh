# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced by the scripts that set themselves up on a fresh Debian 12 or 13: package lists and two functions.

# What building and running the element needs. libprotobuf-dev: sentencepiece.pc of Debian 13 requires protobuf-lite, but
# no package that is installed with it brings that.
# shellcheck disable=SC2034
build_packages=(g++ meson ninja-build pkgconf
  libglib2.0-dev libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev
  libicu-dev libsentencepiece-dev libprotobuf-dev nlohmann-json3-dev libhwy-dev libsoxr-dev
  gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good)
# What the tests need besides.
# shellcheck disable=SC2034
test_packages=(libgtest-dev libgmock-dev
  gstreamer1.0-plugins-bad gstreamer1.0-libav gstreamer1.0-alsa swh-plugins
  ffmpeg pocketsphinx pocketsphinx-en-us pulseaudio pulseaudio-utils
  libgstrtspserver-1.0-dev python3-gi gir1.2-gstreamer-1.0)
# What the example programs need besides.
# shellcheck disable=SC2034
example_packages=(libgstreamer-plugins-bad1.0-dev gstreamer1.0-plugins-bad gstreamer1.0-nice libsoup-3.0-dev
  libgstrtspserver-1.0-dev)
# What the nightly tests need besides.
# shellcheck disable=SC2034
nightly_packages=(chromium python3-websocket tshark valgrind
  build-essential debhelper help2man lintian autopkgtest)
# What CI needs besides; the versions of clang are those of Debian 12.
# shellcheck disable=SC2034
ci_packages=(clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev shellcheck git)

# install_missing PACKAGE...: installs those that are not there, and says so; needs root only then.
install_missing() {
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    echo "missing packages; as root: apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  fi
  echo "installing: ${missing[*]}" >&2
  local log
  log=$(mktemp)
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
  rm -f "$log"
}

# need_writable FOLDER: makes it where it is not there; fails where nothing can be built in it.
need_writable() {
  if ! mkdir -p -- "$1" 2>/dev/null || [ ! -w "$1" ]; then
    echo "$1: cannot be written to; QTTS_BUILD_DIR=DIR builds in another folder" >&2
    return 1
  fi
}
