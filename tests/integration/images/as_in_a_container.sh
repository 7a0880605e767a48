#!/bin/sh
# as_in_a_container.sh USER VOLUME PYTHON COMMAND...: what a container's security context gives:
# another user without groups, privileges or a home, a read-only file system, one writable volume.
# For `unshare --mount`: all mounts are this process's own.
set -eu
user=$1 volume=$2 python=$3
shift 3

mount --bind "$volume" "$volume"
# The interpreter of the image is that of the machine; it may be in a home that is closed to others.
home=/root
case $python in
  "$home"/*)
    mount --bind "$python" /mnt
    mount -t tmpfs -o mode=755 tmpfs "$home"
    mkdir -p "$python"
    mount --move /mnt "$python"
    ;;
esac
mount -o remount,bind,ro /
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set=-all \
  --pdeathsig TERM -- "$@"
