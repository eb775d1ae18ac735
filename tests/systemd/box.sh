#!/bin/bash
# Boot systemd as the first process of new namespaces, on a temporary layer over the files of this
# machine. Outside, only one cgroup changes, which the caller removes.
#
# usage: box.sh CGROUP UNITS [SOURCE:TARGET...]
#   CGROUP  a new directory in a cgroup2 hierarchy
#   UNITS   the units of the box without the shipped ones; the box boots multi-user.target
#   SOURCE  a directory, seen read-only inside at TARGET
set -euo pipefail
cgroup=$1 units=$2
shift 2

if [[ ${inside:-} != yes ]]; then
    mkdir "$cgroup"
    echo $$ >"$cgroup/cgroup.procs"
    inside=yes exec unshare --mount --pid --cgroup --ipc --uts --fork --kill-child \
        --propagation private -- "$0" "$cgroup" "$units" "$@"
fi

layer=/mnt
mount -t tmpfs -o mode=755 box "$layer"
mkdir "$layer"/{upper,work,root}
root=$layer/root
mount -t overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" box "$root"

mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys" # the host shares the settings of the kernel
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 box "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx" # PrivateDevices= copies it
ln -s /proc/self/fd "$root/dev/fd"
: >"$root/dev/console"
for directory in run tmp dev/shm; do
    mount -t tmpfs -o mode=1777 box "$root/$directory"
done
chmod 755 "$root/run"

for pair in "$@"; do
    mkdir -p "$root${pair#*:}"
    mount --bind "${pair%%:*}" "$root${pair#*:}"
    mount -o remount,bind,ro "$root${pair#*:}"
done
rm -rf "$root"/etc/systemd/system "$root"/etc/slumberd "$root"/var/lib/slumberd
cp -r "$units" "$root/etc/systemd/system"

cd "$root"
mkdir -p before
pivot_root . before
umount --lazy /before
cd /
exec env -i container=box SYSTEMD_UNIT_PATH=/etc/systemd/system \
    PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin \
    /lib/systemd/systemd --system --unit=multi-user.target --log-target=null --show-status=0
