# Packs the files that patterns name, at their places without links: what a pod on a node of the cluster runs.
#
# They are copied first: files of the kernel do not tell their size, which tar must know before it packs them. An image
# with Mooring collects by itself, and asks the kubelet for its devices too.
command -v mooring >/dev/null && exec mooring collect --root "$host" --no-kubectl --node-name "$node" --to -
cd "$host" && out=$(mktemp -d) && mkdir -p $out/node/proc && exec 3>$out/folders 4>$out/files 5>$out/links || exit 1
printf 'Architecture: %s\n' "$(uname -m)" >$out/node/proc/hwloc-nofile-info
for process in proc/[0-9]*; do
  read -r name <$process/comm || continue
  case $name in kubelet|irqbalance) set -- "$@" $process/comm $process/status $process/cmdline ;; *) continue ;; esac
  for word in $(tr '\0=' '\n\n' <$process/cmdline); do
    case $flag in
      --config) set -- "$@" "${word#/}" ;;
      --config-dir) set -- "$@" "${word#/}/*" "${word#/}/*/*" ;;
      --root-dir) set -- "$@" "${word#/}/*_manager_state" "${word#/}/device-plugins/kubelet_internal_checkpoint" ;;
    esac
    flag=$word
  done
done 2>/dev/null
for pattern; do
  for path in $pattern; do
    cd -P "$host/${path%/*}" || continue
    case $PWD in "$host"/*) place=${PWD#"$host"/}/${path##*/} ;; *) place= ;; esac
    cd "$host"
    if [ -z "$place" ]; then continue
    elif [ -d "$path" ] && [ -L "$path" ]; then printf '%s\0' "$place" >&5
    elif [ -d "$path" ]; then printf '%s\0' "$place" >&3
    elif [ -f "$path" ]; then printf '%s\0' "$place" >&4
    fi
  done
done 2>/dev/null
{
  (cd $out/node && xargs -0 mkdir -p <$out/folders)
  xargs -0 sh -c 'cp -L --parents "$@" "$0"' $out/node <$out/files
  xargs -0 sh -c 'cp -P --parents "$@" "$0"' $out/node <$out/links
} >/dev/null 2>&1
tar -czf - -C $out/node .
