# The first and only process of the machine's own: prepares it, runs the command, and powers it off.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t devpts pts /dev/pts 2>/dev/null || { mkdir -p /dev/pts; mount -t devpts pts /dev/pts; }
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -sfn /proc/self/fd /dev/fd
ip link set lo up
hostname penstock
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
tar -C / -xzf /mnt/checkout.tgz
cd /
# Everything is in one cgroup beside init's, so that the disk's speed can be bounded there, as a device's own would be.
cg=/sys/fs/cgroup
echo '+cpu +memory +io +pids +cpuset' >$cg/cgroup.subtree_control
mkdir $cg/host $cg/host/session $cg/host/penstock
echo '+cpu +memory +io +pids +cpuset' >$cg/host/cgroup.subtree_control
if [ -s /mnt/io.max ]; then cat /mnt/io.max >$cg/host/io.max; fi
(
    echo 0 >$cg/host/session/cgroup.procs
    bash /mnt/command </dev/null
    echo $? >/mnt/status
)
sync
mount -o remount,ro / 2>/dev/null
echo o >/proc/sysrq-trigger
sleep 60
