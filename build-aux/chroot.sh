# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Sourced by the scripts that work in a fresh chroot of a Debian or Ubuntu release, as a stranger's new machine. Needs root,
# debootstrap and the network. One chroot at a time; the script removes it:
#   trap leave_chroot EXIT
#   make_chroot bookworm /var/tmp/somewhere
#   copy_sources /qttssrc
#   in_chroot QTTS_MESON_OPTIONS=-Dcuda=disabled /qttssrc/tests/run
# In the environment: QTTS_DEBIAN_MIRROR, default http://deb.debian.org/debian; QTTS_UBUNTU_MIRROR, default
# http://archive.ubuntu.com/ubuntu.

chroot_root=  # folder of the chroot; empty: there is none

# make_chroot RELEASE FOLDER [ARCHIVE]: a minimal system in a new folder below FOLDER. If ARCHIVE exists, it is unpacked
# from that; else it is made with debootstrap, and kept there for the next.
make_chroot() {
  local release=$1 folder=$2 archive=${3:-} mount mirror=${QTTS_DEBIAN_MIRROR:-http://deb.debian.org/debian}
  local bootstrap_options=() script=()
  local ubuntu_keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
  [ -z "$chroot_root" ] || { echo "make_chroot: there is one already" >&2; return 1; }
  # Releases that are newer than debootstrap are set up as unstable is.
  [ -e "/usr/share/debootstrap/scripts/$release" ] || script=(sid)
  if [ "$release" = noble ]; then
    mirror=${QTTS_UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu} script=(gutsy) bootstrap_options=("--components=main,universe")
    # Debian has no package of Ubuntu's keys.
    if [ -e "$ubuntu_keys" ]; then bootstrap_options+=("--keyring=$ubuntu_keys"); else bootstrap_options+=(--no-check-gpg); fi
  fi
  chroot_root=$(mktemp -d "$folder/$release.XXXXXX")
  chmod 755 "$chroot_root"
  if [ -n "$archive" ] && [ -e "$archive" ]; then
    tar --extract --file="$archive" --directory="$chroot_root" --numeric-owner
  else
    if ! debootstrap --variant=minbase "${bootstrap_options[@]}" "$release" "$chroot_root" "$mirror" "${script[@]}" \
      >"$folder/$release.log" 2>&1; then
      tail -n 20 "$folder/$release.log" >&2
      return 1
    fi
    rm "$folder/$release.log"
    # The mirror may be a snapshot, whose Release file has expired.
    echo 'Acquire::Check-Valid-Until "false";' >"$chroot_root/etc/apt/apt.conf.d/99qttssrc"
    cp /etc/resolv.conf "$chroot_root/etc/resolv.conf"
    [ -z "$archive" ] || tar --create --file="$archive" --directory="$chroot_root" --numeric-owner .
  fi
  for mount in proc sys dev; do mount --bind "/$mount" "$chroot_root/$mount"; done
  for mount in pts shm; do
    if mountpoint -q "/dev/$mount"; then mount --bind "/dev/$mount" "$chroot_root/dev/$mount"; fi
  done
}

# copy_sources DIR: what git tracks in the current folder, and new files that it does not ignore, to DIR in the chroot.
copy_sources() {
  mkdir -p "$chroot_root/$1"
  git ls-files -z --cached --others --exclude-standard |
    tar --create --null --files-from=- | tar --extract --directory="$chroot_root/$1" --no-same-owner
}

# in_chroot [NAME=VALUE...] COMMAND...: with an environment of its own.
in_chroot() {
  chroot "$chroot_root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

leave_chroot() {
  [ -n "$chroot_root" ] || return 0
  local mount tries
  for mount in dev/shm dev/pts dev proc sys; do
    # A process that has just ended may still hold /dev/null.
    for ((tries = 0; tries < 50; tries++)); do
      ! mountpoint -q "$chroot_root/$mount" || umount "$chroot_root/$mount" 2>/dev/null || { sleep 0.1 && continue; }
      break
    done
    if mountpoint -q "$chroot_root/$mount"; then umount "$chroot_root/$mount"; fi
  done
  # Never delete through a mount: the files below would be the host's.
  rm -rf --one-file-system -- "$chroot_root"
  chroot_root=
}
