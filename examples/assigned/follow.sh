#!/bin/sh
# Keeps a process on the CPUs that its container has, and follows when a resize changes them.
#
# Usage: follow.sh PID [FOLDER]. Needs taskset; with inotifywait it waits for changes, without it looks every second.
# Run it in a container that is told its CPUs (docs/reference/assigned-cpus.md).
pid=$1
folder=${2:-/run/mooring-assigned}
known=?
while kill -0 "$pid" 2> /dev/null; do
  cpus=$(cat "$folder/assigned.cpuset") || exit 1
  # Again each time: kernels before 6.2 undo every pin when the cpuset changes.
  [ -z "$cpus" ] || taskset -a -cp "$cpus" "$pid" > /dev/null || echo "pid $pid stays where it is" >&2
  if [ "$cpus" != "$known" ]; then
    known=$cpus
    echo "CPUs: ${cpus:-those of everybody}"
  fi
  if command -v inotifywait > /dev/null; then
    # A change between the look and this line is seen a second later.
    inotifywait -qq -t 1 -e moved_to "$folder"
  else
    sleep 1
  fi
done
