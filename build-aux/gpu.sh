# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced by examples/setup.sh: builds the GPU backend for the NVIDIA GPU of this machine, or says in one line why not.
# A machine without one is told nothing.

# has_nvidia_gpu: by what the kernel knows, as engine/api/gpu_presence.cc. QTTS_SYSTEM_ROOT: for tests.
has_nvidia_gpu() {
  local top=${QTTS_SYSTEM_ROOT:-} device vendor class
  for device in "$top"/sys/bus/pci/devices/*; do
    { read -r vendor <"$device/vendor" && read -r class <"$device/class"; } 2>/dev/null || continue
    if [[ $vendor == 0x10de && $class == 0x03* ]]; then return 0; fi
  done
  compgen -G "$top/proc/driver/nvidia/gpus/*" >/dev/null || [ -e "$top/dev/nvhost-gpu" ] || [ -e "$top/dev/nvgpu" ] ||
    { [ -e "$top/dev/dxg" ] && [ -e "$top/usr/lib/wsl/lib/libcuda.so.1" ]; }
}

# leave_gpu CARD REASON: says it. Sets `unused_gpu`.
leave_gpu() {
  unused_gpu=1 card=
  echo "$1 is not used, the CPU speaks: $2" >&2
}

# find_gpu: sets `card` to the newest GPU that a backend can be built for and `capability` to its compute capability, as
# in 8.9. Without one `card` is empty, and `unused_gpu` is set where there is one that can't be used.
# shellcheck disable=SC2034,SC2154  # examples/setup.sh sets root, and reads unused_gpu
find_gpu() {
  local cards nvcc version driver
  card='' capability='' unused_gpu=''
  has_nvidia_gpu || return 0
  if ! cards=$("$root/build-aux/cuda-architectures" cards 2>&1); then
    leave_gpu "the NVIDIA GPU" "$cards; Debian: apt install nvidia-driver"
    return 0
  fi
  read -r capability card < <(sort -rV <<<"$cards")
  if [ "${capability%.*}" -lt 8 ]; then
    leave_gpu "$card" "it has compute capability $capability, needed is 8.0 or later"
    return 0
  fi
  nvcc=$(command -v nvcc || command -v "${QTTS_SYSTEM_ROOT:-}/usr/local/cuda/bin/nvcc") || true
  if [ -z "$nvcc" ]; then
    leave_gpu "$card" "nvcc, which compiles the GPU backend, is missing; Debian 13: apt install nvidia-cuda-toolkit, elsewhere NVIDIA's cuda-toolkit 12.0 or later"
    return 0
  fi
  version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  if [ "${version%%.*}" -lt 12 ]; then
    leave_gpu "$card" "$nvcc is of CUDA $version, needed is 12.0 or later"
    return 0
  fi
  driver=$("$root/build-aux/cuda-architectures" driver 2>/dev/null) || driver=$version
  if [ "${driver%%.*}" -lt "${version%%.*}" ]; then
    leave_gpu "$card" "its driver is for CUDA $driver, $nvcc for $version: update the driver, or put an nvcc of CUDA ${driver%%.*} first in PATH"
  fi
}

# has_code: whether the build in $build has code for $capability: machine code of the same major number, or PTX.
# shellcheck disable=SC2154  # examples/setup.sh sets build
has_code() {
  local wanted=${capability/./} architecture number
  local -a architectures
  grep -q '^build cuda/libqtts-cuda.so:' "$build/build.ninja" 2>/dev/null || return 1
  IFS=, read -ra architectures <"$build/cuda/architectures.txt" || return 1
  for architecture in "${architectures[@]}"; do
    [[ $architecture != *:* ]] || continue
    number=${architecture%+PTX}
    [ "$number" -le "$wanted" ] || continue
    if [ "$architecture" != "$number" ] || [ $((number / 10)) -eq $((wanted / 10)) ]; then return 0; fi
  done
  return 1
}

# build_backend: for `card`, in $build, which is configured. A failure is told, and the CPU speaks.
build_backend() {
  local log interrupted='' what="configuring the GPU backend" status=0
  SECONDS=0
  log=$(mktemp "${TMPDIR:-/tmp}/qttssrc-build-XXXXXX.log")
  if ! has_code; then
    with_progress "$what" true meson setup --reconfigure -Dcuda=enabled -Dcuda-arch=auto "$build" "$root" || status=$?
  fi
  if [ "$status" -eq 0 ] && [ -z "$interrupted" ] &&
    ! ninja -C "$build" -n cuda/libqtts-cuda.so 2>/dev/null | grep '^ninja: no work to do' >/dev/null; then
    echo "compiling the GPU backend for $card, compute capability $capability, once; this takes minutes" >&2
    what="compiling the GPU backend"
    with_progress "$what" build_stage ninja -C "$build" cuda/libqtts-cuda.so || status=$?
    if [ "$status" -eq 0 ] && [ -z "$interrupted" ]; then echo "the GPU backend is built; it took $SECONDS s" >&2; fi
  fi
  if [ -n "$interrupted" ]; then
    stopped "$what" "call this again; QTTS_PROPERTIES=device=cpu does without" "$status"
  elif [ "$status" -ne 0 ]; then
    stopped "$what" "QTTS_PROPERTIES=device=cpu does without" "$status" || true
    leave_gpu "$card" "its backend could not be built"
  else
    rm -f "$log"
  fi
}
